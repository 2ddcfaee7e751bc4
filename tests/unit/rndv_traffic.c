// SPDX-License-Identifier: BSD-3-Clause
// Random traffic of messages between three processes of two threads each, through the public header
// alone, on device memory: to each other and to themselves, received one by one and several at
// once, into device and host memory, probed before or not, cancelled, left early, some from memory
// that changes as soon as it may. Each message arrives once and whole, in its order.
//
// Sockets stand for MPI here: they carry the RTS, and plain messages of its size, in order.
#include "config.h"

#include "bytes_layout.h"
#include "fabrail/ipc/tuned.h"
#include "fabrail/rndv/progress.h"
#include "fabrail/rndv/receive.h"
#include "ipc_pair.h"
#include "rndv_host.h"

#include <pthread.h>
#include <sched.h>
#include <sys/un.h>

enum {
    THREADS = 2,
    TAGS = 3,
    COMMS = 2,
    MESSAGES = 400, // of each thread
    UNDER_WAY = 6,
    AT_ONCE = 5,
    STALE = 16,
    MOST_BYTES = 40000,
    GUARDS = 64,
    AREA_BYTES = MOST_BYTES + 2 * GUARDS,
    FEW = 200, // where each takes long
};

enum letter_kind { LETTER_RTS, LETTER_PLAIN, LETTER_LAST };

// A datagram of a socket: an RTS, and facts about the message that its receiver learns only
// afterwards.
struct letter {
    int32_t kind;
    int32_t from, tag;
    uint64_t comm, bytes, seed, length;
    unsigned char rts[FR_RNDV_RTS_BYTES];
};

struct sending {
    struct fr_rndv_send *send; // NULL: none
    struct fr_staging_view view;
    struct fr_staging_view_block block;
    struct driver_memory memory;
    uint64_t seed;
};

struct receiving {
    struct letter letter;
    struct fr_rndv_incoming incoming;
    struct fr_staging_view view;
    struct fr_staging_view_block block;
    struct driver_memory memory;
    size_t room;
};

struct traffic {
    pthread_t thread;
    int index;
    int socket;
    uint64_t state;
    unsigned sent, received, lasts, staged, got, plain, cancelled, early;
    bool closed[PROCESSES_MAX][TAGS][COMMS]; // a plain message has been sent there
    unsigned reopened;                       // those that a message has gone to since
    struct driver_memory sends, device, host;
    struct sending sendings[UNDER_WAY];
    struct receiving receivings[AT_ONCE];
    unsigned char stale[STALE][FR_RNDV_RTS_BYTES]; // of messages that have been received
    unsigned
        waiting; // of the receivings: letters taken, whose messages are to be received together
};

static CUcontext context;

static unsigned dice(struct traffic *traffic, unsigned sides)
{
    return (unsigned)(check_random(&traffic->state) % sides);
}

// ---- the sockets

static struct sockaddr_un address_of(int rank, int thread)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    uint64_t name;
    memcpy(&name, &job_secret, sizeof(name));
    snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "rndv-traffic-%016jx-%d-%d",
             (uintmax_t)name, rank, thread);
    return address;
}

static int open_socket(int thread)
{
    struct sockaddr_un address = address_of(process_rank, thread);
    int file = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    CHECK(file >= 0 && bind(file, (struct sockaddr *)&address, sizeof(address)) == 0, "%s",
          strerror(errno));
    return file;
}

static void serve(struct traffic *traffic);

// The receiver may be in here as well, so that it is served meanwhile.
static void post(struct traffic *traffic, int to, const struct letter *letter)
{
    struct sockaddr_un address = address_of(to, traffic->index);
    while (sendto(traffic->socket, letter, sizeof(*letter), MSG_DONTWAIT,
                  (struct sockaddr *)&address, sizeof(address)) != (ssize_t)sizeof(*letter)) {
        CHECK(errno == EAGAIN || errno == EINTR, "%s", strerror(errno));
        if (check_failures != 0)
            return;
        serve(traffic);
        sched_yield();
    }
}

// ---- the receiving side

