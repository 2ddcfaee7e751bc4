// SPDX-License-Identifier: BSD-3-Clause
// Probes of rails: each process lets all others read a few bytes, and reads theirs over each rail,
// to see whether the rail leads anywhere.
#include "config.h"

#include "fabrail/core/aligned.h"
#include "fabrail/core/wait.h"
#include "fabrail/job.h"
#include "rndv/rail_connect.h"

#include <stdlib.h>
#include <string.h>

enum {
    PROBE_BYTES = 64,
    GROUPS = 64, // groups of processes; one of a group is read from at a time, to the group's part
                 // of `memory`
    SOURCE_BYTES = 4096,
    MEMORY_BYTES = SOURCE_BYTES + GROUPS * FR_RAILS_MAX * PROBE_BYTES,
    PROBE_LIMIT_S = 30,
    GRACE_S = 5,
};

static struct fr_rails *rails;        // while open
static struct fr_rail_region *region; // of `memory`
static unsigned char *memory;         // bytes for others to read, and room for theirs
static unsigned char own_address[FR_RNDV_RAIL_ADDRESS_MAX]; // the same for all other processes
static size_t own_bytes;
static uint64_t groups; // in use; belongs to the thread that moves things on

// Returns the mark that a process lets others read. It tells that the bytes come from that process.
static unsigned char mark_of(int rank)
{
    return (unsigned char)(1 + (unsigned)rank % 251);
}

// Writes the address that all others get: length and bytes of the description of the memory to
// read, then the address of the rails.
static void write_own_address(void)
{
    size_t key_bytes = fr_rail_describe(region, 0, SOURCE_BYTES, own_address + 2);
    own_address[0] = (unsigned char)(key_bytes & 0xff);
    own_address[1] = (unsigned char)(key_bytes >> 8);
    own_bytes = 2 + key_bytes + fr_rail_address(rails, own_address + 2 + key_bytes);
}

enum fr_status fr_rndv_rail_probe_open(struct fr_rails *opened)
{
    memory = fr_aligned_new(SOURCE_BYTES, MEMORY_BYTES);
    if (memory == NULL)
        return FR_ERR_NO_MEMORY;
    memset(memory, mark_of(fr_job_rank()), SOURCE_BYTES);
    memset(memory + SOURCE_BYTES, 0, MEMORY_BYTES - SOURCE_BYTES);
    const struct fr_rail_memory what = {
        .address = memory, .bytes = MEMORY_BYTES, .kind = FR_RAIL_HOST};
    rails = opened;
    groups = 0;
    enum fr_status status = fr_rail_register(rails, &what, &region);
    if (status == FR_OK)
        write_own_address();
    return status;
}

void fr_rndv_rail_probe_close(void)
{
    region = NULL;
    rails = NULL;
    fr_aligned_free(memory);
    memory = NULL;
}

const unsigned char *fr_rndv_rail_probe_own(size_t *bytes)
{
    *bytes = own_bytes;
    return own_address;
}

static size_t key_bytes_of(const struct fr_rndv_rail_address *address)
{
    return address->all_bytes >= 2 ? address->bytes[0] | (size_t)address->bytes[1] << 8 : 0;
}

static size_t target_of(int rank, unsigned index)
{
    return SOURCE_BYTES + ((unsigned)rank % GROUPS * FR_RAILS_MAX + index) * PROBE_BYTES;
}

static uint64_t group_of(int rank)
{
    return (uint64_t)1 << (unsigned)rank % GROUPS;
}

static bool read_from(int rank, const struct fr_rndv_rail_address *address, size_t bytes,
                      struct fr_rndv_probe *probe)
{
    unsigned at = probe->count;
    if (at == FR_RAILS_MAX ||
        fr_rail_read(rails, (unsigned)rank, address->bytes + 2, key_bytes_of(address), 0, region,
                     target_of(rank, at), bytes, &probe->transfers[at]) != FR_OK)
        return false;
    probe->count++;
    return true;
}

