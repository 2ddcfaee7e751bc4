// SPDX-License-Identifier: BSD-3-Clause
// The registry of Hydra, MPICH's launcher: records in its key-value space. Each process has a
// socket to a proxy of its launcher. There the MPI library and the proxy speak PMI: a question and
// its answer, in lines. The MPI library asks in MPI_Init alone, so Fabrail can ask before and
// after.
#include "config.h"

#include "job/census.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TIMEOUT_MS = 60000, LINE_BYTES = 2048 }; // no line is longer

// Written by the thread that is in MPI_Init.
static enum fr_job_record state;
static int proxy = -1;
static char space[256]; // name of the job's key-value space

// Returns whether the launcher is Intel's, a relative of Hydra that uses the same names.
static bool is_relative(void)
{
    char version[8192] = ""; // MPI_MAX_LIBRARY_VERSION_STRING of the family
    int length = 0;
    if (fr_abi_has(FR_FN_MPI_Get_library_version))
        FR_MPI(Get_library_version, FR_PTR(version), FR_PTR(&length));
    return strstr(version, "Intel(R) MPI") || fr_core_job_value("I_MPI_HYDRA_PMI_CONNECT");
}

// Returns whether the process at the other end of a socket is Hydra's. Other launchers speak
// another protocol on a socket of the same name, and may end a job that takes them for Hydra.
static bool is_hydra(int file)
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
    return known && strcmp(name, "hydra_pmi_proxy") == 0;
}

// Returns the socket that the launcher gave this process. Returns -1 where there is none, where the
// job has a single process, and where another program has the other end.
static int find_proxy(void)
{
    const char *text = fr_core_job_value("PMI_FD"), *size = fr_core_job_value("PMI_SIZE");
    if (!text || !fr_core_job_value("PMI_RANK") || (size && strcmp(size, "1") == 0))
        return -1;
    int file = atoi(text);
    return is_hydra(file) ? file : -1;
}

// Reads a line byte by byte, so that nothing is read that is for the MPI library.
static bool read_line(char line[LINE_BYTES])
{
    size_t used = 0;
    for (;;) {
        struct pollfd ready = {.fd = proxy, .events = POLLIN};
        int polled = poll(&ready, 1, TIMEOUT_MS);
        ssize_t got = polled > 0 ? recv(proxy, line + used, 1, 0) : polled;
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        if (line[used] == '\n')
            break;
        used += used < LINE_BYTES - 1;
    }
    line[used] = '\0';
    return true;
}

