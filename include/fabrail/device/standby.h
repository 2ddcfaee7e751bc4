// SPDX-License-Identifier: BSD-3-Clause
// A kernel that stands by for a few bytes that are about to come to the host, and copies them to a
// device (standby_order.h). It takes microseconds to begin a copy to a device, however short it is.
// A caller that knows where the bytes will go launches the kernel before.
#ifndef FR_FABRAIL_DEVICE_STANDBY_H
#define FR_FABRAIL_DEVICE_STANDBY_H

#include "fabrail/device.h"

enum { FR_DEVICE_STANDBY_BYTES = 60 }; // most that the kernel copies

// A kernel that stands by. The caller's storage, from the launch to fr_device_standby_end.
struct fr_device_standby {
    struct fr_device_mailbox *mailbox; // NULL: there is none
    struct fr_device_range range;      // of the destination
    uintptr_t dst;
};

// Launches a kernel that copies up to `room` bytes, at most FR_DEVICE_STANDBY_BYTES, to `dst`,
// which lies in `range`. It waits for 0.1 ms at most. Returns whether it was launched. It is not
// where the device has no kernels or may not write all of the room, or while an earlier kernel has
// not started.
bool fr_device_standby_begin(const struct fr_device_range *range, uintptr_t dst, size_t room,
                             struct fr_device_standby *standby);

// Has the kernel copy bytes from memory of the host, no more than its room, and waits for that. The
// application's work on the destination is waited for before. Returns FR_ERR_UNSUPPORTED, with
// nothing copied, where the kernel has not started, has given up, or was not launched. In any case
// the kernel copies nothing afterwards.
FR_MUST_CHECK enum fr_status fr_device_standby_copy(struct fr_device_standby *standby,
                                                    const void *data, size_t bytes);

// Dismisses the kernel if it has copied nothing. It may run for some microseconds more. Does
// nothing where there is no kernel.
void fr_device_standby_end(struct fr_device_standby *standby);

#endif