// Memory of the device or of the host, with room for the message, and a view of it.
static void make_room(struct traffic *traffic, struct receiving *receiving, unsigned slot)
{
    const struct driver_memory *all = dice(traffic, 4) == 0 ? &traffic->host : &traffic->device;
    bool shorter = dice(traffic, 8) == 0;
    size_t bytes = (size_t)receiving->letter.bytes;
    receiving->room = shorter ? bytes - dice(traffic, (unsigned)bytes) : bytes;
    receiving->memory = *all;
    receiving->memory.address += (size_t)slot * AREA_BYTES;
    unsigned char blank[AREA_BYTES];
    memset(blank, 0x5a, sizeof(blank));
    driver_write(&receiving->memory, blank, sizeof(blank));
    receiving->block = (struct fr_staging_view_block){
        .count = receiving->room, .layout = &bytes_layout, .out = true};
    receiving->view =
        (struct fr_staging_view){.base = (uintptr_t)receiving->memory.address + GUARDS,
                                 .blocks = &receiving->block,
                                 .block_count = 1};
    fr_staging_view_measure(&receiving->view);
    CHECK(receiving->view.out_bytes == receiving->room);
}

static void check_received(const struct receiving *receiving)
{
    unsigned char data[AREA_BYTES];
    size_t bytes = receiving->room;
    driver_read(data, &receiving->memory, sizeof(data));
    size_t at = check_first_difference(data + GUARDS, bytes, receiving->letter.seed);
    CHECK(at == bytes, "byte %zu of %zu from %d", at, bytes, receiving->letter.from);
    for (size_t i = 0; i < GUARDS; i++)
        CHECK(data[i] == 0x5a && data[GUARDS + bytes + i] == 0x5a, "guard %zu", i);
}

static void receive_waiting(struct traffic *traffic)
{
    struct fr_rndv_recv recvs[AT_ONCE];
    for (unsigned i = 0; i < traffic->waiting; i++) {
        struct receiving *receiving = &traffic->receivings[i];
        make_room(traffic, receiving, i);
        recvs[i] =
            (struct fr_rndv_recv){.view = &receiving->view, .incoming = &receiving->incoming};
    }
    unsigned count = traffic->waiting;
    fr_rndv_receive(recvs, count);
    for (unsigned i = 0; i < count; i++) {
        const unsigned scheme = recvs[i].incoming->location.scheme;
        CHECK(recvs[i].status == FR_OK, "scheme %u from %d: %s", scheme,
              traffic->receivings[i].letter.from, fr_core_status_text(recvs[i].status));
        check_received(&traffic->receivings[i]);
        memcpy(traffic->stale[(traffic->received + i) % STALE], traffic->receivings[i].letter.rts,
               sizeof(traffic->stale[0]));
        traffic->staged += scheme == FR_SCHEME_STAGED_GET;
        traffic->got += scheme == FR_SCHEME_GET;
    }
    traffic->received += count;
    traffic->waiting = 0;
}

// MPI has matched the next message: an RTS of the size that a probe says, or a plain message.
static void take_letter(struct traffic *traffic, const struct letter *letter)
{
    const struct fr_rndv_address from = {letter->from, letter->tag, letter->comm};
    struct receiving *receiving = &traffic->receivings[traffic->waiting];
    uint64_t bytes = 0;
    bool is_rts = letter->kind == LETTER_RTS, probes = dice(traffic, 2) == 0;
    size_t length = letter->length;
    CHECK(!fr_rndv_incoming_read(traffic->stale[dice(traffic, STALE)], &receiving->incoming),
          "an RTS of the past");
    if (letter->kind == LETTER_LAST) {
        traffic->lasts++;
        return;
    }
    CHECK(!is_rts || fr_rndv_incoming_may_wait(&from, length), "a probe would miss an RTS");
    if (probes || !is_rts)
        CHECK(fr_rndv_incoming_peek(&from, length, false, &bytes) == is_rts &&
                  bytes == (is_rts ? letter->bytes : 0),
              "%ju bytes of %ju from %d", (uintmax_t)bytes, (uintmax_t)letter->bytes, letter->from);
    CHECK(fr_rndv_incoming_read(letter->rts, &receiving->incoming) == is_rts, "kind %d",
          letter->kind);
    if (!is_rts || check_failures != 0)
        return;
    CHECK(fr_rndv_incoming_any() && fr_rndv_incoming_any_here());
    CHECK(receiving->incoming.bytes == letter->bytes && receiving->incoming.from == letter->from);
    if (probes) // as MPI_Mprobe does
        CHECK(fr_rndv_incoming_peek(&from, length, true, &bytes) && bytes == letter->bytes);
    else
        fr_rndv_incoming_take(&receiving->incoming);
    receiving->letter = *letter;
    traffic->waiting++;
}

