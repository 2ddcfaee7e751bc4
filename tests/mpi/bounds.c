// SPDX-License-Identifier: BSD-3-Clause
// Memory that Fabrail takes for messages that wait. Each case measures what the process grows by,
// and how often host memory is page-locked. The bounds on both are FABRAIL_STAGING_MAX and
// FABRAIL_WORKSPACE_MAX, which the launch sets.
#include "../programs/memory.h"
#include "../sim/calls.h"
#include "../sim/pins.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

// MPIs give MPI_STATUSES_IGNORE a small address, which gcc takes for an array that is too short.
#pragma GCC diagnostic ignored "-Wstringop-overflow"

enum { TAG = 5, TOKEN_TAG = 6, WARM = 12 };

static int rank, size;
static int count, bytes, allowed_mib; // of messages, of each, and what a rank may grow by

static void must(bool right, const char *text, long long found, long long wanted)
{
    if (right)
        return;
    fprintf(stderr, "rank %d: %s: %lld, wanted %lld\n", rank, text, found, wanted);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static long long resident_kib(void)
{
    char line[256];
    long long kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof(line), file)) {
        if (sscanf(line, "VmRSS: %lld", &kib) == 1)
            break;
    }
    if (file)
        fclose(file);
    return kib;
}

static struct frsim_pins pins(void)
{
    static frsim_pins_fn *ask;
    void *driver = ask ? NULL : dlopen("libcuda.so.1", RTLD_NOW);
    if (driver)
        *(void **)&ask = dlsym(driver, "frsim_pins");
    must(ask != NULL, "the simulated driver tells of pins", 0, 1);
    return ask();
}

static long long before_kib;

static void measure(void)
{
    long long grown_mib = (resident_kib() - before_kib) / 1024;
    must(grown_mib <= allowed_mib, "MiB more than before", grown_mib, allowed_mib);
}

static void write_pattern(const struct memory *memory, int seed)
{
    unsigned char *host = malloc((size_t)bytes);
    memset(host, seed * 7 + 1, (size_t)bytes);
    memory_write(memory, 0, host, (size_t)bytes);
    free(host);
}

static void check_pattern(const struct memory *memory, int seed)
{
    unsigned char *host = malloc((size_t)bytes);
    int wrong = 0;
    memory_read(memory, 0, host, (size_t)bytes);
    for (int i = 0; i < bytes - 1; i++) // what lies in pieces has a byte less
        wrong += host[i] != (unsigned char)(seed * 7 + 1);
    must(wrong == 0, "wrong bytes", wrong, 0);
    free(host);
}

