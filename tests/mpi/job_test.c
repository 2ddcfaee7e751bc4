// SPDX-License-Identifier: BSD-3-Clause
// Module job against the MPI of the process: which communicators and windows have multi-node
// NVLink. The right answer is computed here, from where the ranks were put. Started on four ranks.
//
//   job_test                   many layouts of hosts and cliques, told to the module directly
//   job_test HOSTS CLIQUES     one layout ("aabb", "11-1"), that the machine itself must show
//   job_test late              one rank comes to the exchange eleven seconds after the others
//   job_test spawn             processes outside of the world; started on two ranks
#include "config.h"

#include "fabrail/device.h"
#include "fabrail/job.h"

#include "../unit/check.h"

#include <mpi.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/utsname.h>
#include <unistd.h>

enum { RANKS = 4, ALL = (1 << RANKS) - 1 };

// A letter a rank. A clique is a digit, a capital letter for one of the same number (A is 0) in
// another cluster, '-' for none, or 'x' for one whose numbers look like clique 1 but do not count.
struct layout {
    const char *hosts;
    const char *cliques;
};
static const struct layout layouts[] = {
    {"aabb", "1111"}, {"abcd", "1122"}, {"abcd", "1212"}, {"aabb", "1212"},
    {"aaaa", "1111"}, {"abcd", "1111"}, {"aabb", "1-11"}, {"abcd", "111-"},
    {"aabb", "1x11"}, {"abcd", "xxxx"}, {"abab", "----"}, {"aabb", "11BB"},
    {"abab", "1BB1"}, {"abcd", "00A0"}, {"abcd", "1234"}, {"aaab", "2221"},
};

static struct layout now;
static int rank;
static char place[64]; // for messages

// A handle of any kind, an int or a pointer, as a word.
#define WORD(handle) fr_abi_handle((fr_word)(handle))

static bool counts(char clique)
{
    return clique != '-' && clique != 'x';
}

static struct fr_job_facts facts_at(int at)
{
    char clique = now.cliques[at];
    struct fr_job_facts facts = {.host = (uint64_t)now.hosts[at] << 40};
    if (clique == '-')
        return facts;
    bool other = clique >= 'A' && clique <= 'Z';
    facts.cluster[other ? 15 : 0] = 0xc1;
    facts.clique = (uint32_t)(other ? clique - 'A' : clique == 'x' ? 1 : clique - '0');
    facts.has_fabric = counts(clique);
    return facts;
}

// Returns whether `member` reaches one of the ranks in the set by multi-node NVLink.
static bool wanted(int member, int set)
{
    for (int other = 0; other < RANKS; other++)
        if ((set >> other & 1) && now.hosts[other] != now.hosts[member] &&
            counts(now.cliques[member]) && now.cliques[other] == now.cliques[member])
            return true;
    return false;
}

static void check_comm(MPI_Comm comm, int set, const char *what)
{
    for (int round = 0; round < 2; round++) { // found, then remembered
        bool found = fr_job_comm_has_fabric(WORD(comm));
        CHECK(found == wanted(rank, set), "rank %d in %s: %s of ranks 0x%x has%s", rank, place,
              what, (unsigned)set, found ? "" : " none");
    }
}

static void check_win(MPI_Win win, int set)
{
    for (int round = 0; round < 2; round++) {
        bool found = fr_job_win_has_fabric(WORD(win));
        CHECK(found == wanted(rank, set), "rank %d in %s: window of ranks 0x%x has%s", rank, place,
              (unsigned)set, found ? "" : " none");
    }
}

// Collective over the world. MPI_COMM_NULL for those outside.
static MPI_Comm make_comm(int set, bool reversed)
{
    MPI_Comm comm;
    MPI_Comm_split(MPI_COMM_WORLD, set >> rank & 1 ? 1 : MPI_UNDEFINED, reversed ? -rank : rank,
                   &comm);
    return comm;
}

// Communicators and windows of all sorts, each made once: under another layout, an answer that was
// remembered with one must be gone.
enum { MOST = 64 };
static struct sample {
    const char *what;
    int set; // of all ranks that can be reached in it
    MPI_Comm comm;
    MPI_Win win;
} samples[MOST];
static int sample_count;
static double exposed[2];

