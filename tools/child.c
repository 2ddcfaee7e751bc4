// SPDX-License-Identifier: BSD-3-Clause
// Other programs that the command starts. One that takes too long is ended together with its
// children: it leads a process group of its own.
#include "config.h"

#include "child.h"

#include "fabrail/core/time.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LOOK_MS = 200 };

static bool grow(struct fr_words *words)
{
    size_t room = words->room ? 2 * words->room : 32;
    char **list = realloc(words->list, room * sizeof(*list));
    if (list == NULL)
        return false;
    words->list = list;
    words->room = room;
    return true;
}

void fr_words_add(struct fr_words *words, const char *format, ...)
{
    char *word = NULL;
    va_list arguments;
    va_start(arguments, format);
    int length = vasprintf(&word, format, arguments);
    va_end(arguments);
    if (length < 0 || (words->count + 2 > words->room && !grow(words))) {
        if (length >= 0)
            free(word);
        words->failed = true;
        return;
    }
    words->list[words->count++] = word;
    words->list[words->count] = NULL;
}

void fr_words_free(struct fr_words *words)
{
    for (size_t i = 0; i < words->count; i++)
        free(words->list[i]);
    free(words->list);
    memset(words, 0, sizeof(*words));
}

static void __attribute__((noreturn))
become(char *const *argv, char *const *assignments, int output)
{
    int nothing = open("/dev/null", O_RDONLY);
    // Where standard streams were closed the pipe may be one of them, and would end with exec.
    output = fcntl(output, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    setpgid(0, 0);
    dup2(nothing, STDIN_FILENO);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    for (; assignments != NULL && *assignments != NULL; assignments++)
        putenv(*assignments);
    execvp(argv[0], argv);
    _exit(127);
}

// Takes what is there to read. Returns false at the end of it.
static bool take(int input, struct fr_child_result *result)
{
    char buffer[65536];
    ssize_t got = read(input, buffer, sizeof(buffer));
    if (got <= 0)
        return got < 0 && errno == EINTR;
    if (result->bytes + (size_t)got > FR_CHILD_MOST_OUTPUT)
        return true; // read on, so that the writer can end
    char *longer = realloc(result->output, result->bytes + (size_t)got + 1);
    if (longer == NULL)
        return true;
    memcpy(longer + result->bytes, buffer, (size_t)got);
    result->output = longer;
    result->bytes += (size_t)got;
    longer[result->bytes] = '\0';
    return true;
}

// Returns whether it has ended; it stays there for reap.
static bool has_ended(pid_t child)
{
    siginfo_t facts = {.si_pid = 0};
    return waitid(P_PID, (id_t)child, &facts, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           facts.si_pid == child;
}

// Until the last writer has closed its end, or the program has ended and others, which it left
// behind, are silent, or time is up.
static void collect(int input, pid_t child, int64_t deadline_ns, struct fr_child_result *result)
{
    for (;;) {
        struct pollfd wanted = {.fd = input, .events = POLLIN};
        bool ended = has_ended(child);
        int ready = poll(&wanted, 1, LOOK_MS);
        if (ready == 0 && ended)
            return;
        if (fr_time_ns() >= deadline_ns) {
            result->timed_out = !ended;
            return;
        }
        if (ready < 0 && errno != EINTR)
            return;
        if (ready > 0 && !take(input, result))
            return;
    }
}

static void reap(pid_t child, struct fr_child_result *result)
{
    int status = 0;
    if (result->timed_out)
        kill(-child, SIGKILL);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    result->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void fr_child_run(char *const *argv, char *const *assignments, int seconds,
                  struct fr_child_result *result)
{
    int ends[2];
    memset(result, 0, sizeof(*result));
    result->output = calloc(1, 1);
    if (result->output == NULL || pipe2(ends, O_CLOEXEC) != 0)
        return;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        become(argv, assignments, ends[1]);
    close(ends[1]);
    if (child > 0) {
        setpgid(child, child); // whoever of the two comes first
        collect(ends[0], child, fr_time_ns() + seconds * FR_SECOND_NS, result);
        reap(child, result);
        result->started = result->status != 127;
    }
    close(ends[0]);
}
