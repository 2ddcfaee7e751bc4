// SPDX-License-Identifier: BSD-3-Clause
// Unit tests of several processes. The program starts itself once for each process of a case;
// process 0 has a socket to each other one. A process that dies closes its socket, so nobody waits
// for it.
#ifndef FR_TESTS_UNIT_PROCESSES_H
#define FR_TESTS_UNIT_PROCESSES_H

#include "check.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROCESSES_MAX = 8 };

// In a process of a case.
static int process_rank;
static int process_count;
static char process_program[4096];
static int process_sockets[PROCESSES_MAX]; // of process 0: by rank; of others: the first

// A case: so many processes run `run`. Each is given `common` and what is its own in `own`, as
// "NAME=value".
struct process_case {
    const char *name;
    int count;
    void (*run)(void);
    const char *common[3];
    const char *own[PROCESSES_MAX][2];
};

static inline int process_socket(int rank)
{
    return process_sockets[process_rank == 0 ? rank : 0];
}

static inline void process_say(int rank, const void *data, size_t bytes)
{
    ssize_t sent = send(process_socket(rank), data, bytes, MSG_NOSIGNAL);
    CHECK(sent == (ssize_t)bytes, "process %d cannot talk to %d: %s", process_rank, rank,
          strerror(errno));
}

// Ends the process when the other has ended: nothing could go on.
static inline void process_hear(int rank, void *data, size_t bytes)
{
    ssize_t got = recv(process_socket(rank), data, bytes, 0);
    CHECK(got == (ssize_t)bytes, "process %d hears %zd of %zu bytes from %d", process_rank, got,
          bytes, rank);
    if (got != (ssize_t)bytes)
        _exit(CHECK_FAIL);
}

// Waits until all processes of the case have come here.
static inline void process_meet(void)
{
    char word = 'm';
    for (int rank = 1; process_rank == 0 && rank < process_count; rank++)
        process_hear(rank, &word, 1);
    if (process_rank != 0)
        process_say(0, &word, 1);
    for (int rank = 1; process_rank == 0 && rank < process_count; rank++)
        process_say(rank, &word, 1);
    if (process_rank != 0)
        process_hear(0, &word, 1);
}

static inline void process_exec(const struct process_case *at, int rank, int ends[PROCESSES_MAX][2])
{
    char rank_text[16], sockets[128] = "";
    size_t used = 0;
    for (int i = 1; i < at->count; i++) {
        bool mine = rank == 0 || rank == i;
        close(ends[i][rank == 0 ? 1 : 0]);
        if (!mine)
            close(ends[i][1]);
        else
            used += (size_t)snprintf(sockets + used, sizeof(sockets) - used, "%d ",
                                     ends[i][rank == 0 ? 0 : 1]);
    }
    snprintf(rank_text, sizeof(rank_text), "%d", rank);
    setenv("OMPI_COMM_WORLD_RANK", rank_text, 1);
    for (size_t i = 0; i < sizeof(at->common) / sizeof(at->common[0]); i++)
        if (at->common[i] != NULL)
            putenv((char *)(uintptr_t)at->common[i]);
    for (size_t i = 0; i < sizeof(at->own[0]) / sizeof(at->own[0][0]); i++)
        if (at->own[rank][i] != NULL)
            putenv((char *)(uintptr_t)at->own[rank][i]);
    execl(process_program, process_program, at->name, rank_text, sockets, (char *)NULL);
    _exit(CHECK_FAIL);
}

// By its path, since the link of a program that runs inside of another one, as under valgrind, is
// that one's.
static inline bool process_find_program(void)
{
    ssize_t length = readlink("/proc/self/exe", process_program, sizeof(process_program) - 1);
    return length > 0;
}

// Runs one case. Returns the worst exit status of its processes.
static inline int process_run(const struct process_case *at)
{
    int ends[PROCESSES_MAX][2];
    pid_t children[PROCESSES_MAX];
    int worst = CHECK_PASS;
    fflush(NULL);
    if (!process_find_program())
        return CHECK_FAIL;
    for (int i = 1; i < at->count; i++)
        if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends[i]) != 0)
            return CHECK_FAIL;
    for (int rank = 0; rank < at->count; rank++) {
        children[rank] = fork();
        if (children[rank] == 0)
            process_exec(at, rank, ends);
    }
    for (int i = 1; i < at->count; i++) {
        close(ends[i][0]);
        close(ends[i][1]);
    }
    for (int left = at->count; left > 0; left--) { // in the order in which they end
        int status = 0;
        pid_t ended = wait(&status);
        int code = WIFEXITED(status) ? WEXITSTATUS(status) : CHECK_FAIL;
        if (ended < 0 || !WIFEXITED(status))
            fprintf(stderr, "%s: a process ended with 0x%x\n", at->name, (unsigned)status);
        // A process that cannot take part ends those that wait for it.
        if (code == CHECK_SKIP || worst == CHECK_PASS)
            worst = code;
    }
    return worst;
}

static inline int process_be(const struct process_case *at, char **arguments)
{
    char *next = arguments[3];
    process_rank = atoi(arguments[2]);
    process_count = at->count;
    for (int i = process_rank == 0 ? 1 : 0; i < (process_rank == 0 ? at->count : 1); i++)
        process_sockets[i] = (int)strtol(next, &next, 10);
    at->run();
    return check_result();
}

// The main of such a program, over all cases; a name as argument runs that case alone. `cases` ends
// with one without a name.
static inline int process_main(const struct process_case *cases, int count, char **arguments)
{
    unsigned skipped = 0, all = 0;
    for (const struct process_case *at = cases; at->name != NULL; at++) {
        if (count > 1 && strcmp(at->name, arguments[1]) != 0)
            continue;
        if (count == 4)
            return process_be(at, arguments);
        int code = process_run(at);
        printf("%s: %s\n", at->name,
               code == CHECK_PASS   ? "passed"
               : code == CHECK_SKIP ? "skipped"
                                    : "FAILED");
        CHECK(code == CHECK_PASS || code == CHECK_SKIP, "case %s", at->name);
        all++;
        skipped += code == CHECK_SKIP;
    }
    if (skipped == all && check_result() == CHECK_PASS)
        return CHECK_SKIP;
    return check_result();
}

#endif