static void keep(const char *what, int set, MPI_Comm comm, MPI_Win win)
{
    CHECK(sample_count < MOST, "too many");
    if (sample_count < MOST && (comm != MPI_COMM_NULL || win != MPI_WIN_NULL))
        samples[sample_count++] = (struct sample){what, set, comm, win};
}

static void make_copies(MPI_Comm comm, int set)
{
    MPI_Comm copy, grid;
    const int periodic = 0;
    int size;
    MPI_Comm_size(comm, &size);
    MPI_Comm_dup(comm, &copy);
    keep("copy", set, copy, MPI_WIN_NULL);
    MPI_Cart_create(comm, 1, &size, &periodic, 0, &grid);
    keep("grid", set, grid, MPI_WIN_NULL);
}

static void make_window(MPI_Comm comm, int set)
{
    MPI_Win win;
    MPI_Win_create(exposed, sizeof(exposed), sizeof(double), MPI_INFO_NULL, comm, &win);
    keep("window", set, MPI_COMM_NULL, win);
}

static void make_subset(int set)
{
    MPI_Comm comm = make_comm(set, set % 3 == 0);
    if (comm == MPI_COMM_NULL)
        return;
    keep("communicator", set, comm, MPI_WIN_NULL);
    if (set == 0xe || set == 0x5 || set == ALL) {
        make_copies(comm, set);
        make_window(comm, set);
    }
}

// Inter-communicators between disjoint sets of ranks.
static void make_between(int first, int second)
{
    MPI_Comm low = make_comm(first, false), high = make_comm(second, true);
    MPI_Comm own = low != MPI_COMM_NULL ? low : high, between, merged;
    if (own == MPI_COMM_NULL)
        return;
    // The first process of the other group: the lowest rank, or the highest of the reversed one.
    int leader = own == low ? 31 - __builtin_clz((unsigned)second) : __builtin_ctz((unsigned)first);
    MPI_Intercomm_create(own, 0, MPI_COMM_WORLD, leader, 17, &between);
    keep("inter-communicator", first | second, between, MPI_WIN_NULL);
    MPI_Intercomm_merge(between, own == high, &merged);
    keep("merged", first | second, merged, MPI_WIN_NULL);
    keep("side", own == low ? first : second, own, MPI_WIN_NULL);
}

static void make_samples(void)
{
    for (int set = 1; set <= ALL; set++)
        make_subset(set);
    make_between(1 << 0, 1 << 1);
    make_between(1 << 0, 1 << 2);
    make_between(1 << 0 | 1 << 1, 1 << 3);
    make_between(1 << 1 | 1 << 3, 1 << 0 | 1 << 2);
}

static void check_samples(void)
{
    for (int i = 0; i < sample_count; i++) {
        if (samples[i].win != MPI_WIN_NULL)
            check_win(samples[i].win, samples[i].set);
        else
            check_comm(samples[i].comm, samples[i].set, samples[i].what);
    }
}

static void free_samples(void)
{
    for (int i = 0; i < sample_count; i++) {
        if (samples[i].win != MPI_WIN_NULL)
            MPI_Win_free(&samples[i].win);
        else
            MPI_Comm_free(&samples[i].comm);
    }
    sample_count = 0;
}

struct reuse {
    fr_word comm, win; // last handles
    int comms, wins;   // how many came back
};

static void use_once(int set, MPI_Comm comm, struct reuse *reuse)
{
    MPI_Comm copy;
    MPI_Win win;
    MPI_Win_create(exposed, sizeof(exposed), sizeof(double), MPI_INFO_NULL, comm, &win);
    reuse->comms += WORD(comm) == reuse->comm;
    reuse->wins += WORD(win) == reuse->win;
    reuse->comm = WORD(comm);
    reuse->win = WORD(win);
    check_comm(comm, set, "communicator");
    check_win(win, set);
    MPI_Comm_dup(comm, &copy);
    check_comm(copy, set, "copy");
    MPI_Win_free(&win);
    MPI_Comm_free(&copy);
    MPI_Comm_free(&comm);
}

