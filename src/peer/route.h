// SPDX-License-Identifier: BSD-3-Clause
// Who takes control messages, and who acts on them.
#ifndef FR_PEER_ROUTE_H
#define FR_PEER_ROUTE_H

#include "memory/memory.h"

// Takes control messages and acts on them, one thread at a time. Memory is mapped for the device of
// `user`, NULL for that of the last one. A few loads when there is nothing to do, and a probe where
// other hosts can send.
void fr_peer_route_poll(const struct fr_device_range *user);

#endif
