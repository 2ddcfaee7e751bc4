// SPDX-License-Identifier: BSD-3-Clause
// Module rail where configure found no headers of libfabric and hwloc that are new enough. There
// are no rails to open, so no other function is ever called. All of them are the same function.
#include "config.h"

#include "fabrail/rail.h"

enum fr_status fr_rail_open(const struct fr_rail_options *options, struct fr_rails **rails)
{
    (void)options, (void)rails;
    fr_info("no rails: Fabrail was built without the headers of libfabric or hwloc");
    return FR_ERR_UNSUPPORTED;
}

__attribute__((used)) static int none(void)
{
    return 0;
}

#ifndef __clang__
#pragma GCC diagnostic ignored "-Wattribute-alias" // the types differ
#endif
#define IS_NONE(name) __typeof__(name) name __attribute__((alias("none")))
IS_NONE(fr_rail_close);
IS_NONE(fr_rail_count);
IS_NONE(fr_rail_takes);
IS_NONE(fr_rail_can_flush);
IS_NONE(fr_rail_needs_polls);
IS_NONE(fr_rail_has_better);
IS_NONE(fr_rail_writes);
IS_NONE(fr_rail_emulates_reads);
IS_NONE(fr_rail_emulates_writes);
IS_NONE(fr_rail_address);
IS_NONE(fr_rail_peer_add);
IS_NONE(fr_rail_peer_rails);
IS_NONE(fr_rail_peer_retry);
IS_NONE(fr_rail_register);
IS_NONE(fr_rail_release);
IS_NONE(fr_rail_forget);
IS_NONE(fr_rail_idle);
IS_NONE(fr_rail_describe);
IS_NONE(fr_rail_read);
IS_NONE(fr_rail_write);
IS_NONE(fr_rail_flush);
IS_NONE(fr_rail_poll);
IS_NONE(fr_rail_stay_near);
IS_NONE(fr_rail_wait);
IS_NONE(fr_rail_rest);
IS_NONE(fr_rail_test);
IS_NONE(fr_rail_cancel);
IS_NONE(fr_rail_expect_loss);
IS_NONE(fr_rail_finish);
IS_NONE(fr_rail_counters);