// Each communicator and window is freed before the next one of other ranks is made, so that handles
// come back. A copy of one that was asked about must not have its answer. No set of one process,
// for which Open MPI 4.1 failed to make a window.
static void check_reuse(void)
{
    const int sets[] = {0x3, 0x5, 0x3, 0xd, 0x3, 0x9};
    struct reuse reuse = {0};
    for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++) {
        MPI_Comm comm = make_comm(sets[i], false);
        if (comm != MPI_COMM_NULL)
            use_once(sets[i], comm, &reuse);
    }
    if (rank == 0)
        printf("%d handles of communicators came back, %d of windows\n", reuse.comms, reuse.wins);
}

static void check_counts(void)
{
    int hosts = 0, cliques = 0;
    for (int i = 0; i < RANKS; i++) {
        bool first = true, first_in_clique = counts(now.cliques[i]), several = false;
        for (int j = 0; j < RANKS; j++) {
            bool same_clique = now.cliques[j] == now.cliques[i];
            first = first && (j >= i || now.hosts[j] != now.hosts[i]);
            first_in_clique = first_in_clique && (j >= i || !same_clique);
            several = several || (same_clique && now.hosts[j] != now.hosts[i]);
        }
        hosts += first;
        cliques += first_in_clique && several;
    }
    CHECK(fr_job_host_count() == hosts, "%s: %d hosts", place, fr_job_host_count());
    CHECK(fr_job_clique_count() == cliques, "%s: %d cliques", place, fr_job_clique_count());
}

static void check_unknown(void)
{
    const MPI_Comm world = MPI_COMM_WORLD;
    CHECK(!fr_job_comm_has_fabric(WORD(world)), "%s: before or after", place);
    CHECK(!fr_job_facts_of(0), "%s", place);
    CHECK(fr_job_host_count() == 0 && fr_job_clique_count() == 0, "%s", place);
}

static void check_plain(void)
{
    const MPI_Comm world = MPI_COMM_WORLD, self = MPI_COMM_SELF, null = MPI_COMM_NULL;
    const MPI_Win no_win = MPI_WIN_NULL;
    check_comm(world, ALL, "world");
    check_comm(self, 1 << rank, "self");
    CHECK(!fr_job_comm_has_fabric(WORD(null)) && !fr_job_win_has_fabric(WORD(no_win)),
          "null handles");
    CHECK(!fr_job_facts_of(-1) && !fr_job_facts_of(RANKS), "ranks that are none");
    check_counts();
}

static void check_layout(void)
{
    struct fr_job_facts own = facts_at(rank);
    check_unknown();
    fr_job_gather(&own);
    for (int i = 0; i < RANKS; i++) {
        struct fr_job_facts told = facts_at(i);
        const struct fr_job_facts *heard = fr_job_facts_of(i);
        CHECK(heard && memcmp(heard, &told, sizeof(told)) == 0, "%s: facts of rank %d", place, i);
    }
    check_plain();
    check_samples();
    if (now.hosts == layouts[0].hosts && now.cliques == layouts[0].cliques)
        check_reuse();
    fr_job_release();
    check_unknown();
}

enum { THREADS = 4, ROUNDS = 200 };
static struct {
    MPI_Comm comms[2];
    atomic_int wrong;
    pthread_barrier_t barrier;
} shared;

static void *ask_often(void *unused)
{
    pthread_barrier_wait(&shared.barrier);
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < 2; i++)
            shared.wrong += fr_job_comm_has_fabric(WORD(shared.comms[i])) != (i == 0);
    return unused;
}

// Threads that ask about the same two new communicators at once.
static void check_threads(void)
{
    pthread_t threads[THREADS];
    now = layouts[0];
    struct fr_job_facts own = facts_at(rank);
    fr_job_gather(&own);
    MPI_Comm_dup(MPI_COMM_WORLD, &shared.comms[0]);
    MPI_Comm_dup(MPI_COMM_SELF, &shared.comms[1]);
    pthread_barrier_init(&shared.barrier, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, ask_often, NULL) == 0, "no thread");
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&shared.barrier);
    CHECK(shared.wrong == 0, "%d wrong answers", shared.wrong);
    MPI_Comm_free(&shared.comms[0]);
    MPI_Comm_free(&shared.comms[1]);
    fr_job_release();
}

