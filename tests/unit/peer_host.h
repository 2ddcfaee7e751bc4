// SPDX-License-Identifier: BSD-3-Clause
// The shared memory of a host for unit tests of several processes, and parcels with contents that a
// receiver can check.
#ifndef FR_TESTS_UNIT_PEER_HOST_H
#define FR_TESTS_UNIT_PEER_HOST_H

#include "peer/parcel.h"

#define JOB_OPEN fr_peer_host_open
#include "control_job.h"

enum { ANNOUNCEMENT = FR_PEER_ANNOUNCEMENT_BYTES, GUARD = 64 };

#define host_open_all  job_open_all
#define host_open_as   job_open_as
#define host_close_all job_close_all

// Contents that a receiver can check, from a seed.
static inline struct fr_memory_handle host_handle(uint64_t seed)
{
    struct fr_memory_handle handle;
    check_fill(&handle, sizeof(handle), seed);
    return handle;
}

static inline struct fr_peer_contents host_contents(int to, int tag, uint64_t comm, uint64_t seed)
{
    return (struct fr_peer_contents){.to = to,
                                     .tag = tag,
                                     .comm = comm,
                                     .address = seed,
                                     .bytes = seed * 3 + 1,
                                     .handle = host_handle(seed)};
}

static inline struct fr_peer_parcel *host_offer(int to, int tag, uint64_t comm, uint64_t seed,
                                                unsigned char *announcement)
{
    struct fr_peer_contents contents = host_contents(to, tag, comm, seed);
    struct fr_peer_parcel *parcel = NULL;
    unsigned char room[GUARD + ANNOUNCEMENT + GUARD];
    check_fill(room, sizeof(room), seed);
    memset(room + GUARD, 0xff, ANNOUNCEMENT);
    unsigned char before[sizeof(room)];
    memcpy(before, room, sizeof(room));
    enum fr_status status = fr_peer_parcel_offer(&contents, room + GUARD, &parcel);
    CHECK(status == FR_OK, "to %d tag %d: %s", to, tag, fr_core_status_text(status));
    CHECK(memcmp(room, before, GUARD) == 0, "before the announcement");
    CHECK(memcmp(room + GUARD + ANNOUNCEMENT, before + GUARD + ANNOUNCEMENT, GUARD) == 0, "after");
    if (status != FR_OK)
        exit(CHECK_FAIL);
    memcpy(announcement, room + GUARD, ANNOUNCEMENT);
    return parcel;
}

static inline void host_check_arrival(const struct fr_peer_arrival *arrival, int from,
                                      uint64_t seed)
{
    struct fr_memory_handle expected = host_handle(seed);
    CHECK(arrival->from == from && arrival->address == seed, "from %d", arrival->from);
    CHECK(memcmp(&arrival->handle, &expected, sizeof(expected)) == 0, "handle of %ju",
          (uintmax_t)seed);
}

#endif
