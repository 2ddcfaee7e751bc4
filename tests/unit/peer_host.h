// SPDX-License-Identifier: BSD-3-Clause
// The shared memory of a host for unit tests of several processes.
#ifndef FR_TESTS_UNIT_PEER_HOST_H
#define FR_TESTS_UNIT_PEER_HOST_H

#include "peer/host.h"

#include "processes.h"

static struct fr_peer_secret host_secret;

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
    struct fr_peer_process processes[PROCESSES_MAX] = {{.cookie = 0}};
    for (int i = 0; i < PROCESSES_MAX; i++)
        processes[i].cookie = 100 + (uint64_t)i;
    return fr_peer_host_open(&host_secret, processes, index, count);
}

// Process 0 opens first. All are ready on return.
static inline void host_open_all(void)
{
    if (process_rank == 0)
        CHECK(fr_peer_secret_draw(&host_secret) == FR_OK);
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
static inline struct fr_peer_handle host_handle(uint64_t seed)
{
    struct fr_peer_handle handle;
    check_fill(&handle, sizeof(handle), seed);
    return handle;
}

#endif