// Takes what has come, and receives it now or together with what comes next.
static void serve(struct traffic *traffic)
{
    struct letter letter;
    while (recv(traffic->socket, &letter, sizeof(letter), MSG_DONTWAIT) == sizeof(letter)) {
        take_letter(traffic, &letter);
        if (traffic->waiting == AT_ONCE || check_failures != 0)
            break;
    }
    if (traffic->waiting == AT_ONCE || (traffic->waiting > 0 && dice(traffic, 3) == 0))
        receive_waiting(traffic);
    const struct fr_device_range range = {.caps = FR_DEVICE_OWNED, .device = 0};
    fr_rndv_progress(&range);
}

// ---- the sending side

// The application may change its buffer.
static void end_sending(struct traffic *traffic, struct sending *sending, bool cancelled)
{
    unsigned char other[AREA_BYTES];
    memset(other, (int)dice(traffic, 256), sizeof(other));
    if (cancelled)
        traffic->cancelled++;
    else
        driver_write(&sending->memory, other, sizeof(other));
    fr_rndv_send_free(sending->send, cancelled);
    sending->send = NULL;
}

// Starts one. False when it does not go by rendezvous, as until its receiver has mapped something.
static bool start_sending(struct traffic *traffic, struct sending *sending,
                          const struct fr_rndv_address *address)
{
    struct fr_policy_scheme_choice choice;
    size_t bytes = FR_RNDV_RTS_BYTES + 1;
    bytes += dice(traffic, dice(traffic, 4) == 0 ? MOST_BYTES - FR_RNDV_RTS_BYTES : 500);
    unsigned char *data = malloc(bytes);
    sending->seed = check_random(&traffic->state);
    check_fill(data, bytes, sending->seed);
    driver_write(&sending->memory, data, bytes);
    free(data);
    sending->block =
        (struct fr_staging_view_block){.count = bytes, .layout = &bytes_layout, .in = true};
    sending->view = (struct fr_staging_view){
        .base = (uintptr_t)sending->memory.address, .blocks = &sending->block, .block_count = 1};
    fr_staging_view_measure(&sending->view);
    const struct fr_rndv_message message = {.call = "MPI_Isend",
                                            .address = *address,
                                            .view = &sending->view,
                                            .must_leave = dice(traffic, 4) == 0};
    CHECK(fr_rndv_send_is_possible(&message));
    CHECK(fr_rndv_send_start(&message, &sending->send, &choice) == FR_OK && choice.reason != NULL);
    CHECK((sending->send != NULL) == (choice.scheme != FR_SCHEME_NONE), "%s", choice.reason);
    return sending->send != NULL;
}

static void send_plain(struct traffic *traffic, const struct fr_rndv_address *address,
                       struct letter *letter)
{
    letter->kind = LETTER_PLAIN;
    memset(letter->rts, (int)dice(traffic, 256), sizeof(letter->rts));
    letter->length = FR_RNDV_RTS_PRIME * 16 * (1 + dice(traffic, 4));
    fr_rndv_mark_plain(address, letter->length, true);
    post(traffic, address->to, letter);
    traffic->plain++;
}

// Cancelled, left at once, or left to its receiver.
static void send_rts(struct traffic *traffic, struct sending *sending, struct letter *letter,
                     const struct fr_rndv_address *address)
{
    bool cancelled = dice(traffic, 16) == 0;
    size_t length = 0;
    (void)fr_rndv_send_rts(sending->send, &length);
    letter->length = length;
    letter->bytes = sending->view.in_bytes;
    letter->seed = sending->seed;
    memcpy(letter->rts, rts_of(sending->send), sizeof(letter->rts));
    if (!cancelled)
        post(traffic, address->to, letter);
    fr_rndv_send_sent(sending->send, dice(traffic, 2) == 0 || !cancelled);
    if (dice(traffic, 8) == 0)
        usleep(300); // the RTS is there before the bytes
    CHECK(fr_rndv_send_push(sending->send) == FR_OK && !fr_rndv_send_is_lost(sending->send));
    bool left = !cancelled && dice(traffic, 8) == 0 && fr_rndv_send_leave(sending->send);
    traffic->early += left;
    if (cancelled || left)
        end_sending(traffic, sending, cancelled);
    traffic->sent += !cancelled;
}

