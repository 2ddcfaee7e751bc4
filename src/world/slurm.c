// SPDX-License-Identifier: BSD-3-Clause
// Records by the key-value space of Slurm's PMI (srun --mpi=pmi2), whoever asks there, the MPI
// library itself or libpmi2. Slurm takes one greeting of a process and never answers a second one,
// so the library's own has to do. While the library is in MPI_Init it therefore speaks with a
// thread of Fabrail's, which hands everything on and leaves the record behind the greeting.
#include "config.h"

#include "world/census.h"
#include "world/pmi.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

// Written by the thread that is in MPI_Init, while the relay's does not run.
static struct {
    int place;   // the descriptor that the library knows
    int library; // the other end of what stands in that place
    int manager; // Slurm's socket
    pid_t process;
    pthread_t thread;
    bool runs;
} relay;
static const char *own_record;
static enum fr_world_record state; // the relay's thread writes it, who has joined that reads it

// The greeting and its answer are lines in all versions.
static bool hand_on_greeting(const char *greeting, size_t length)
{
    char line[FR_WORLD_PMI_BYTES];
    if (!fr_world_pmi_write(relay.manager, greeting, length) ||
        !fr_world_pmi_read_line(relay.manager, line))
        return false;
    bool done = fr_world_pmi_put(relay.manager, line, own_record);
    state = done ? FR_WORLD_RECORD_LEFT : FR_WORLD_RECORD_FAILED;
    return fr_world_pmi_write(relay.library, line, strlen(line)) &&
           fr_world_pmi_write(relay.library, "\n", 1);
}

// What the library asks, once it has something to ask. Returns false when it is done.
static bool hand_on_question(bool is_first)
{
    static const char greeting[] = "cmd=init ";
    char bytes[FR_WORLD_PMI_BYTES];
    ssize_t got = recv(relay.library, bytes, sizeof(bytes), 0);
    if (got <= 0)
        return got < 0 && errno == EINTR;
    if (is_first && strncmp(bytes, greeting, sizeof(greeting) - 1) == 0)
        return hand_on_greeting(bytes, (size_t)got);
    return fr_world_pmi_write(relay.manager, bytes, (size_t)got);
}

static bool hand_on_answer(void)
{
    char bytes[FR_WORLD_PMI_BYTES];
    ssize_t got = recv(relay.manager, bytes, sizeof(bytes), 0);
    if (got <= 0)
        return got < 0 && errno == EINTR;
    return fr_world_pmi_write(relay.library, bytes, (size_t)got);
}

// Until the library's end is shut, or Slurm's has gone, which the library then sees too.
static void *run(void *nothing)
{
    struct pollfd ends[] = {{.fd = relay.library, .events = POLLIN},
                            {.fd = relay.manager, .events = POLLIN}};
    bool is_first = true, goes_on = true;
    while (goes_on && (poll(ends, FR_ARRAY_LENGTH(ends), -1) > 0 || errno == EINTR)) {
        if (ends[1].revents)
            goes_on = hand_on_answer();
        if (goes_on && ends[0].revents) {
            goes_on = hand_on_question(is_first);
            is_first = false;
        }
    }
    (void)shutdown(relay.library, SHUT_RDWR);
    return nothing;
}

// Signals are the application's own business.
static bool start_thread(void)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = pthread_create(&relay.thread, NULL, run, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

static void restore(void)
{
    (void)dup2(relay.manager, relay.place);
    fr_world_pmi_move(relay.place);
    close(relay.manager);
    close(relay.library);
}

static void put(const char *record)
{
    int ends[2], place = relay.runs ? -1 : fr_world_pmi_find("slurmstepd");
    if (place < 0)
        return;
    relay.place = place;
    relay.process = getpid();
    relay.manager = fcntl(place, F_DUPFD_CLOEXEC, 0);
    if (relay.manager < 0)
        return;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        close(relay.manager);
        return;
    }
    relay.library = ends[0];
    own_record = record;
    if (dup2(ends[1], place) == place)
        relay.runs = start_thread();
    close(ends[1]);
    if (!relay.runs)
        restore();
}

// The thread hands on what the library has left to be said, and ends; Slurm reads at all times.
static void stop(void)
{
    if (!relay.runs || relay.process != getpid())
        return;
    (void)shutdown(relay.place, SHUT_WR);
    pthread_join(relay.thread, NULL);
    relay.runs = false;
    restore();
}

// A library that gives up in MPI_Init tells Slurm to end the job, and may exit at once.
__attribute__((destructor)) static void at_exit(void)
{
    stop();
}

static enum fr_world_record has_put(void)
{
    stop();
    return state;
}

static bool may_be_elsewhere(int rank)
{
    (void)rank;
    return false;
}

const struct fr_world_registry fr_world_slurm = {.name = "Slurm",
                                                 .put = put,
                                                 .has_put = has_put,
                                                 .get = fr_world_pmi_get,
                                                 .get_host = fr_world_pmi_get_host,
                                                 .may_be_elsewhere = may_be_elsewhere};