// A read of nothing makes the process known to the rails. Some rails answer nobody else.
bool fr_rndv_rail_probe_connect(int rank, const struct fr_rndv_rail_address *address,
                                struct fr_rndv_probe *probe)
{
    size_t head = 2 + key_bytes_of(address);
    probe->count = 0;
    if (head >= address->all_bytes || fr_rail_peer_add(rails, (unsigned)rank, address->bytes + head,
                                                       address->all_bytes - head) != FR_OK)
        return false;
    return read_from(rank, address, 0, probe);
}

// Returns whether all reads have ended, and writes the worst of their outcomes.
static bool have_ended(struct fr_rndv_probe *probe, bool late, enum fr_status *worst)
{
    enum fr_status status = FR_OK;
    bool ended = true;
    for (unsigned i = 0; i < probe->count; i++) {
        bool one = fr_rail_test(probe->transfers[i], &status);
        if (!one && late)
            fr_rail_cancel(probe->transfers[i]);
        ended = ended && one;
    }
    *worst = FR_OK;
    for (unsigned i = 0; ended && i < probe->count; i++) {
        (void)fr_rail_test(probe->transfers[i], &status);
        *worst = status != FR_OK ? status : *worst;
        fr_rail_finish(probe->transfers[i]);
    }
    probe->count = ended ? 0 : probe->count;
    return ended;
}

bool fr_rndv_rail_probe_has_connected(struct fr_rndv_probe *probe)
{
    enum fr_status worst;
    return have_ended(probe, false, &worst);
}

// Returns whether a lost rail may be back soon. Two processes that lose a rail at about the same
// time try it again at about the same time, and one of them asks the other first.
static bool waits_for_rail(struct fr_rndv_probe *probe)
{
    if (probe->since_ns == 0)
        probe->since_ns = fr_time_ns();
    return fr_time_ns() - probe->since_ns < GRACE_S * FR_SECOND_NS;
}

// Begins a read for each rail: small reads take the rails in turn.
bool fr_rndv_rail_probe_begin(int rank, const struct fr_rndv_rail_address *address, bool again,
                              struct fr_rndv_probe *probe)
{
    if (groups & group_of(rank))
        return false;
    unsigned count = fr_rail_peer_retry(rails, (unsigned)rank);
    if (count == 0 && waits_for_rail(probe))
        return false;
    groups |= group_of(rank);
    memset(memory + target_of(rank, 0), 0, FR_RAILS_MAX * PROBE_BYTES);
    probe->began_ns = fr_time_ns();
    probe->since_ns = 0;
    probe->count = 0;
    while (probe->count < count && read_from(rank, address, PROBE_BYTES, probe))
        if (again)
            fr_rail_expect_loss(probe->transfers[probe->count - 1]);
    return true;
}

static bool has_read(int rank, unsigned count)
{
    for (size_t i = 0; i < (size_t)count * PROBE_BYTES; i++) {
        if (memory[target_of(rank, 0) + i] != mark_of(rank))
            return false;
    }
    return count > 0;
}

bool fr_rndv_rail_probe_is_over(int rank, struct fr_rndv_probe *probe, unsigned *reached)
{
    enum fr_status worst;
    unsigned count = probe->count;
    if (!have_ended(probe, fr_time_ns() - probe->began_ns >= PROBE_LIMIT_S * FR_SECOND_NS, &worst))
        return false;
    groups &= ~group_of(rank);
    *reached =
        worst == FR_OK && has_read(rank, count) ? fr_rail_peer_rails(rails, (unsigned)rank) : 0;
    return true;
}

void fr_rndv_rail_probe_cancel(struct fr_rndv_probe *probe)
{
    enum fr_status worst;
    (void)have_ended(probe, true, &worst);
}

void fr_rndv_rail_probe_end(struct fr_rndv_probe *probe)
{
    enum fr_status worst;
    struct fr_wait wait = {.steps_a_yield = FR_WAIT_POLLS};
    while (probe->count > 0 && fr_wait_judge(&wait, PROBE_LIMIT_S) != FR_WAIT_OVER &&
           !have_ended(probe, true, &worst)) {
        (void)fr_rail_poll(rails);
        (void)fr_wait_step(&wait);
    }
}