static bool write_line(const char *text)
{
    for (size_t length = strlen(text); length > 0;) {
        ssize_t sent = send(proxy, text, length, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return false;
        text += sent;
        length -= (size_t)sent;
    }
    return true;
}

static bool ask(const char *question, char answer[LINE_BYTES])
{
    return write_line(question) && read_line(answer);
}

// Finds the value of a word "name=value" in an answer, between blanks.
static bool find_value(const char *answer, const char *name, char *value, size_t room)
{
    size_t length = strlen(name);
    for (const char *at = answer; at && *at; at = strchr(at, ' ')) {
        at += strspn(at, " ");
        if (strncmp(at, name, length) != 0 || at[length] != '=')
            continue;
        at += length + 1;
        size_t bytes = strcspn(at, " ");
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

static void replace(char *text, char from, char to)
{
    for (; *text; text++)
        *text = *text == from ? to : *text;
}

// Greets the proxy, which must come first: at its first greeting it forgets what was put before.
static bool greet(void)
{
    char answer[LINE_BYTES], version[16];
    return ask("cmd=init pmi_version=1 pmi_subversion=1\n", answer) && has_done(answer) &&
           find_value(answer, "pmi_version", version, sizeof(version)) &&
           strcmp(version, "1") == 0 && ask("cmd=get_my_kvsname\n", answer) &&
           find_value(answer, "kvsname", space, sizeof(space));
}

// Leaves the record, without equals signs: one would end the name of a word.
static bool leave(const char *record)
{
    char question[LINE_BYTES], answer[LINE_BYTES], text[FR_JOB_RECORD_BYTES];
    snprintf(text, sizeof(text), "%s", record);
    replace(text, '=', '^');
    snprintf(question, sizeof(question), "cmd=put kvsname=%s key=fabrail-%s value=%s\n", space,
             fr_core_job_value("PMI_RANK"), text);
    return ask(question, answer) && has_done(answer);
}

static void put(const char *record)
{
    if (fr_abi_is_open_mpi() || is_relative())
        return;
    proxy = find_proxy();
    if (proxy >= 0)
        state = greet() && leave(record) ? FR_JOB_RECORD_LEFT : FR_JOB_RECORD_FAILED;
}

static enum fr_job_record has_put(void)
{
    return state;
}

static bool get_value(const char *key, char *value, size_t room)
{
    char question[LINE_BYTES], answer[LINE_BYTES];
    snprintf(question, sizeof(question), "cmd=get kvsname=%s key=%s\n", space, key);
    return ask(question, answer) && has_done(answer) && find_value(answer, "value", value, room);
}

static bool get(int rank, char record[FR_JOB_RECORD_BYTES])
{
    char key[32];
    snprintf(key, sizeof(key), "fabrail-%d", rank);
    if (!get_value(key, record, FR_JOB_RECORD_BYTES))
        return false;
    replace(record, '^', '=');
    return true;
}

// A block of consecutive hosts with equally many ranks each. The launcher writes several as
// "(vector,(0,2,4),(2,1,3))".
struct block {
    int first, hosts, ranks;
};

// Reads a block. Returns the text that follows it, NULL where there is no block.
static const char *read_block(const char *at, struct block *block)
{
    int used = 0;
    if (sscanf(at, ",(%d,%d,%d)%n", &block->first, &block->hosts, &block->ranks, &used) != 3 ||
        used == 0 || block->hosts < 1 || block->ranks < 1 || block->hosts > INT_MAX / block->ranks)
        return NULL;
    return at + used;
}

// Returns the number that the launcher gives the host of a rank, -1 if its mapping cannot be read.
// The blocks repeat until all ranks have a host.
static int host_number(const char *mapping, int rank)
{
    static const char head[] = "(vector";
    const char *blocks = mapping + sizeof(head) - 1;
    struct block block;
    int64_t rest = rank, all = 0;
    if (strncmp(mapping, head, sizeof(head) - 1) != 0)
        return -1;
    for (const char *at = read_block(blocks, &block); at; at = read_block(at, &block))
        all += block.hosts * block.ranks;
    rest = all ? rest % all : 0;
    for (const char *at = read_block(blocks, &block); at; at = read_block(at, &block)) {
        if (rest < block.hosts * block.ranks)
            return block.first + (int)rest / block.ranks;
        rest -= block.hosts * block.ranks;
    }
    return -1;
}

// Finds the name of a process's host in the record of another process there, if one of the first
// ranks there has left one. Otherwise writes the host's number.
static bool get_host(int rank, char host[FR_JOB_HOST_BYTES])
{
    enum { TRIES = 16 };
    char mapping[FR_JOB_RECORD_BYTES], record[FR_JOB_RECORD_BYTES];
    if (!get_value("PMI_process_mapping", mapping, sizeof(mapping)))
        return false;
    int number = host_number(mapping, rank);
    if (number < 0)
        return false;
    for (int other = 0, tries = 0; other < fr_job_size(); other++) {
        if (other == rank || host_number(mapping, other) != number)
            continue;
        if (get(other, record)) {
            snprintf(host, FR_JOB_HOST_BYTES, "%s", record + fr_job_record_common(record) + 1);
            return true;
        }
        if (++tries == TRIES)
            break;
    }
    snprintf(host, FR_JOB_HOST_BYTES, "number %d", number);
    return true;
}

static bool may_be_elsewhere(int rank)
{
    (void)rank;
    return false;
}

const struct fr_job_registry fr_job_hydra = {.name = "Hydra",
                                             .put = put,
                                             .has_put = has_put,
                                             .get = get,
                                             .get_host = get_host,
                                             .may_be_elsewhere = may_be_elsewhere};
