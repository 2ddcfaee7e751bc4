// SPDX-License-Identifier: BSD-3-Clause
// A control message whose sender has died before it was written.
#ifndef FR_TESTS_UNIT_INSIDE_HALF_SENT_H
#define FR_TESTS_UNIT_INSIDE_HALF_SENT_H

// Takes a place in the queue of a process of this host, and never fills it.
void half_send(int to);

#endif
