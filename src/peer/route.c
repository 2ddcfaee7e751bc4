// SPDX-License-Identifier: BSD-3-Clause
// Control messages, all of which are room memory's.
#include "config.h"

#include "peer/route.h"

void fr_peer_route_poll(const struct fr_device_range *user)
{
    static atomic_flag taking = ATOMIC_FLAG_INIT; // one thread, so that the order stays
    struct fr_control_message message;
    fr_control_poll();
    if (atomic_flag_test_and_set_explicit(&taking, memory_order_acquire))
        return;
    while (fr_control_take(&message))
        fr_memory_handle_message(&message, user);
    atomic_flag_clear_explicit(&taking, memory_order_release);
    fr_memory_poll();
}