static void check_layouts(int provided)
{
    make_samples();
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
        now = layouts[i];
        snprintf(place, sizeof(place), "hosts %s cliques %s", now.hosts, now.cliques);
        check_layout();
    }
    free_samples();
    if (provided == MPI_THREAD_MULTIPLE)
        check_threads();
    else
        printf("threads left out: the MPI provides level %d\n", provided);
}

// The chain from the machine's host name and NVML to the answers.
static void check_machine(const char *hosts, const char *cliques)
{
    struct fr_device_clique clique;
    struct utsname system;
    char name[64] = "";
    now = (struct layout){hosts, cliques};
    snprintf(place, sizeof(place), "hosts %s cliques %s", hosts, cliques);
    gethostname(name, sizeof(name) - 1);
    uname(&system);
    CHECK(name[0] == hosts[rank] && name[1] == '\0', "rank %d is on host %s", rank, name);
    CHECK(strcmp(name, system.nodename) == 0, "uname says %s", system.nodename);
    fr_device_clique_of_host(&clique);
    CHECK(clique.valid == counts(cliques[rank]), "rank %d: valid %u", rank, clique.valid);
    CHECK(!clique.valid || clique.clique == (uint32_t)(cliques[rank] - '0'), "rank %d: clique %u",
          rank, clique.clique);
    struct fr_job_facts own = {
        .host = fr_job_host(),
        .clique = clique.clique,
        .has_fabric = clique.valid,
    };
    memcpy(own.cluster, clique.cluster, sizeof(own.cluster));
    fr_job_gather(&own);
    check_plain();
    for (int set = 1; set <= ALL; set += 2)
        make_subset(set);
    check_samples();
    free_samples();
    fr_job_release();
}

static void check_late(void)
{
    now = layouts[0];
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == RANKS - 1)
        sleep(11);
    struct fr_job_facts own = facts_at(rank);
    fr_job_gather(&own);
    check_plain();
    fr_job_release();
}

// Rank 0 of two starts another world of two. A process must not know processes outside of its own
// world: the parent sees strangers alone, a child sees the other child too.
static void check_spawned(const char *program, MPI_Comm parent)
{
    MPI_Comm between = parent, world = MPI_COMM_WORLD;
    bool is_child = parent != MPI_COMM_NULL;
    char argument[] = "spawn", *arguments[] = {argument, NULL};
    now = (struct layout){"ab", "11"};
    struct fr_job_facts own = facts_at(rank);
    fr_job_gather(&own);
    check_comm(world, 1 << 0 | 1 << 1, "world");
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    if (!is_child && rank == 0 &&
        MPI_Comm_spawn(program, arguments, 2, MPI_INFO_NULL, 0, MPI_COMM_SELF, &between,
                       MPI_ERRCODES_IGNORE) != MPI_SUCCESS) {
        printf("skipped: this MPI starts no processes\n");
        between = MPI_COMM_NULL;
    }
    for (int round = 0; round < 2 && between != MPI_COMM_NULL; round++)
        CHECK(fr_job_comm_has_fabric(WORD(between)) == is_child, "to another world, %d", is_child);
    if (between != MPI_COMM_NULL)
        MPI_Comm_disconnect(&between);
    fr_job_release();
}

int main(int argc, char **argv)
{
    int provided = 0;
    MPI_Comm parent;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    if (fr_abi_start() != FR_OK) {
        fprintf(stderr, "the MPI of this process was not recognised\n");
        return CHECK_FAIL;
    }
    fr_job_note();
    rank = fr_job_rank();
    MPI_Comm_get_parent(&parent);
    bool is_spawn = argc == 2 && strcmp(argv[1], "spawn") == 0;
    if (!is_spawn && fr_job_size() != RANKS) {
        fprintf(stderr, "%d ranks are needed\n", RANKS);
        return CHECK_FAIL;
    }
    if (is_spawn)
        check_spawned(argv[0], parent);
    else if (argc == 2)
        check_late();
    else if (argc == 3)
        check_machine(argv[1], argv[2]);
    else
        check_layouts(provided);
    MPI_Finalize();
    return check_result();
}
