// SPDX-License-Identifier: BSD-3-Clause
// A host of processes that send each other messages by rendezvous, for unit tests: the test's own
// world in place of module job's, module job opened with the areas of module rndv, and entries of
// the ledger with contents that a receiver can check.
#ifndef FR_TESTS_UNIT_RNDV_HOST_H
#define FR_TESTS_UNIT_RNDV_HOST_H

#include "rndv/ledger.h"
#include "rndv/send.h"
#include "rndv_world.h"

static inline bool rndv_host_open(const struct fr_job_control_job *job);

#define JOB_OPEN rndv_host_open
#include "job_job.h"

#include <pthread.h>

enum { RTS_BYTES = FR_RNDV_RTS_BYTES };

static inline bool host_send_is_over(struct fr_rndv_send *send)
{
    unsigned copies = 1;
    return fr_rndv_send_poll(send, &copies);
}

// Rank and size are known as long as the job is open.
static const struct fr_job_facts host_facts[PROCESSES_MAX] = {
    [0 ... PROCESSES_MAX - 1] = {.takes_rts = 1},
};
struct fr_job_world fr_job_world = {.rank = -1, .size = -1, .facts = host_facts};

static inline bool rndv_host_open(const struct fr_job_control_job *job)
{
    struct fr_job_control_job with_areas = *job;
    with_areas.area_bytes = fr_rndv_area_bytes(false);
    with_areas.area_begin_bytes = fr_rndv_area_bytes(true);
    fr_job_world.rank = job->rank;
    fr_job_world.size = job->size;
    bool opened = fr_job_control_open(&with_areas);
    CHECK(fr_rndv_open() == FR_OK);
    return opened;
}

static inline void host_close(void)
{
    fr_job_control_close(fr_rndv_drain);
    fr_rndv_close();
}

static inline void host_close_all(void)
{
    process_meet();
    host_close();
    CHECK(fr_job_control_rank() == -1);
}

static inline struct fr_ipc_handle host_handle(uint64_t seed)
{
    struct fr_ipc_handle handle;
    check_fill(&handle, sizeof(handle), seed);
    return handle;
}

static inline struct fr_rndv_location host_location(uint64_t seed)
{
    return (struct fr_rndv_location){
        .address = seed, .scheme = FR_SCHEME_GET, .shift = 20, .handle = host_handle(seed)};
}

// The first bytes of what MPI would be given.
static inline const unsigned char *rts_of(const struct fr_rndv_send *send)
{
    size_t length = 0;
    const unsigned char *rts = fr_rndv_send_rts(send, &length);
    CHECK(length >= RTS_BYTES && length <= send->bytes && length <= FR_RNDV_RTS_LONGEST);
    for (size_t i = RTS_BYTES; i < length; i++)
        CHECK(rts[i] == 0, "byte %zu of %zu", i, length);
    return rts;
}

static inline uint64_t host_bytes(uint64_t seed)
{
    return RTS_BYTES + 1 + seed * 3;
}

// All of them have an RTS of the same length, whatever theirs is, so that all are looked at alike.
enum { HOST_LENGTH = 16 * FR_RNDV_RTS_PRIME };
static inline uint64_t host_sizes(uint64_t seed)
{
    return FR_SLOT_SIZES(host_bytes(seed), HOST_LENGTH);
}

// A message in the ledger of this process, and what MPI would carry for it.
struct host_message {
    unsigned index;
    uint64_t number;
    unsigned char rts[RTS_BYTES];
};

static inline void host_write_rts(struct host_message *message, uint64_t bytes, bool remote)
{
    const struct fr_rndv_rts rts = {.secret = *fr_job_control_job_secret(),
                                    .from = (uint32_t)fr_job_rank(),
                                    .index = (uint16_t)message->index,
                                    .scheme = FR_SCHEME_GET,
                                    .remote = remote,
                                    .number = message->number,
                                    .bytes = bytes};
    memset(message->rts, 0, sizeof(message->rts));
    memcpy(message->rts, &rts, sizeof(rts));
}

static inline enum fr_status host_try(int to, int tag, uint64_t comm, uint64_t seed,
                                      struct host_message *message)
{
    const struct fr_rndv_address address = {.to = to, .tag = tag, .comm = comm};
    const struct fr_rndv_location location = host_location(seed);
    bool shared = fr_rndv_ledger_is_shared_with(to);
    enum fr_status status =
        fr_rndv_ledger_advertise(&address, shared, host_sizes(seed), host_bytes(seed), &location,
                                 NULL, &message->index, &message->number);
    if (status == FR_OK)
        host_write_rts(message, host_bytes(seed), !shared);
    return status;
}

static inline struct host_message host_advertise(int to, int tag, uint64_t comm, uint64_t seed)
{
    struct host_message message;
    bool shared = fr_rndv_ledger_is_shared_with(to);
    enum fr_status status = host_try(to, tag, comm, seed, &message);
    CHECK(shared && status == FR_OK, "to %d tag %d: %s", to, tag, fr_core_status_text(status));
    if (!shared || status != FR_OK)
        exit(CHECK_FAIL);
    CHECK(fr_rndv_ledger_state(message.index) == FR_RNDV_ADVERTISED);
    return message;
}

// Returns whether such a message could be sent just now.
static inline enum fr_status host_could(int to, int tag, uint64_t comm)
{
    struct host_message message;
    enum fr_status status = host_try(to, tag, comm, 1, &message);
    if (status == FR_OK)
        fr_rndv_ledger_free(message.index, fr_rndv_ledger_is_shared_with(to));
    return status;
}

static inline void host_free(const struct host_message *message)
{
    fr_rndv_ledger_free(message->index, true);
}

// As the sender: takes the slot to move the bytes, and gives it back.
static inline bool host_hold(const struct host_message *message)
{
    return fr_rndv_slot_change(fr_rndv_ledger_slot(message->index), message->number,
                               FR_RNDV_ADVERTISED, FR_RNDV_MOVING);
}

static inline bool host_give_back(const struct host_message *message)
{
    return fr_rndv_slot_change(fr_rndv_ledger_slot(message->index), message->number, FR_RNDV_MOVING,
                               FR_RNDV_ADVERTISED);
}

static inline void host_check_incoming(const struct fr_rndv_incoming *incoming, int from,
                                       uint64_t seed)
{
    struct fr_ipc_handle expected = host_handle(seed);
    CHECK(incoming->from == from && incoming->location.address == seed, "from %d", incoming->from);
    CHECK(incoming->location.scheme == FR_SCHEME_GET && incoming->location.shift == 20, "%u",
          incoming->location.scheme);
    CHECK(memcmp(&incoming->location.handle, &expected, sizeof(expected)) == 0, "handle of %ju",
          (uintmax_t)seed);
}

static inline bool host_peek(int from, int tag, uint64_t comm, bool take, uint64_t *bytes)
{
    const struct fr_rndv_address address = {.to = from, .tag = tag, .comm = comm};
    return fr_rndv_incoming_peek(&address, HOST_LENGTH, take, bytes);
}

#endif