static void send_one(struct traffic *traffic, struct sending *sending)
{
    const struct fr_rndv_address address = {.to = (int)dice(traffic, (unsigned)process_count),
                                            .tag = traffic->index * TAGS + (int)dice(traffic, TAGS),
                                            .comm = 1 + dice(traffic, COMMS)};
    struct letter letter = {
        .kind = LETTER_RTS, .from = process_rank, .tag = address.tag, .comm = address.comm};
    bool *closed = &traffic->closed[address.to][address.tag % TAGS][address.comm - 1];
    bool closes = address.tag % TAGS == 0 && dice(traffic, 8) == 0;
    if (closes) {
        *closed = true;
        send_plain(traffic, &address, &letter);
        return;
    }
    bool started = start_sending(traffic, sending, &address);
    traffic->reopened += started && *closed;
    *closed = *closed && !started;
    if (started)
        send_rts(traffic, sending, &letter, &address);
}

static bool poll_sendings(struct traffic *traffic)
{
    bool idle = true;
    for (unsigned i = 0; i < UNDER_WAY; i++) {
        struct sending *sending = &traffic->sendings[i];
        if (sending->send != NULL && host_send_is_over(sending->send))
            end_sending(traffic, sending, false);
        idle = idle && sending->send == NULL;
    }
    return idle;
}

static void *run_thread(void *cookie)
{
    struct traffic *traffic = cookie;
    const struct letter last = {.kind = LETTER_LAST};
    bool idle = false;
    const char *scope = getenv("FR_TEST_SCOPE");
    unsigned wanted = scope != NULL && strcmp(scope, "light") == 0 ? FEW : MESSAGES;
    CU(cuCtxSetCurrent(context));
    while (traffic->sent < wanted && check_failures == 0) {
        struct sending *sending = &traffic->sendings[dice(traffic, UNDER_WAY)];
        if (sending->send == NULL)
            send_one(traffic, sending);
        (void)poll_sendings(traffic);
        serve(traffic);
    }
    for (int to = 0; to < process_count; to++)
        post(traffic, to, &last);
    while ((!idle || traffic->lasts < (unsigned)process_count || traffic->waiting > 0) &&
           check_failures == 0) {
        serve(traffic);
        idle = poll_sendings(traffic);
        sched_yield();
    }
    return NULL;
}

// Memory that others map by a handle, and memory that they map by a descriptor.
static void make_traffic(struct traffic *traffic, int index)
{
    enum fr_device_kind kind = index == 0 ? FR_KIND_MALLOC : FR_KIND_VMM_FD;
    traffic->index = index;
    traffic->state = (uint64_t)(process_rank * THREADS + index);
    traffic->socket = open_socket(index);
    CHECK(driver_allocate(kind, 0, UNDER_WAY * AREA_BYTES, &traffic->sends));
    CHECK(driver_allocate(kind, 0, AT_ONCE * AREA_BYTES, &traffic->device));
    CHECK(driver_allocate(FR_KIND_HOST, 0, AT_ONCE * AREA_BYTES, &traffic->host));
    for (unsigned i = 0; i < UNDER_WAY; i++) {
        traffic->sendings[i].memory = traffic->sends;
        traffic->sendings[i].memory.address += (size_t)i * AREA_BYTES;
    }
}

static void end_traffic(struct traffic *traffic)
{
    printf("thread %d of process %d: %u sent, %u left early, %u cancelled, %u plain, %u "
           "messages after those; %u received, %u by get, %u by staged get\n",
           traffic->index, process_rank, traffic->sent, traffic->early, traffic->cancelled,
           traffic->plain, traffic->reopened, traffic->received, traffic->got, traffic->staged);
    CHECK(traffic->reopened > 0 || traffic->plain < 5);
    CHECK(traffic->got > 0 && traffic->staged > 0 && traffic->cancelled > 0 && traffic->early > 0);
    close(traffic->socket);
}

// With the names by which processes give each other descriptors.
static void open_all(void)
{
    (void)fr_ipc_self();
    job_introduce();
    const struct fr_job_control_job job = {.rank = process_rank,
                                           .size = process_count,
                                           .secret = job_secret,
                                           .processes = job_processes};
    CHECK(rndv_host_open(&job));
    process_meet();
}

