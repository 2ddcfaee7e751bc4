// SPDX-License-Identifier: BSD-3-Clause
// The shared memory of a host for unit tests of several processes, and parcels with contents that a
// receiver can check.
#ifndef FR_TESTS_UNIT_PEER_HOST_H
#define FR_TESTS_UNIT_PEER_HOST_H

#include "peer/parcel.h"

#include "processes.h"

enum { ANNOUNCEMENT = FR_PEER_ANNOUNCEMENT_BYTES, GUARD = 64 };

static struct fr_control_secret host_secret;

static inline void host_name(char name[64])
{
    int used = snprintf(name, 64, "/dev/shm/fabrail-");
    for (size_t i = 0; i < sizeof(host_secret.bytes); i++)
        used += snprintf(name + used, 64 - (size_t)used, "%02x", host_secret.bytes[i]);
}

static inline bool host_has_name(void)
{
    char name[64];
    host_name(name);
    return access(name, F_OK) == 0;
}

static inline enum fr_status host_open_as(int index, int count)
{
    struct fr_control_process processes[PROCESSES_MAX] = {{.cookie = 0}};
    for (int i = 0; i < PROCESSES_MAX; i++)
        processes[i].cookie = 100 + (uint64_t)i;
    return fr_peer_host_open(&host_secret, processes, index, count);
}

// Process 0 opens first. All are ready on return.
static inline void host_open_all(void)
{
    if (process_rank == 0)
        CHECK(fr_control_secret_draw(&host_secret) == FR_OK);
    else
        process_hear(0, &host_secret, sizeof(host_secret));
    enum fr_status status = host_open_as(process_rank, process_count);
    CHECK(status == FR_OK, "%s", fr_core_status_text(status));
    if (status != FR_OK)
        exit(CHECK_FAIL);
    for (int rank = 1; rank < process_count && process_rank == 0; rank++)
        process_say(rank, &host_secret, sizeof(host_secret));
    process_meet();
    CHECK(fr_peer_host_is_ready() && !host_has_name());
}

static inline void host_close_all(void)
{
    process_meet();
    fr_peer_host_close();
}

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
