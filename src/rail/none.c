// SPDX-License-Identifier: BSD-3-Clause
// Room rail where the headers of libfabric or hwloc were missing: there are no rails to open, so
// that nothing else is ever called.
#include "config.h"

#include "rail/rail.h"

enum fr_status fr_rail_open(const struct fr_rail_options *options, struct fr_rails **rails)
{
    (void)options, (void)rails;
    fr_info("no rails: Fabrail was built without the headers of libfabric or hwloc");
    return FR_ERR_UNSUPPORTED;
}

void fr_rail_close(struct fr_rails *rails)
{
    (void)rails;
}

unsigned fr_rail_count(const struct fr_rails *rails)
{
    (void)rails;
    return 0;
}

bool fr_rail_takes(const struct fr_rails *rails, enum fr_rail_kind kind)
{
    (void)rails, (void)kind;
    return false;
}

bool fr_rail_can_flush(const struct fr_rails *rails)
{
    (void)rails;
    return false;
}

bool fr_rail_needs_polls(const struct fr_rails *rails)
{
    (void)rails;
    return false;
}

bool fr_rail_has_better(const struct fr_rails *rails)
{
    (void)rails;
    return false;
}

bool fr_rail_writes(const struct fr_rails *rails)
{
    (void)rails;
    return false;
}

bool fr_rail_emulates_reads(const struct fr_rails *rails)
{
    (void)rails;
    return false;
}

bool fr_rail_emulates_writes(const struct fr_rails *rails)
{
    (void)rails;
    return false;
}

size_t fr_rail_address(const struct fr_rails *rails, unsigned char address[FR_RAIL_ADDRESS_MAX])
{
    (void)rails, (void)address;
    return 0;
}

enum fr_status fr_rail_peer_add(struct fr_rails *rails, unsigned peer, const void *address,
                                size_t bytes)
{
    (void)rails, (void)peer, (void)address, (void)bytes;
    return FR_ERR_UNSUPPORTED;
}

bool fr_rail_peer_known(struct fr_rails *rails, unsigned peer)
{
    (void)rails, (void)peer;
    return false;
}

unsigned fr_rail_peer_rails(struct fr_rails *rails, unsigned peer)
{
    (void)rails, (void)peer;
    return 0;
}

unsigned fr_rail_peer_retry(struct fr_rails *rails, unsigned peer)
{
    (void)rails, (void)peer;
    return 0;
}

enum fr_status fr_rail_register(struct fr_rails *rails, const struct fr_rail_memory *memory,
                                struct fr_rail_region **region)
{
    (void)rails, (void)memory, (void)region;
    return FR_ERR_UNSUPPORTED;
}

void fr_rail_release(struct fr_rails *rails, struct fr_rail_region *region)
{
    (void)rails, (void)region;
}

void fr_rail_forget(struct fr_rails *rails, uint64_t id)
{
    (void)rails, (void)id;
}

size_t fr_rail_idle(struct fr_rails *rails, uint64_t after, struct fr_rail_memory *idle, size_t max)
{
    (void)rails, (void)after, (void)idle, (void)max;
    return 0;
}

size_t fr_rail_describe(const struct fr_rail_region *region, size_t offset, size_t bytes,
                        unsigned char key[FR_RAIL_KEY_MAX])
{
    (void)region, (void)offset, (void)bytes, (void)key;
    return 0;
}

enum fr_status fr_rail_read(struct fr_rails *rails, unsigned peer, const void *key,
                            size_t key_bytes, size_t key_offset, struct fr_rail_region *region,
                            size_t offset, size_t bytes, struct fr_rail_transfer **transfer)
{
    (void)rails, (void)peer, (void)key, (void)key_bytes, (void)key_offset;
    (void)region, (void)offset, (void)bytes, (void)transfer;
    return FR_ERR_UNSUPPORTED;
}

enum fr_status fr_rail_write(struct fr_rails *rails, unsigned peer, const void *key,
                             size_t key_bytes, size_t key_offset, struct fr_rail_region *region,
                             size_t offset, size_t bytes, struct fr_rail_transfer **transfer)
{
    return fr_rail_read(rails, peer, key, key_bytes, key_offset, region, offset, bytes, transfer);
}

enum fr_status fr_rail_flush(struct fr_rails *rails, struct fr_rail_transfer **transfer)
{
    (void)rails, (void)transfer;
    return FR_ERR_UNSUPPORTED;
}

bool fr_rail_poll(struct fr_rails *rails)
{
    (void)rails;
    return false;
}

bool fr_rail_stay_near(const struct fr_rails *rails)
{
    (void)rails;
    return false;
}

bool fr_rail_wait(struct fr_rails *rails, long most_ns)
{
    (void)rails, (void)most_ns;
    return false;
}

bool fr_rail_rest(struct fr_rails *rails)
{
    (void)rails;
    return false;
}

bool fr_rail_test(const struct fr_rail_transfer *transfer, enum fr_status *status)
{
    (void)transfer, (void)status;
    return true;
}

void fr_rail_cancel(struct fr_rail_transfer *transfer)
{
    (void)transfer;
}

void fr_rail_expect_loss(struct fr_rail_transfer *transfer)
{
    (void)transfer;
}

void fr_rail_finish(struct fr_rail_transfer *transfer)
{
    (void)transfer;
}

void fr_rail_counters(const struct fr_rails *rails, unsigned rail,
                      struct fr_rail_counters *counters)
{
    (void)rails, (void)rail;
    *counters = (struct fr_rail_counters){.out = true};
}