static void run_traffic(void)
{
    static struct traffic traffic[THREADS];
    unsigned counts[2] = {0, 0}, all[2] = {0, 0};
    if (!driver_load() || !driver_start(&context))
        exit(CHECK_SKIP);
    open_all();
    for (int i = 0; i < THREADS; i++)
        make_traffic(&traffic[i], i);
    (void)fr_ipc_tuned(
        FR_SIZE_RAIL); // loads NVML, which ThreadSanitizer does not see another thread wait for
    process_meet();
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&traffic[i].thread, NULL, run_thread, &traffic[i]) == 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(traffic[i].thread, NULL);
        counts[0] += traffic[i].sent;
        counts[1] += traffic[i].received;
    }
    if (check_failures != 0)
        _exit(CHECK_FAIL); // nobody waits for it
    for (int rank = 1; rank < process_count && process_rank == 0; rank++) {
        process_hear(rank, all, sizeof(all));
        counts[0] += all[0];
        counts[1] += all[1];
    }
    if (process_rank != 0)
        process_say(0, counts, sizeof(counts));
    else
        CHECK(counts[0] == counts[1], "%u sent, %u received", counts[0], counts[1]);
    process_meet();
    CHECK(!fr_rndv_incoming_any() && !fr_rndv_incoming_any_here());
    for (int i = 0; i < THREADS; i++)
        end_traffic(&traffic[i]);
    host_close_all();
    pair_end();
}

// Starts a message that must leave, once its receiver has mapped the workspace.
static struct fr_rndv_send *start_leaving(const struct fr_staging_view *view)
{
    const struct fr_rndv_message message = {
        .call = "MPI_Ibsend", .address = {.to = 1}, .view = view, .must_leave = true};
    struct fr_policy_scheme_choice choice;
    struct fr_rndv_send *send = NULL;
    while (send == NULL && check_failures == 0) {
        CHECK(fr_rndv_send_start(&message, &send, &choice) == FR_OK);
        fr_rndv_progress(NULL);
        sched_yield();
    }
    if (send == NULL)
        exit(CHECK_FAIL);
    return send;
}

static void run_slow_sender(struct traffic *traffic)
{
    struct sending *sending = &traffic->sendings[0];
    struct letter letter = {.kind = LETTER_RTS, .bytes = MOST_BYTES, .seed = 9};
    pair_fill(&sending->memory, 0, MOST_BYTES, letter.seed);
    CU(cuCtxSynchronize());
    sending->block =
        (struct fr_staging_view_block){.count = MOST_BYTES, .layout = &bytes_layout, .in = true};
    sending->view = (struct fr_staging_view){
        .base = (uintptr_t)sending->memory.address, .blocks = &sending->block, .block_count = 1};
    fr_staging_view_measure(&sending->view);
    struct fr_rndv_send *send = start_leaving(&sending->view);
    size_t length = 0;
    memcpy(letter.rts, fr_rndv_send_rts(send, &length), sizeof(letter.rts));
    letter.length = length;
    post(traffic, 1, &letter);
    fr_rndv_send_sent(send, true);
    while (fr_rndv_ledger_state(send->index) != FR_RNDV_PULLING)
        sched_yield();
    usleep(50000);
    CHECK(fr_rndv_ledger_state(send->index) == FR_RNDV_PULLING, "it waits for the bytes");
    CHECK(fr_rndv_send_push(send) == FR_OK);
    while (!host_send_is_over(send))
        sched_yield();
    fr_rndv_send_free(send, false);
}

// A receiver that begins before the bytes are where it is to pull them from.
static void run_slow(void)
{
    static struct traffic traffic;
    if (!driver_load() || !driver_start(&context))
        exit(CHECK_SKIP);
    open_all();
    make_traffic(&traffic, 0);
    process_meet();
    if (process_rank == 0)
        run_slow_sender(&traffic);
    while (process_rank == 1 && traffic.received == 0 && check_failures == 0)
        serve(&traffic);
    process_meet();
    host_close_all();
    pair_end();
}

// Processes of a GPU without MPS take turns on it, for which real machines need no help. These
// messages are to stay on it all the same.
#define TURNS                                                                                      \
    {                                                                                              \
        "FRSIM_MPS=0", "FABRAIL_SHARED_GPU_MIN=0"                                                  \
    }

int main(int count, char **arguments)
{
    static const struct process_case cases[] = {
        {.name = "traffic", .count = 3, .run = run_traffic, .common = TURNS},
        {.name = "slow", .count = 2, .run = run_slow, .common = TURNS},
        {.name = NULL},
    };
    return process_main(cases, count, arguments);
}
