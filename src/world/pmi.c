// SPDX-License-Identifier: BSD-3-Clause
// What Fabrail asks of a process manager that speaks PMI: to keep a value under a name, and for
// the value that another process has left there.
#include "config.h"

#include "world/pmi.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TIMEOUT_MS = 60000, LENGTH_DIGITS = 6 };

// Written by the thread that leaves the record, in MPI_Init.
static int manager = -1;
static int version;
static char space[256]; // the job's, of version 1

// Launchers speak otherwise on a socket of the same name, and may end a job that takes them for
// another: so it is the process at the other end that is asked who it is.
static bool is_program(int file, const char *program)
{
    char path[64], name[32] = "";
    struct ucred peer = {.pid = 0};
    socklen_t bytes = sizeof(peer);
    if (getsockopt(file, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0 || peer.pid <= 0)
        return false;
    snprintf(path, sizeof(path), "/proc/%d/comm", (int)peer.pid);
    FILE *comm = fopen(path, "re");
    bool known = comm && fgets(name, sizeof(name), comm);
    name[strcspn(name, "\n")] = '\0';
    if (comm)
        fclose(comm);
    return known && strcmp(name, program) == 0;
}

int fr_world_pmi_find(const char *program)
{
    const char *text = fr_core_job_value("PMI_FD"), *size = fr_core_job_value("PMI_SIZE");
    if (!text || !fr_core_job_value("PMI_RANK") || (size && strcmp(size, "1") == 0))
        return -1;
    int file = atoi(text);
    return is_program(file, program) ? file : -1;
}

static bool read_bytes(int file, char *bytes, size_t count)
{
    while (count > 0) {
        struct pollfd ready = {.fd = file, .events = POLLIN};
        int polled = poll(&ready, 1, TIMEOUT_MS);
        ssize_t got = polled > 0 ? recv(file, bytes, count, 0) : polled;
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        bytes += got;
        count -= (size_t)got;
    }
    return true;
}

bool fr_world_pmi_read_line(int file, char line[FR_WORLD_PMI_BYTES])
{
    size_t used = 0;
    for (;;) {
        if (!read_bytes(file, line + used, 1))
            return false;
        if (line[used] == '\n')
            break;
        used += used < FR_WORLD_PMI_BYTES - 1;
    }
    line[used] = '\0';
    return true;
}

bool fr_world_pmi_write(int file, const char *text, size_t length)
{
    while (length > 0) {
        ssize_t sent = send(file, text, length, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return false;
        text += sent;
        length -= (size_t)sent;
    }
    return true;
}

static bool read_answer(char answer[FR_WORLD_PMI_BYTES])
{
    char digits[LENGTH_DIGITS + 1] = "";
    if (version == 1)
        return fr_world_pmi_read_line(manager, answer);
    if (!read_bytes(manager, digits, LENGTH_DIGITS))
        return false;
    int length = atoi(digits);
    if (length < 0 || length >= FR_WORLD_PMI_BYTES || !read_bytes(manager, answer, (size_t)length))
        return false;
    answer[length] = '\0';
    return true;
}

// In one piece: Slurm takes what it reads at once for a question.
static bool ask(const char *question, char answer[FR_WORLD_PMI_BYTES])
{
    char text[FR_WORLD_PMI_BYTES + LENGTH_DIGITS];
    int length = version == 1
                     ? snprintf(text, sizeof(text), "%s\n", question)
                     : snprintf(text, sizeof(text), "%6d%s", (int)strlen(question), question);
    return length < (int)sizeof(text) && fr_world_pmi_write(manager, text, (size_t)length) &&
           read_answer(answer);
}

// The value of a word of an answer, "name=value" between separators.
static bool find_value(const char *answer, const char *name, char *value, size_t room)
{
    const char *separators = version == 2 ? ";" : " ";
    size_t length = strlen(name);
    for (const char *at = answer; at && *at; at = strpbrk(at, separators)) {
        at += strspn(at, separators);
        if (strncmp(at, name, length) != 0 || at[length] != '=')
            continue;
        at += length + 1;
        size_t bytes = strcspn(at, separators);
        if (bytes >= room)
            return false;
        memcpy(value, at, bytes);
        value[bytes] = '\0';
        return true;
    }
    return false;
}

static bool has_done(const char *answer)
{
    char code[16];
    return find_value(answer, "rc", code, sizeof(code)) && strcmp(code, "0") == 0;
}

// An equals sign would end the name of a word, and in version 2 a semicolon its value.
static void swap(char *text, const char *from, const char *to)
{
    for (; *text; text++) {
        const char *found = strchr(from, *text);
        *text = found ? to[found - from] : *text;
    }
}

static const char *reserved(void)
{
    return version == 2 ? "=;" : "=";
}

static const char *substitutes(void)
{
    return version == 2 ? "^|" : "^";
}

// In version 1 a process asks for the name of its job's records first.
static bool enter(const char *greeted)
{
    char number[16], answer[FR_WORLD_PMI_BYTES];
    version = 0; // a greeting is a line of words between blanks
    if (!has_done(greeted) || !find_value(greeted, "pmi_version", number, sizeof(number)))
        return false;
    version = atoi(number);
    if (version == 2)
        return true;
    return version == 1 && ask("cmd=get_my_kvsname", answer) &&
           find_value(answer, "kvsname", space, sizeof(space));
}

bool fr_world_pmi_put(int file, const char *greeted, const char *record)
{
    char question[FR_WORLD_PMI_BYTES], answer[FR_WORLD_PMI_BYTES], text[FR_WORLD_RECORD_BYTES];
    const char *rank = fr_core_job_value("PMI_RANK");
    manager = file;
    if (!rank || !enter(greeted))
        return false;
    snprintf(text, sizeof(text), "%s", record);
    swap(text, reserved(), substitutes());
    if (version == 1)
        snprintf(question, sizeof(question), "cmd=put kvsname=%s key=fabrail-%s value=%s", space,
                 rank, text);
    else
        snprintf(question, sizeof(question), "cmd=kvs-put;key=fabrail-%s;value=%s;", rank, text);
    return ask(question, answer) && has_done(answer);
}

void fr_world_pmi_move(int file)
{
    manager = file;
}

static bool get_value(const char *key, char *value, size_t room)
{
    char question[FR_WORLD_PMI_BYTES], answer[FR_WORLD_PMI_BYTES];
    if (version == 1)
        snprintf(question, sizeof(question), "cmd=get kvsname=%s key=%s", space, key);
    else
        snprintf(question, sizeof(question), "cmd=kvs-get;jobid=;srcid=-1;key=%s;", key);
    return ask(question, answer) && has_done(answer) && find_value(answer, "value", value, room);
}

bool fr_world_pmi_get(int rank, char record[FR_WORLD_RECORD_BYTES])
{
    char key[32];
    snprintf(key, sizeof(key), "fabrail-%d", rank);
    if (!get_value(key, record, FR_WORLD_RECORD_BYTES))
        return false;
    swap(record, substitutes(), reserved());
    return true;
}

// One of the blocks of hosts in a row that have as many ranks each, "(vector,(0,2,4),(2,1,3))".
struct block {
    int first, hosts, ranks;
};

// Returns what follows, NULL at the end and where there is something else.
static const char *read_block(const char *at, struct block *block)
{
    int used = 0;
    if (sscanf(at, ",(%d,%d,%d)%n", &block->first, &block->hosts, &block->ranks, &used) != 3 ||
        used == 0 || block->hosts < 1 || block->ranks < 1 || block->hosts > INT_MAX / block->ranks)
        return NULL;
    return at + used;
}

// The number that the launcher gives the host of a rank; the blocks are gone through as often as
// there are ranks. -1 when it says otherwise.
static int host_number(const char *mapping, int rank)
{
    static const char head[] = "(vector";
    const char *blocks = mapping + sizeof(head) - 1;
    struct block block;
    int64_t left = rank, all = 0;
    if (strncmp(mapping, head, sizeof(head) - 1) != 0)
        return -1;
    for (const char *at = read_block(blocks, &block); at; at = read_block(at, &block))
        all += block.hosts * block.ranks;
    left = all ? left % all : 0;
    for (const char *at = read_block(blocks, &block); at; at = read_block(at, &block)) {
        if (left < block.hosts * block.ranks)
            return block.first + (int)left / block.ranks;
        left -= block.hosts * block.ranks;
    }
    return -1;
}

// The name is in the record of another process there, if any of the first has one.
bool fr_world_pmi_get_host(int rank, char host[FR_WORLD_HOST_BYTES])
{
    enum { TRIES = 16 };
    char mapping[FR_WORLD_RECORD_BYTES], record[FR_WORLD_RECORD_BYTES];
    if (!get_value("PMI_process_mapping", mapping, sizeof(mapping)))
        return false;
    int number = host_number(mapping, rank);
    if (number < 0)
        return false;
    for (int other = 0, tries = 0; other < fr_world_size(); other++) {
        if (other == rank || host_number(mapping, other) != number)
            continue;
        if (fr_world_pmi_get(other, record)) {
            snprintf(host, FR_WORLD_HOST_BYTES, "%s", record + fr_world_record_common(record) + 1);
            return true;
        }
        if (++tries == TRIES)
            break;
    }
    snprintf(host, FR_WORLD_HOST_BYTES, "number %d", number);
    return true;
}