// Rank 0 sends as often as it takes rank 1 to map the memory.
static struct memory make_mapped(void)
{
    struct memory memory = memory_new(MEMORY_DEVICE, (size_t)bytes);
    for (int i = 0; i < WARM; i++) {
        if (rank == 0)
            MPI_Send(memory.address, bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
        else if (rank == 1)
            MPI_Recv(memory.address, bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    before_kib = resident_kib();
    return memory;
}

// Windows of receives into device memory, as bandwidth tests have them: what has been page-locked
// stays, so that nothing is in a steady state. That comes late on a busy machine: a region or two
// of small blocks may give way to large ones even then.
static void run_windows(void)
{
    enum { WINDOWS = 30, STEADY = 15, MOST_UNPINS = 2 };
    struct memory memory = make_mapped(), answer = memory_new(MEMORY_DEVICE, 64);
    MPI_Request *requests = malloc((size_t)count * sizeof(*requests));
    unsigned long unpins = 0;
    for (int window = 0; window < WINDOWS; window++) {
        if (window == STEADY)
            unpins = pins().unpins;
        if (rank == 0)
            write_pattern(&memory, window);
        for (int i = 0; i < count; i++) {
            if (rank == 0)
                MPI_Isend(memory.address, bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &requests[i]);
            else
                MPI_Irecv(memory.address, bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &requests[i]);
        }
        MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
        if (rank == 1) {
            check_pattern(&memory, window);
            MPI_Send(answer.address, 4, MPI_BYTE, 0, TOKEN_TAG, MPI_COMM_WORLD);
        } else
            MPI_Recv(answer.address, 4, MPI_BYTE, 1, TOKEN_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    unpins = pins().unpins - unpins;
    must(unpins <= MOST_UNPINS, "calls that give up what is page-locked", (long long)unpins,
         MOST_UNPINS);
    measure();
    free(requests);
}

// Returns how often a function of the driver has been called.
static unsigned long calls_of(const char *name)
{
    static frsim_calls_fn *ask;
    void *driver = ask ? NULL : dlopen("libcuda.so.1", RTLD_NOW);
    if (driver)
        *(void **)&ask = dlsym(driver, "frsim_calls");
    must(ask != NULL, "the simulated driver tells of calls", 0, 1);
    return ask(name);
}

static bool has_launched(void)
{
    return calls_of("cuLaunchKernel") + calls_of("cuGraphLaunch") > 0;
}

// Returns how often the driver has been told to move bytes, or to wait for that.
static unsigned long moves(void)
{
    return calls_of("cuLaunchKernel") + calls_of("cuGraphLaunch") +
           calls_of("cuStreamSynchronize") + calls_of("cuMemcpy") + calls_of("cuMemcpyDtoH_v2");
}

static int in_order(const void *one, const void *other)
{
    unsigned long a = *(const unsigned long *)one, b = *(const unsigned long *)other;
    return (a > b) - (a < b);
}

// Windows of messages, each into an allocation of its own. However many there are, the receiver
// calls the driver a few times: for those in the sender's buffer and those that have left it. Copy
// engines, where there are no kernels, take a wait for each of up to 16 streams whenever something
// has arrived, which is at most one for each message. A rank that loses its processor amid a window
// finds what has arrived in more parts, so that the median counts.
static void run_calls(void)
{
    enum { WINDOWS = 10, FEW_CALLS = 32 };
    unsigned long used[WINDOWS];
    struct memory sent = make_mapped();
    struct memory *received = malloc((size_t)count * sizeof(*received));
    MPI_Request *requests = malloc((size_t)count * sizeof(*requests));
    for (int i = 0; i < count; i++)
        received[i] = memory_new(MEMORY_DEVICE, (size_t)bytes);
    for (int window = 0; window < WINDOWS; window++) {
        if (rank == 0)
            write_pattern(&sent, window);
        MPI_Barrier(MPI_COMM_WORLD);
        unsigned long before = moves();
        for (int i = 0; i < count; i++) {
            if (rank == 0)
                MPI_Isend(sent.address, bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &requests[i]);
            else
                MPI_Irecv(received[i].address, bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD,
                          &requests[i]);
        }
        MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
        used[window] = moves() - before;
        for (int i = 0; rank == 1 && i < count; i++)
            check_pattern(&received[i], window);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    // In the first window the memory is new, and is waited for.
    qsort(used + 1, WINDOWS - 1, sizeof(*used), in_order);
    unsigned long median = used[WINDOWS / 2];
    unsigned long most = has_launched() ? FEW_CALLS : (unsigned long)count;
    must(rank == 0 || median <= most, "calls of a window", (long long)median, (long long)most);
    for (int i = 0; i < count; i++)
        memory_free(&received[i]);
    free(received);
    free(requests);
}

// Has each pull of this rank take so many microseconds longer.
static void slow_down(unsigned delay_us)
{
    static frsim_delay_fn *delay;
    void *driver = delay ? NULL : dlopen("libcuda.so.1", RTLD_NOW);
    if (driver)
        *(void **)&delay = dlsym(driver, "frsim_delay");
    must(delay != NULL, "the simulated driver is late when told", 0, 1);
    delay("cuStreamSynchronize", delay_us);
    delay("cuGraphLaunch", delay_us);
}

// Windows of messages that are received one by one, which takes long, while their sender waits for
// the last one first. They leave their buffer only while their receiver is not pulling, which a
// rank without a processor seems to be between two calls. So not all do.
static void run_patient(void)
{
    enum { WINDOWS = 5, PULL_US = 5000 };
    long long left = 0;
    struct memory memory = make_mapped();
    MPI_Request *requests = malloc((size_t)count * sizeof(*requests));
    for (int window = 0; window < WINDOWS; window++) {
        if (rank == 0)
            write_pattern(&memory, window);
        else
            slow_down(PULL_US);
        MPI_Barrier(MPI_COMM_WORLD);
        unsigned long before = moves();
        for (int i = 0; rank == 0 && i < count; i++)
            MPI_Isend(memory.address, bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &requests[i]);
        for (int i = count; i-- > 0;) {
            if (rank == 0)
                MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
            else
                MPI_Recv(memory.address, bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
        }
        left += rank == 0 ? (long long)(moves() - before) : 0;
        slow_down(0);
        if (rank == 1)
            check_pattern(&memory, window);
    }
    must(left < WINDOWS * count / 2, "sends that left", left, 0);
    free(requests);
}

// The receiver's next step after it was in no call while many messages waited.
enum after_sleep { TAKES, TRUNCATES, DIES };

static void take_all(const struct memory *memory, enum after_sleep after)
{
    int room = after == TRUNCATES ? bytes / 2 : bytes, cut = 0;
    sleep(count < 1000 ? 6 : 2);
    if (after == DIES)
        raise(SIGKILL);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int i = 0; i < count; i++)
        cut += MPI_Recv(memory->address, room, MPI_BYTE, 0, TAG, MPI_COMM_WORLD,
                        MPI_STATUS_IGNORE) != MPI_SUCCESS;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    must(cut == (after == TRUNCATES ? count : 0), "messages cut off", cut, 0);
    if (after == TAKES)
        check_pattern(memory, 1);
}

// Tests whether sends are complete. While their receiver takes nothing, at most one of them leaves
// its buffer in a call: a program that tests is not held up by all of them.
static bool test_sends(MPI_Request *requests, bool sleeps)
{
    enum { MOST_MOVES = 8 }; // of one copy
    int done = 0;
    unsigned long before = moves();
    MPI_Testall(count, requests, &done, MPI_STATUSES_IGNORE);
    long long more = (long long)(moves() - before);
    must(!sleeps || more <= MOST_MOVES, "calls that copy, in a test", more, MOST_MOVES);
    return done;
}

// Many sends of `sent` elements wait.
static void run_waiting(const struct memory *memory, int sent, MPI_Datatype type,
                        enum after_sleep after)
{
    MPI_Request *requests = malloc((size_t)count * sizeof(*requests));
    write_pattern(memory, 1 + rank);
    before_kib = resident_kib();
    for (int i = 0; rank == 0 && i < count; i++)
        MPI_Isend(memory->address, sent, type, 1, TAG, MPI_COMM_WORLD, &requests[i]);
    if (rank == 0) {
        double begun = MPI_Wtime();
        while (!test_sends(requests, MPI_Wtime() - begun < 1))
            measure();
        measure();
    } else {
        take_all(memory, after);
        measure();
    }
    free(requests);
}

static void run_sleeps(void)
{
    struct memory memory = make_mapped();
    run_waiting(&memory, bytes, MPI_BYTE, TAKES);
}

static void run_truncates(void)
{
    struct memory memory = make_mapped();
    run_waiting(&memory, bytes, MPI_BYTE, TRUNCATES);
}

static void run_dies(void)
{
    struct memory memory = make_mapped();
    run_waiting(&memory, bytes, MPI_BYTE, DIES);
}

// Messages that lie in two pieces, which their receiver cannot fetch out of the buffer.
static void run_pieces(void)
{
    struct memory memory = make_mapped();
    int half = bytes / 2;
    MPI_Datatype type;
    MPI_Type_indexed(2, (int[]){half - 1, half}, (int[]){0, half}, MPI_BYTE, &type);
    MPI_Type_commit(&type);
    run_waiting(&memory, 1, type, TAKES);
    MPI_Type_free(&type);
}

// Memory that no other process can map.
static void run_pool(void)
{
    struct memory memory = memory_new(MEMORY_POOL, (size_t)bytes);
    run_waiting(&memory, bytes, MPI_BYTE, TAKES);
    memory_free(&memory);
}

// A sender that waits for what its receiver sends once it has everything: the last message first,
// which has found no room.
enum {
    ASKED_RECV,
    ASKED_IPROBE,
    ASKED_WAIT,
    ASKED_SENDRECV,
    ASKED_HALF,
    ASKED_MPROBE,
    ASKED_IN_MPI, // from here on in calls in which MPI itself waits for the receiver
    ASKED_BARRIER = ASKED_IN_MPI,
    ASKED_ALLREDUCE,
    ASKED_DUP,
    ASKED_REPLACE,
    ASKED_WIN,
    ASKED_WIN_MAKE,
    ASKED_FILE,
    ASKED_WAYS
};

// Does on both ranks what does not end before the receiver has come.
static void meet(int way)
{
    MPI_Comm comm;
    MPI_Win win;
    MPI_File file;
    int value = 1, sum = 0, *shared = NULL;
    switch (way) {
    case ASKED_ALLREDUCE:
        MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        must(sum == size, "the sum", sum, size);
        return;
    case ASKED_DUP:
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        MPI_Comm_disconnect(&comm);
        return;
    case ASKED_REPLACE:
        MPI_Sendrecv_replace(&value, 1, MPI_INT, 1 - rank, TOKEN_TAG, 1 - rank, TOKEN_TAG,
                             MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        return;
    case ASKED_WIN:
        MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &shared, &win);
        MPI_Win_fence(0, win);
        MPI_Win_free(&win);
        return;
    case ASKED_WIN_MAKE:
        MPI_Win_create(&value, sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
        MPI_Win_free(&win);
        return;
    case ASKED_FILE:
        MPI_File_open(MPI_COMM_WORLD, "/dev/null", MPI_MODE_RDWR, MPI_INFO_NULL, &file);
        MPI_File_close(&file);
        return;
    default:
        MPI_Barrier(MPI_COMM_WORLD);
        return;
    }
}

enum { HALF_INTS = 1 << 20 };
static int plain[HALF_INTS]; // by rendezvous of MPI's own

static void wait_until_asked(int way)
{
    MPI_Request request;
    int token = 0, flag = way != ASKED_IPROBE, more = way;

    while (!flag)
        MPI_Iprobe(1, TOKEN_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    if (way >= ASKED_IN_MPI)
        return;
    if (way == ASKED_SENDRECV) {
        MPI_Sendrecv(&more, 1, MPI_INT, 1, TAG, &token, 1, MPI_INT, 1, TOKEN_TAG, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
    } else if (way == ASKED_HALF) { // as the last rank of a chain has it
        MPI_Sendrecv(plain, HALF_INTS, MPI_INT, 1, TAG, NULL, 0, MPI_INT, MPI_PROC_NULL, TOKEN_TAG,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Recv(&token, 1, MPI_INT, 1, TOKEN_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (way == ASKED_MPROBE) {
        MPI_Message message;
        MPI_Mprobe(1, TOKEN_TAG, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
        MPI_Mrecv(&token, 1, MPI_INT, &message, MPI_STATUS_IGNORE);
    } else if (way == ASKED_WAIT) {
        MPI_Irecv(&token, 1, MPI_INT, 1, TOKEN_TAG, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(&token, 1, MPI_INT, 1, TOKEN_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    must(token == 1, "the token", token, 1);
}

static void run_asked(void)
{
    enum { FIRST_TAG = 100 };
    struct memory memory = make_mapped();
    MPI_Request *requests = malloc((size_t)count * sizeof(*requests));
    MPI_Datatype type;
    MPI_Type_indexed(2, (int[]){bytes / 2 - 1, bytes / 2}, (int[]){0, bytes / 2}, MPI_BYTE, &type);
    MPI_Type_commit(&type);
    for (int way = 0; way < ASKED_WAYS; way++) {
        int token = 1;
        write_pattern(&memory, way + 10 * rank);
        for (int i = 0; rank == 0 && i < count; i++)
            MPI_Isend(memory.address, 1, type, 1, FIRST_TAG + i, MPI_COMM_WORLD, &requests[i]);
        for (int i = count; rank == 1 && i-- > 0;)
            MPI_Recv(memory.address, bytes, MPI_BYTE, 0, FIRST_TAG + i, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        if (rank == 0) {
            wait_until_asked(way);
            if (way < ASKED_IN_MPI)
                measure();
        } else {
            check_pattern(&memory, way);
        }
        if (rank == 1 && way == ASKED_HALF)
            MPI_Recv(plain, HALF_INTS, MPI_INT, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank == 1 && way < ASKED_IN_MPI)
            MPI_Send(&token, 1, MPI_INT, 0, TOKEN_TAG, MPI_COMM_WORLD);
        if (rank == 1 && way == ASKED_SENDRECV)
            MPI_Recv(&token, 1, MPI_INT, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        meet(way);
        if (rank == 0)
            MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Type_free(&type);
    free(requests);
}

// Marks that a rank makes while the other one is in no call of MPI.
static char marks[64];

static void choose_marks(void)
{
    if (rank == 1)
        snprintf(marks, sizeof(marks), "/tmp/fabrail-bounds-%ld", (long)getpid());
    MPI_Bcast(marks, sizeof(marks), MPI_CHAR, 1, MPI_COMM_WORLD);
}

static const char *mark_of(int maker)
{
    static char name[sizeof(marks) + 16];
    snprintf(name, sizeof(name), "%s.%d", marks, maker);
    return name;
}

static void make_mark(void)
{
    FILE *file = fopen(mark_of(rank), "w");
    must(file != NULL, "the mark is made", 0, 1);
    fclose(file);
}

static void await_mark(void)
{
    while (access(mark_of(1 - rank), F_OK) != 0)
        usleep(1000);
    unlink(mark_of(1 - rank));
}

// The receiver makes more requests while messages wait for the first ones, and is outside of MPI
// from then on until its sender is done. Half the time it has given the first request up. The
// sender's buffer is its own at once, and gets other bytes.
static void run_passes(void)
{
    enum { WINDOWS = 10 };
    unsigned long passing = 0;
    struct memory out = make_mapped(),
                  in = memory_new(MEMORY_DEVICE, (size_t)bytes * (size_t)count);
    MPI_Request *requests = malloc((size_t)count * sizeof(*requests));
    choose_marks();
    for (int window = 0; window < WINDOWS; window++) {
        if (rank == 0)
            write_pattern(&out, window);
        for (int i = 0; rank == 1 && i < count / 2; i++)
            MPI_Irecv(in.address + (size_t)i * (size_t)bytes, bytes, MPI_BYTE, 0, TAG,
                      MPI_COMM_WORLD, &requests[i]);
        MPI_Barrier(MPI_COMM_WORLD);
        for (int i = 0; rank == 0 && i < count; i++)
            MPI_Isend(out.address, bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &requests[i]);
        if (rank == 0) {
            make_mark();
            await_mark();
            MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
            write_pattern(&out, WINDOWS);
            make_mark();
        } else {
            int found;
            await_mark();
            unsigned long before = moves();
            for (int i = count / 2; i < count; i++)
                MPI_Irecv(in.address + (size_t)i * (size_t)bytes, bytes, MPI_BYTE, 0, TAG,
                          MPI_COMM_WORLD, &requests[i]);
            passing += moves() - before;
            if (window % 2 == 0)
                MPI_Request_free(&requests[0]);
            MPI_Iprobe(MPI_ANY_SOURCE, TOKEN_TAG, MPI_COMM_SELF, &found, MPI_STATUS_IGNORE);
            make_mark();
            await_mark();
            MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        for (int i = 0; rank == 1 && i < count; i++) {
            struct memory part = in;
            part.address += (size_t)i * (size_t)bytes;
            check_pattern(&part, window);
        }
    }
    must(rank == 0 || passing > 0 || !has_launched(), "pulls that begin in passing",
         (long long)passing, 1);
    measure();
    free(requests);
}

// Calls of the receiver that need nothing of a sender that is outside of MPI, though its message
// waits in its buffer. The last is the sender's.
enum {
    LOCAL_TEST,
    LOCAL_TESTALL,
    LOCAL_TESTANY,
    LOCAL_TESTSOME,
    LOCAL_GET_STATUS,
    LOCAL_WAITANY,
    LOCAL_WAITSOME,
    LOCAL_WAIT_OTHER,
    LOCAL_FREE,
    LOCAL_WAYS
};

// Does it on a request that cannot complete yet, and on another one that can.
static void call_locally(int way, MPI_Request *requests)
{
    enum { TRIES = 100 };
    MPI_Request *last = &requests[count - 1];
    int index = MPI_UNDEFINED, done = 0, out[2];
    for (int i = 0; i < TRIES && way < LOCAL_WAITANY; i++) {
        int flag = 0;
        if (way == LOCAL_TEST)
            MPI_Test(last, &flag, MPI_STATUS_IGNORE);
        else if (way == LOCAL_TESTALL)
            MPI_Testall(count, requests, &flag, MPI_STATUSES_IGNORE);
        else if (way == LOCAL_TESTANY)
            MPI_Testany(1, last, &index, &flag, MPI_STATUS_IGNORE);
        else if (way == LOCAL_TESTSOME)
            MPI_Testsome(1, last, &flag, out, MPI_STATUSES_IGNORE);
        else
            MPI_Request_get_status(*last, &flag, MPI_STATUS_IGNORE);
        done += flag != 0;
    }
    must(done == 0, "a message that its sender has not given is there", done, 0);
    if (way != LOCAL_WAITANY && way != LOCAL_WAITSOME && way != LOCAL_WAIT_OTHER)
        return;
    MPI_Request two[2] = {*last}, own;
    int given = 7, got = 0;
    MPI_Irecv(&got, 1, MPI_INT, rank, TOKEN_TAG, MPI_COMM_WORLD, &two[1]);
    MPI_Isend(&given, 1, MPI_INT, rank, TOKEN_TAG, MPI_COMM_WORLD, &own);
    if (way == LOCAL_WAITANY)
        MPI_Waitany(2, two, &index, MPI_STATUS_IGNORE);
    else if (way == LOCAL_WAITSOME)
        MPI_Waitsome(2, two, &index, out, MPI_STATUSES_IGNORE);
    else
        MPI_Wait(&two[1], MPI_STATUS_IGNORE);
    must(got == given, "what was sent to this process", got, given);
    MPI_Wait(&own, MPI_STATUS_IGNORE);
}

// Receives with persistent requests if it is `standing`. Messages in device memory all come to one
// place, where they do not meet: MPI is given other memory.
static void begin_receives(bool standing, const struct memory *in, MPI_Request *requests)
{
    enum { FIRST_TAG = 100 };
    for (int i = 0; i < count; i++) {
        char *to = (char *)in->address + (in->kind == MEMORY_HOST ? (size_t)i * (size_t)bytes : 0);
        if (standing)
            MPI_Recv_init(to, bytes, MPI_BYTE, 0, FIRST_TAG + i, MPI_COMM_WORLD, &requests[i]);
        else
            MPI_Irecv(to, bytes, MPI_BYTE, 0, FIRST_TAG + i, MPI_COMM_WORLD, &requests[i]);
    }
    if (standing)
        MPI_Startall(count, requests);
}

static void run_one_local(int way, bool standing, const struct memory *out, const struct memory *in,
                          MPI_Datatype type, MPI_Request *requests)
{
    enum { FIRST_TAG = 100 };
    if (rank == 1)
        begin_receives(standing, in, requests);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1) // out of the barrier, so that it receives none of the messages meanwhile
        make_mark();
    else
        await_mark();
    for (int i = 0; rank == 0 && i < count; i++)
        MPI_Isend(out->address, 1, type, 1, FIRST_TAG + i, MPI_COMM_WORLD, &requests[i]);
    for (int i = 0; rank == 0 && i < count && way == LOCAL_FREE; i++)
        MPI_Request_free(&requests[i]);
    if (rank == 0)
        make_mark();
    await_mark();
    if (rank == 1) {
        if (way != LOCAL_FREE)
            call_locally(way, requests);
        make_mark();
    }
    MPI_Waitall(count, requests, MPI_STATUSES_IGNORE); // of null requests, if they were freed
    for (int i = 0; rank == 1 && i < count && standing; i++)
        MPI_Request_free(&requests[i]);
}

static void run_all_local(bool standing, enum memory_kind kind)
{
    struct memory memory = make_mapped();
    size_t places = kind == MEMORY_HOST ? (size_t)count : 1;
    struct memory into = memory_new(kind, places * (size_t)bytes);
    MPI_Request *requests = malloc((size_t)count * sizeof(*requests));
    MPI_Datatype type;
    MPI_Type_indexed(2, (int[]){bytes / 2 - 1, bytes / 2}, (int[]){0, bytes / 2}, MPI_BYTE, &type);
    MPI_Type_commit(&type);
    choose_marks();
    for (int way = 0; way < LOCAL_WAYS; way++) {
        write_pattern(&memory, way);
        MPI_Barrier(MPI_COMM_WORLD);
        run_one_local(way, standing, &memory, &into, type, requests);
        if (rank == 1)
            check_pattern(&into, way);
        if (way < LOCAL_FREE)
            measure();
    }
    memory_free(&into);
    MPI_Type_free(&type);
    free(requests);
}

static void run_local(void)
{
    run_all_local(false, MEMORY_DEVICE);
}

static void run_standing(void)
{
    run_all_local(true, MEMORY_DEVICE);
}

static void run_standing_host(void)
{
    run_all_local(true, MEMORY_HOST);
}

// Lets the process have so little more address space that no message finds any, or as much as
// before.
static void starve(bool starves)
{
    static struct rlimit before;
    long long kib = 0;
    char line[256];
    FILE *file = fopen("/proc/self/status", "r");
    while (starves && file && fgets(line, sizeof(line), file) &&
           sscanf(line, "VmSize: %lld", &kib) != 1)
        continue;
    if (file)
        fclose(file);
    if (starves)
        getrlimit(RLIMIT_AS, &before);
    struct rlimit limit = before;
    if (starves)
        limit.rlim_cur = (rlim_t)kib * 1024 + (rlim_t)bytes / 2;
    must(setrlimit(RLIMIT_AS, &limit) == 0, "a limit is set", 0, 1);
}

// A message that must leave its buffer, and there is no memory for it. Both sides hear of that.
static void run_starved(void)
{
    struct memory memory = make_mapped();
    MPI_Datatype type;
    MPI_Request request;
    MPI_Type_indexed(2, (int[]){bytes / 2 - 1, bytes / 2}, (int[]){0, bytes / 2}, MPI_BYTE, &type);
    MPI_Type_commit(&type);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (rank == 0)
        MPI_Isend(memory.address, 1, type, 1, TAG, MPI_COMM_WORLD, &request);
    if (rank == 0)
        starve(true);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        starve(false);
    int rc = rank == 0 ? MPI_Wait(&request, MPI_STATUS_IGNORE)
                       : MPI_Recv(memory.address, bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD,
                                  MPI_STATUS_IGNORE);
    must(rc != MPI_SUCCESS, "an error is told", 0, 1);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Type_free(&type);
    memory_free(&memory);
}

// How rank 1 waits for rank 2, which waits for rank 0, whose sends rank 1 has yet to fetch.
enum {
    BY_RECV,
    BY_PROBE,
    BY_WAIT,
    BY_WAITALL,
    BY_WAITANY,
    BY_WAITSOME,
    BY_SENDRECV,
    BY_SSEND,
    BY_DEVICE_SSEND,
    BY_DEVICE_SENDRECV,
    BY_BCAST,
    BY_BARRIER,
    WAYS
};

enum { LETTER_BYTES = 65536 };
static struct memory letter; // on the device, by rendezvous

static void wait_for_token(int way, int *token, MPI_Request *requests)
{
    MPI_Request *last = &requests[count];
    int index, out[1];
    switch (way) {
    case BY_PROBE:
        MPI_Probe(2, TOKEN_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE); // fall through
    case BY_RECV:
        MPI_Recv(token, 1, MPI_INT, 2, TOKEN_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        return;
    case BY_SENDRECV:
        MPI_Sendrecv(&index, 0, MPI_INT, 2, TOKEN_TAG, token, 1, MPI_INT, 2, TOKEN_TAG,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        return;
    case BY_SSEND:
        MPI_Ssend(token, 1, MPI_INT, 2, TOKEN_TAG, MPI_COMM_WORLD);
        *token = 1;
        return;
    case BY_DEVICE_SSEND:
        MPI_Ssend(letter.address, LETTER_BYTES, MPI_BYTE, 2, TOKEN_TAG, MPI_COMM_WORLD);
        *token = 1;
        return;
    case BY_DEVICE_SENDRECV:
        MPI_Sendrecv(letter.address, LETTER_BYTES, MPI_BYTE, 2, TOKEN_TAG, token, 1, MPI_INT, 2,
                     TOKEN_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        return;
    case BY_BCAST:
        MPI_Bcast(token, 1, MPI_INT, 2, MPI_COMM_WORLD);
        return;
    case BY_BARRIER:
        MPI_Barrier(MPI_COMM_WORLD);
        *token = 1;
        return;
    default:
        break;
    }
    MPI_Irecv(token, 1, MPI_INT, 2, TOKEN_TAG, MPI_COMM_WORLD, last);
    if (way == BY_WAIT)
        MPI_Wait(last, MPI_STATUS_IGNORE);
    else if (way == BY_WAITALL)
        MPI_Waitall(count + 1, requests, MPI_STATUSES_IGNORE);
    else if (way == BY_WAITANY)
        MPI_Waitany(1, last, &index, MPI_STATUS_IGNORE);
    else
        MPI_Waitsome(1, last, &index, out, MPI_STATUSES_IGNORE);
}

static void give_token(int way)
{
    int token = 1;
    MPI_Recv(&token, 1, MPI_INT, 0, TOKEN_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (way == BY_BCAST)
        MPI_Bcast(&token, 1, MPI_INT, 2, MPI_COMM_WORLD);
    else if (way == BY_BARRIER)
        MPI_Barrier(MPI_COMM_WORLD);
    else if (way == BY_SSEND)
        MPI_Recv(&token, 1, MPI_INT, 1, TOKEN_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else if (way == BY_DEVICE_SSEND)
        MPI_Recv(letter.address, LETTER_BYTES, MPI_BYTE, 1, TOKEN_TAG, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    else if (way == BY_DEVICE_SENDRECV)
        MPI_Sendrecv(&token, 1, MPI_INT, 1, TOKEN_TAG, letter.address, LETTER_BYTES, MPI_BYTE, 1,
                     TOKEN_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else if (way == BY_SENDRECV)
        MPI_Sendrecv(&token, 1, MPI_INT, 1, TOKEN_TAG, NULL, 0, MPI_INT, 1, TOKEN_TAG,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else
        MPI_Send(&token, 1, MPI_INT, 1, TOKEN_TAG, MPI_COMM_WORLD);
}

static void run_one_way(int way, const struct memory *memory, MPI_Request *requests)
{
    int token = 0;
    for (int i = 0; rank == 1 && i < count; i++)
        MPI_Irecv(memory->address, bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &requests[i]);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        write_pattern(memory, way);
        for (int i = 0; i < count; i++) {
            MPI_Send(memory->address, bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
            if (way < BY_BCAST)
                measure();
        }
        token = 1;
        MPI_Send(&token, 1, MPI_INT, 2, TOKEN_TAG, MPI_COMM_WORLD);
        if (way == BY_BCAST)
            MPI_Bcast(&token, 1, MPI_INT, 2, MPI_COMM_WORLD);
        else if (way == BY_BARRIER)
            MPI_Barrier(MPI_COMM_WORLD);
    } else if (rank == 2) {
        give_token(way);
    } else {
        wait_for_token(way, &token, requests);
        must(token == 1, "the token", token, 1);
        MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
        check_pattern(memory, way);
    }
}

static void run_blocked(void)
{
    struct memory memory = make_mapped();
    MPI_Request *requests = malloc((size_t)(count + 1) * sizeof(*requests));
    letter = memory_new(MEMORY_DEVICE, LETTER_BYTES);
    for (int way = 0; way < WAYS; way++) {
        MPI_Barrier(MPI_COMM_WORLD);
        run_one_way(way, &memory, requests);
    }
    free(requests);
}

// A receiver that only tests while sends to it have no room to leave to, and takes other messages
// meanwhile. Nothing but that may fetch them. Without a receive for them they leave after a second.
static void run_polls(bool posted)
{
    enum { SMALL_BYTES = 65536 };
    struct memory memory = make_mapped(), small = memory_new(MEMORY_DEVICE, SMALL_BYTES);
    MPI_Request *requests = malloc((size_t)count * sizeof(*requests)), other;
    unsigned char done = 0;
    for (int i = 0; rank == 1 && posted && i < count; i++)
        MPI_Irecv(memory.address, bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &requests[i]);
    for (int i = 0; rank == 0 && i < count; i++)
        MPI_Isend(memory.address, bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &requests[i]);
    while (!done) {
        int flag = 0;
        if (rank == 0) {
            MPI_Testall(count, requests, &flag, MPI_STATUSES_IGNORE);
            done = flag != 0;
            memory_write(&small, 0, &done, 1);
            MPI_Send(small.address, SMALL_BYTES, MPI_BYTE, 1, TOKEN_TAG, MPI_COMM_WORLD);
            continue;
        }
        MPI_Irecv(small.address, SMALL_BYTES, MPI_BYTE, 0, TOKEN_TAG, MPI_COMM_WORLD, &other);
        while (!flag)
            MPI_Test(&other, &flag, MPI_STATUS_IGNORE);
        memory_read(&small, 0, &done, 1);
    }
    for (int i = 0; rank == 1 && !posted && i < count; i++)
        MPI_Irecv(memory.address, bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &requests[i]);
    MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
    free(requests);
}

static void run_tests(void)
{
    run_polls(true);
    measure();
}

static void run_late(void)
{
    run_polls(false);
}

// Data themselves come into receives that expect an RTS.
static void run_data(void)
{
    enum { ROUNDS = 3 };
    struct memory memory = make_mapped();
    unsigned char *host = malloc((size_t)bytes);
    MPI_Request *requests = malloc((size_t)count * sizeof(*requests));
    struct memory *into = malloc((size_t)count * sizeof(*into));
    memset(host, 1, (size_t)bytes);
    for (int i = 0; i < count; i++)
        into[i] = memory_new(MEMORY_DEVICE, (size_t)bytes);
    for (int i = 0; i < count; i++) // the simulated device's memory is the process's
        write_pattern(&into[i], 0);
    before_kib = resident_kib();
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < count; i++) {
            if (rank == 0) {
                memset(host, i * 7 + 1, (size_t)bytes);
                MPI_Send(host, bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
            } else
                MPI_Irecv(into[i].address, bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &requests[i]);
        }
        if (rank == 1)
            MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
        for (int i = 0; rank == 1 && i < count; i++)
            check_pattern(&into[i], i);
    }
    measure();
    for (int i = 0; i < count; i++)
        memory_free(&into[i]);
    memory_free(&memory);
    free(into);
    free(requests);
    free(host);
}

// Messages to this process, whose requests are given up before anybody receives.
static void run_own(void)
{
    struct memory in = memory_new(MEMORY_DEVICE, (size_t)bytes);
    struct memory *out = malloc((size_t)count * sizeof(*out));
    for (int i = 0; i < count; i++) {
        out[i] = memory_new(MEMORY_DEVICE, (size_t)bytes);
        write_pattern(&out[i], i);
    }
    before_kib = resident_kib();
    for (int i = 0; i < count; i++) {
        MPI_Request request;
        MPI_Isend(out[i].address, bytes, MPI_BYTE, rank, TAG, MPI_COMM_WORLD, &request);
        MPI_Request_free(&request);
    }
    for (int i = 0; i < count; i++) {
        MPI_Recv(in.address, bytes, MPI_BYTE, rank, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        check_pattern(&in, i);
    }
    measure();
    for (int i = 0; i < count; i++)
        memory_free(&out[i]);
    memory_free(&in);
    free(out);
}

// Threads of a rank that is in a call of MPI's own while another thread begins to send or to
// receive, and then waits for it outside of MPI.
enum { APART_SENDS, APART_RECEIVES, APART_HOST_RECEIVES, APART_BARRIER, APART_WAYS };

enum { ENTRY_US = 50000 }; // that a thread takes to be in MPI

static pthread_barrier_t ready;
static MPI_Comm apart;

static void *stay_in_mpi(void *way)
{
    int token = 0;
    pthread_barrier_wait(&ready);
    if (*(int *)way == APART_BARRIER)
        MPI_Barrier(apart);
    else
        MPI_Recv(&token, 1, MPI_INT, 1 - rank, TOKEN_TAG, apart, MPI_STATUS_IGNORE);
    must(*(int *)way == APART_BARRIER || token == 1, "the token", token, 1);
    return NULL;
}

static bool receives_apart(int way)
{
    return way == APART_RECEIVES || way == APART_HOST_RECEIVES;
}

// Begins everything once the thread is in MPI, and then is in no call before that has come back.
static void begin_and_join(int *way, const struct memory *memory, MPI_Datatype type,
                           MPI_Request *requests)
{
    enum { FIRST_TAG = 100 };
    pthread_t thread;
    must(pthread_create(&thread, NULL, stay_in_mpi, way) == 0, "a thread starts", 0, 1);
    pthread_barrier_wait(&ready);
    usleep(ENTRY_US);
    for (int i = 0; i < count; i++) {
        size_t from = *way == APART_HOST_RECEIVES ? (size_t)i * (size_t)bytes : 0;
        if (receives_apart(*way))
            MPI_Irecv((char *)memory->address + from, bytes, MPI_BYTE, 1 - rank, FIRST_TAG + i,
                      MPI_COMM_WORLD, &requests[i]);
        else
            MPI_Isend(memory->address, 1, type, 1 - rank, FIRST_TAG + i, MPI_COMM_WORLD,
                      &requests[i]);
    }
    pthread_join(thread, NULL);
    measure();
    MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
}

// The other rank, which has one thread. It takes the last message first.
static void meet_apart(int way, const struct memory *memory, MPI_Datatype type)
{
    enum { FIRST_TAG = 100 };
    int token = 1;
    for (int i = count; i-- > 0;) {
        if (receives_apart(way))
            MPI_Send(memory->address, 1, type, 1 - rank, FIRST_TAG + i, MPI_COMM_WORLD);
        else
            MPI_Recv(memory->address, bytes, MPI_BYTE, 1 - rank, FIRST_TAG + i, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        measure();
    }
    if (way == APART_BARRIER)
        MPI_Barrier(apart);
    else
        MPI_Send(&token, 1, MPI_INT, 1 - rank, TOKEN_TAG, apart);
}

static void run_apart(void)
{
    struct memory device = make_mapped(), host = memory_new(MEMORY_HOST, (size_t)bytes * count);
    MPI_Request *requests = malloc((size_t)count * sizeof(*requests));
    MPI_Datatype type;
    MPI_Type_indexed(2, (int[]){bytes / 2 - 1, bytes / 2}, (int[]){0, bytes / 2}, MPI_BYTE, &type);
    MPI_Type_commit(&type);
    MPI_Comm_dup(MPI_COMM_WORLD, &apart);
    memset(host.address, 0, (size_t)bytes * count);
    before_kib = resident_kib();
    pthread_barrier_init(&ready, NULL, 2);
    for (int way = 0; way < APART_WAYS; way++) {
        int sender = receives_apart(way);
        const struct memory *memory =
            way == APART_HOST_RECEIVES && rank != sender ? &host : &device;
        write_pattern(memory, rank == sender ? way : 100);
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0)
            begin_and_join(&way, memory, type, requests);
        else
            meet_apart(way, memory, type);
        if (rank != sender)
            check_pattern(memory, way);
    }
    pthread_barrier_destroy(&ready);
    MPI_Comm_free(&apart);
    memory_free(&host);
    MPI_Type_free(&type);
    free(requests);
}

// Takes a message whose memory was mapped, until messages from a third rank needed the room. The
// driver fails to map it again, or the sender's workspace. So the sender is asked for another way.
static void refuse_apart(const struct memory *memory, const struct memory *other, bool blocks)
{
    const int failure = 2; // no memory
    frsim_fail_fn *fail = NULL;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    int token = 1;
    if (driver)
        *(void **)&fail = dlsym(driver, "frsim_fail");
    must(fail != NULL, "the simulated driver fails when told", 0, 1);
    MPI_Probe(0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < 2 * WARM; i++)
        MPI_Recv(other->address, bytes, MPI_BYTE, 2, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    fail(blocks ? "cuMemImportFromShareableHandle" : "cuIpcOpenMemHandle_v2", 1, failure);
    MPI_Recv(memory->address, bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send(&token, 1, MPI_INT, 0, TOKEN_TAG, apart);
    check_pattern(memory, 1);
}

// Sends, and then is in no call before the other thread has come back, which is in MPI. A send that
// blocks is over by then, though its message has not been taken.
static void send_apart(const struct memory *memory, bool blocks)
{
    int way = APART_SENDS;
    MPI_Request request = MPI_REQUEST_NULL;
    pthread_t thread;
    write_pattern(memory, 1);
    must(pthread_create(&thread, NULL, stay_in_mpi, &way) == 0, "a thread starts", 0, 1);
    pthread_barrier_wait(&ready);
    usleep(ENTRY_US);
    if (blocks)
        MPI_Send(memory->address, bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
    else
        MPI_Isend(memory->address, bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &request);
    pthread_join(thread, NULL);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void refuse(bool blocks)
{
    struct memory memory = make_mapped(), other = memory_new(MEMORY_DEVICE, (size_t)bytes);
    MPI_Comm_dup(MPI_COMM_WORLD, &apart);
    pthread_barrier_init(&ready, NULL, 2);
    if (rank == 0)
        send_apart(&memory, blocks);
    else if (rank == 1)
        refuse_apart(&memory, &other, blocks);
    for (int i = 0; rank == 2 && i < 2 * WARM; i++)
        MPI_Send(memory.address, bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
    pthread_barrier_destroy(&ready);
    MPI_Comm_free(&apart);
    memory_free(&other);
}

static void run_refused(void)
{
    refuse(false);
}

static void run_refused_later(void)
{
    refuse(true);
}

// Two threads of each rank send to the other one, and receive only then. Messages lie in pieces, so
// that they wait until some thread over there asks for them.
struct sender {
    pthread_t thread;
    struct memory in, out;
    MPI_Datatype type;
    int tag;
};

static void *send_and_receive(void *argument)
{
    const struct sender *own = argument;
    MPI_Request *requests = malloc((size_t)count * sizeof(*requests));
    for (int i = 0; i < count; i++)
        MPI_Irecv(own->in.address, bytes, MPI_BYTE, 1 - rank, own->tag, MPI_COMM_WORLD,
                  &requests[i]);
    pthread_barrier_wait(&ready);
    for (int i = 0; i < count; i++)
        MPI_Send(own->out.address, 1, own->type, 1 - rank, own->tag, MPI_COMM_WORLD);
    MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
    measure();
    free(requests);
    return NULL;
}

static void run_both(void)
{
    struct sender senders[2];
    pthread_barrier_init(&ready, NULL, 2);
    for (int i = 0; i < 2; i++) {
        struct sender *own = &senders[i];
        *own = (struct sender){.in = memory_new(MEMORY_DEVICE, (size_t)bytes),
                               .out = memory_new(MEMORY_DEVICE, (size_t)bytes),
                               .tag = 100 + i};
        write_pattern(&own->in, 100);
        write_pattern(&own->out, 2 * i + rank);
        MPI_Type_indexed(2, (int[]){bytes / 2 - 1, bytes / 2}, (int[]){0, bytes / 2}, MPI_BYTE,
                         &own->type);
        MPI_Type_commit(&own->type);
    }
    before_kib = resident_kib();
    for (int i = 0; i < 2; i++)
        must(pthread_create(&senders[i].thread, NULL, send_and_receive, &senders[i]) == 0,
             "a thread starts", i, 2);
    for (int i = 0; i < 2; i++) {
        pthread_join(senders[i].thread, NULL);
        check_pattern(&senders[i].in, 2 * i + 1 - rank);
        MPI_Type_free(&senders[i].type);
        memory_free(&senders[i].in);
        memory_free(&senders[i].out);
    }
    pthread_barrier_destroy(&ready);
}

enum { END_ALL, END_SOME, END_ANY, END_EACH, END_BACKWARDS, ENDS };

static void complete(int way, MPI_Request *requests)
{
    int *indices = malloc((size_t)count * sizeof(int)), done;
    if (way == END_ALL)
        MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < count && way != END_ALL; i += way == END_SOME ? done : 1) {
        if (way == END_SOME)
            MPI_Waitsome(count, requests, &done, indices, MPI_STATUSES_IGNORE);
        else if (way == END_ANY)
            MPI_Waitany(count, requests, indices, MPI_STATUS_IGNORE);
        else
            MPI_Wait(&requests[way == END_EACH ? i : count - 1 - i], MPI_STATUS_IGNORE);
    }
    free(indices);
}

// A number that both ranks see without MPI, which would receive meanwhile.
static _Atomic int *make_shared(void)
{
    char path[] = "/tmp/fabrail-bounds-XXXXXX";
    int file = rank == 0 ? mkstemp(path) : -1;
    must(rank != 0 || ftruncate(file, sizeof(int)) == 0, "a file for a number", 0, 1);
    MPI_Bcast(path, sizeof(path), MPI_CHAR, 0, MPI_COMM_WORLD);
    file = rank == 0 ? file : open(path, O_RDWR);
    void *shared = mmap(NULL, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    must(shared != MAP_FAILED, "a shared number", 0, 1);
    close(file);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        unlink(path);
    return shared;
}

// Sends or receives a window in one way, and returns the copies and launches that this took.
static unsigned long exchange_window(struct memory *memory, int way, int round, _Atomic int *sent)
{
    MPI_Request *requests = malloc((size_t)count * sizeof(MPI_Request));
    unsigned long before = 0;
    for (int i = 0; i < count; i++) {
        if (rank == 0) {
            write_pattern(&memory[i], round + i);
            MPI_Isend(memory[i].address, bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &requests[i]);
        } else {
            MPI_Irecv(memory[i].address, bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &requests[i]);
        }
    }
    if (rank == 0)
        *sent = round + 1;
    while (*sent <= round)
        usleep(100);
    before = moves();
    complete(way, requests);
    unsigned long used = moves() - before;
    for (int i = 0; i < count && rank == 1; i++)
        check_pattern(&memory[i], round + i);
    free(requests);
    return used;
}

// However a program completes its receives, what has come to all of them takes few launches. MPIs
// may hand on what has come in a few parts.
static void run_launches(void)
{
    struct memory *memory = malloc((size_t)count * sizeof(struct memory));
    _Atomic int *sent = make_shared();
    for (int i = 0; i < count; i++)
        memory[i] = memory_new(MEMORY_DEVICE, (size_t)bytes);
    for (int round = 0; round < ENDS * WARM; round++) {
        unsigned long used = exchange_window(memory, round % ENDS, round, sent);
        if (rank == 1 && round >= ENDS * (WARM - 1))
            must(used <= (unsigned long)count / 2, "copies and launches", (long long)used,
                 count / 2);
    }
    for (int i = 0; i < count; i++)
        memory_free(&memory[i]);
    free(memory);
}

// A message that a call has begun to fetch, though it waits for something else, is there when the
// call returns: the sender must not wait until the receiver comes to MPI again.
static void run_lands(void)
{
    _Atomic int *sent = make_shared();
    struct memory memory = make_mapped();
    for (int round = 0; round < count; round++) {
        MPI_Request request;
        int token = 0;
        if (rank == 0) {
            write_pattern(&memory, round);
            MPI_Isend(memory.address, bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &request);
            usleep(1000); // in which the receiver looks for it
            MPI_Send(&token, 1, MPI_INT, 1, TOKEN_TAG, MPI_COMM_WORLD);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            *sent = round + 1;
            continue;
        }
        MPI_Irecv(memory.address, bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &request);
        MPI_Recv(&token, 1, MPI_INT, 0, TOKEN_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        while (*sent <= round)
            usleep(100);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        check_pattern(&memory, round);
    }
    memory_free(&memory);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {{"windows", run_windows},
                 {"calls", run_calls},
                 {"sleeps", run_sleeps},
                 {"blocked", run_blocked},
                 {"tests", run_tests},
                 {"late", run_late},
                 {"data", run_data},
                 {"pieces", run_pieces},
                 {"pool", run_pool},
                 {"truncates", run_truncates},
                 {"dies", run_dies},
                 {"asked", run_asked},
                 {"own", run_own},
                 {"local", run_local},
                 {"starved", run_starved},
                 {"apart", run_apart},
                 {"both", run_both},
                 {"refused", run_refused},
                 {"refused-later", run_refused_later},
                 {"standing", run_standing},
                 {"standing-host", run_standing_host},
                 {"patient", run_patient},
                 {"launches", run_launches},
                 {"lands", run_lands},
                 {"passes", run_passes}};
    int level = getenv("BOUNDS_THREADS") ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, given;
    MPI_Init_thread(&argc, &argv, level, &given);
    must(given >= level, "the level of threads", given, level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    must(argc == 5, "arguments of CASE COUNT BYTES MIB", argc - 1, 4);
    count = atoi(argv[2]);
    bytes = atoi(argv[3]);
    allowed_mib = atoi(argv[4]);
    memory_start(rank);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (strcmp(cases[i].name, argv[1]) == 0)
            cases[i].run();
    }
    MPI_Barrier(MPI_COMM_WORLD);
    printf("rank %d: to the end\n", rank);
    MPI_Finalize();
    return 0;
}
