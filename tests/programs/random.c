// SPDX-License-Identifier: BSD-3-Clause
// The randomised program: collectives and point to point over random communicators, sizes,
// datatypes, memory kinds and threads, every byte checked, for as long as it is told. A failure
// names seed and round, and --seed=S --first-round=R --rounds=1 does that round alone, on the same
// communicators.
#include "random.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { THREADS_MAX = 16, AGREE_EVERY = 16, ROUNDS = 200 };
enum { MOST_BYTES = 70000, ATTACHED_BYTES = 32 << 20 };

// Two threads of Open MPI that make communicators at once wait for each other now and then. A
// window has one as well. Two threads of MPICH 5 that make or free windows at once break its table
// of windows, and the job crashes there or in MPI_Finalize, without Fabrail too.
#if defined(OPEN_MPI)
#define THREADS_MAKE_COMMUNICATORS false
#define THREADS_MAKE_WINDOWS       false
#elif !defined(MPICH_NUMVERSION) || MPICH_NUMVERSION >= 50000000
#define THREADS_MAKE_COMMUNICATORS true
#define THREADS_MAKE_WINDOWS       false
#else
#define THREADS_MAKE_COMMUNICATORS true
#define THREADS_MAKE_WINDOWS       true
#endif

static const char usage[] = "          [--seconds=N] [--rounds=N] [--first-round=N] [--threads=N] "
                            "[--break=ROUND]\n          [--windows=N] [--stuck=SECONDS] [--trace]\n"
                            "--bytes gives the largest size; --seconds goes on so long; --break "
                            "makes that round fail;\n--windows has one round in N on windows; "
                            "--trace says what each rank does; --stuck "
                            "ends a job without progress\n";

static struct mixture mixture = {.first_round = 1, .threads = 1, .stuck_seconds = 240};

// State that the watchdog looks at.
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stop;
    int count;
    struct walk *walks;
} watched = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void (*const rounds[])(struct walk *walk, const struct circle *circle) = {
    round_collective, round_messages, round_reduction,  round_shift,
    round_collective, round_messages, round_collective,
};

// A slot that holds a communicator; the first one when the one drawn is empty.
static struct circle *circle_draw(struct walk *walk)
{
    struct circle *circle = walk->circles[draw_below(&walk->common, CIRCLES)];
    return circle != NULL ? circle : walk->circles[0];
}

// Returns whether this round is on windows. It has a stream of its own, so that all others are as
// without.
static bool has_windows(const struct walk *walk, const struct circle *circle)
{
    uint64_t state = draw_hash(walk->common, walk->round, 3);
    return mixture.windows != 0 && circle->making != MADE_BETWEEN &&
           (walk->thread == 0 || THREADS_MAKE_WINDOWS) && draw_one_in(&state, mixture.windows);
}

static void walk_round(struct walk *walk)
{
    struct run *run = &walk->run;
    walk->common = draw_hash(run->seed, (uint64_t)walk->thread, walk->round);
    walk->own = draw_hash(walk->common, (uint64_t)run->rank, 7);
    walk->stage = 0;
    walk->text_bytes = 0;
    walk_say(walk, "seed %llu round %llu thread %d:", (unsigned long long)run->seed,
             (unsigned long long)walk->round, walk->thread);
    if (walk->thread == 0 || THREADS_MAKE_COMMUNICATORS)
        circles_change(walk);
    struct circle *circle = circle_draw(walk);
    int choice = draw_below(&walk->common, COUNT_OF(rounds));
    if (walk->round < mixture.first_round)
        return;
    if (circle->comm != MPI_COMM_NULL) {
        if (mixture.trace)
            fprintf(stderr, "random: rank %d begins round %llu\n", run->rank,
                    (unsigned long long)walk->round);
        walk_say(walk, " on %s as %d of %d", circle_name(circle), circle->rank, circle->size);
        (has_windows(walk, circle) ? round_windows : rounds[choice])(walk, circle);
    }
    if (mixture.trace)
        fprintf(stderr, "random: rank %d %s\n", run->rank, walk->text);
    run_check(run, memory_context_unchanged(), "the current context is not the program's any more");
}

// Returns whether to stop, by what rank 0 thinks of the time and everybody of the bytes.
static bool agree_to_stop(struct walk *walk, const struct timespec *begin)
{
    struct timespec now;
    int stop[2] = {0, walk->run.failures != 0};
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (walk->run.rank == 0 && mixture.rounds == 0)
        stop[0] = now.tv_sec - begin->tv_sec >= mixture.seconds;
    walk_say(walk, " agreeing to go on");
    MPI_Allreduce(MPI_IN_PLACE, stop, 2, MPI_INT, MPI_SUM, walk->run.comm);
    return stop[0] != 0 || stop[1] != 0;
}

static void *walk_all(void *argument)
{
    struct walk *walk = argument;
    struct timespec begin;
    uint64_t last = mixture.first_round + mixture.rounds - 1;
    bool stop = false;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    memory_thread_attach();
    for (walk->round = 1; !stop; walk->round++) {
        walk_round(walk);
        atomic_fetch_add(&walk->progress, 1);
        if (walk->round % AGREE_EVERY == 0)
            stop = agree_to_stop(walk, &begin);
        stop |= mixture.rounds != 0 && walk->round == last;
    }
    return NULL;
}

static void print_walks(int rank)
{
    for (int i = 0; i < watched.count; i++)
        fprintf(stderr, "random: rank %d is stuck after %lu rounds in: %s\n", rank,
                atomic_load(&watched.walks[i].progress), watched.walks[i].text);
    fflush(stderr);
}

static unsigned long all_progress(void)
{
    unsigned long sum = 0;
    for (int i = 0; i < watched.count; i++)
        sum += atomic_load(&watched.walks[i].progress);
    return sum;
}

// A job that makes no progress says where it is and dies, before whoever waits for it kills it.
static void *watch(void *argument)
{
    unsigned long seen = 0;
    struct timespec until;
    pthread_mutex_lock(&watched.lock);
    while (!watched.stop) {
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += mixture.stuck_seconds;
        if (pthread_cond_timedwait(&watched.changed, &watched.lock, &until) != ETIMEDOUT)
            continue;
        if (all_progress() == seen) {
            print_walks(*(int *)argument);
            abort();
        }
        seen = all_progress();
    }
    pthread_mutex_unlock(&watched.lock);
    return NULL;
}

static void thread_start(pthread_t *thread, void *(*body)(void *argument), void *argument)
{
    if (pthread_create(thread, NULL, body, argument) != 0)
        MPI_Abort(MPI_COMM_WORLD, 1);
}

static void watch_stop(pthread_t thread)
{
    pthread_mutex_lock(&watched.lock);
    watched.stop = true;
    pthread_cond_signal(&watched.changed);
    pthread_mutex_unlock(&watched.lock);
    pthread_join(thread, NULL);
}

static void walk_start(struct walk *walk, const struct run *run, int number)
{
    walk->run = *run;
    walk->run.checks = walk->run.failures = 0;
    walk->run.step = walk->text;
    walk->run.memory_name = "any";
    walk->mixture = &mixture;
    walk->thread = number;
    walk->tallies = table_new((size_t)mixture.kind_count, sizeof *walk->tallies);
    MPI_Comm_dup(run->comm, &walk->run.comm);
    circles_start(walk);
}

// A failure without a buffer, as of a status, is counted with the first kind.
static void walk_stop(struct walk *walk, struct tally *tallies)
{
    tallies[0].checks += walk->run.checks;
    tallies[0].failures += walk->run.failures;
    for (int i = 0; i < mixture.kind_count; i++) {
        tallies[i].checks += walk->tallies[i].checks;
        tallies[i].failures += walk->tallies[i].failures;
        tallies[0].checks -= walk->tallies[i].checks;
        tallies[0].failures -= walk->tallies[i].failures;
    }
    circles_stop(walk);
    walk_release_memory(walk);
    MPI_Comm_free(&walk->run.comm);
    free(walk->tallies);
}

// One thread walks on the main thread, so that it works under any thread level.
static void walk_together(struct run *run)
{
    pthread_t threads[THREADS_MAX], watchdog;
    thread_start(&watchdog, watch, &run->rank);
    for (int i = 1; i < mixture.threads; i++)
        thread_start(&threads[i], walk_all, &watched.walks[i]);
    walk_all(&watched.walks[0]);
    for (int i = 1; i < mixture.threads; i++)
        pthread_join(threads[i], NULL);
    watch_stop(watchdog);
}

static void mix(struct run *run, const enum memory_kind *kinds, int kind_count, size_t most_bytes,
                struct tally *tallies)
{
    void *attached = table_new(ATTACHED_BYTES, 1);
    int bytes = 0;
    mixture.kinds = kinds;
    mixture.kind_count = kind_count;
    mixture.most_bytes = most_bytes != 0 ? most_bytes : MOST_BYTES;
    watched.walks = table_new((size_t)mixture.threads, sizeof *watched.walks);
    watched.count = mixture.threads;
    MPI_Buffer_attach(attached, ATTACHED_BYTES);
    for (int i = 0; i < mixture.threads; i++)
        walk_start(&watched.walks[i], run, i);
    walk_together(run);
    for (int i = 0; i < mixture.threads; i++)
        walk_stop(&watched.walks[i], tallies);
    MPI_Buffer_detach(&attached, &bytes);
    free(attached);
    free(watched.walks);
}

// Reads "--name=N". Returns whether the argument is that option and the number is good.
static bool option_read(const char *argument, const char *name, uint64_t *number)
{
    char *end = NULL;
    size_t length = strlen(name);
    if (strncmp(argument, name, length) != 0 || argument[length] != '=')
        return false;
    *number = strtoull(argument + length + 1, &end, 0);
    return end != argument + length + 1 && *end == '\0';
}

static bool option_known(const char *argument)
{
    uint64_t number = 0;
    if (option_read(argument, "--seconds", &number))
        mixture.seconds = (int)number;
    else if (option_read(argument, "--rounds", &number))
        mixture.rounds = number;
    else if (option_read(argument, "--first-round", &number) && number > 0)
        mixture.first_round = number;
    else if (option_read(argument, "--break", &number))
        mixture.break_round = number;
    else if (option_read(argument, "--threads", &number) && number > 0 && number <= THREADS_MAX)
        mixture.threads = (int)number;
    else if (option_read(argument, "--stuck", &number) && number > 0)
        mixture.stuck_seconds = (int)number;
    else if (option_read(argument, "--windows", &number))
        mixture.windows = (int)number;
    else if (strcmp(argument, "--trace") == 0)
        mixture.trace = true;
    else
        return false;
    return true;
}

int main(int argc, char **argv)
{
    struct program program = {.name = "random", .mix = mix, .usage = usage};
    int left = 1;
    for (int i = 1; i < argc; i++)
        if (!option_known(argv[i]))
            argv[left++] = argv[i];
    argv[left] = NULL;
    if (mixture.rounds == 0 && mixture.seconds == 0)
        mixture.rounds = ROUNDS;
    // The watchdog is a thread, too, but never calls MPI.
    program.thread_level = mixture.threads > 1 ? MPI_THREAD_MULTIPLE : MPI_THREAD_FUNNELED;
    return program_main(left, argv, &program);
}
