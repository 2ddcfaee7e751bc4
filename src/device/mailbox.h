// SPDX-License-Identifier: BSD-3-Clause
// Mailboxes: words of page-locked memory in which a kernel and the host leave messages for each
// other. The host waits for such a kernel only so long, since kernels of the program may fill the
// GPU, and even wait for what the host does next. So a kernel that does not come in time is left
// behind, and a copy engine does its work. Until it is over it keeps its stream and words, and for
// a while no other kernel of this sort is tried.
#ifndef FR_DEVICE_MAILBOX_H
#define FR_DEVICE_MAILBOX_H

#include "device/device_int.h"

// The mailbox of one launch. Words in it have the launch's flag in their upper half.
struct fr_device_mailbox {
    struct fr_device_kernels *kernels;
    struct fr_device_stream *stream;
    uint64_t *words;  // of its slot; all that were used are 0 again before the slot is given back
    unsigned answers; // words that the kernel writes, the first ones of the slot
    unsigned used;    // words of the slot that the kernel or the host writes
    uint32_t flag;    // not 0
    // The table's own.
    int slot;
    int state;
};

// Returns a free entry for a kernel of the scope's context, with a stream and words. Returns NULL
// where none may be launched now, or where there is none.
struct fr_device_mailbox *fr_device_mailbox_take(const struct fr_device_scope *scope,
                                                 struct fr_device_kernels *kernels);

// Returns whether no such kernel is to be tried at present. Costs a load where none has been late.
bool fr_device_mailboxes_are_shunned(void);

// Returns whether the kernel has written all of its answers.
bool fr_device_mailbox_is_over(const struct fr_device_mailbox *mailbox);

// Waits for a kernel for about 20 us, until `is_there` is true of it. Returns the driver's answer,
// FR_DEVICE_BUSY if the kernel does not come. Called in a scope of the kernel's context.
int fr_device_mailbox_wait(const struct fr_device_mailbox *mailbox,
                           bool (*is_there)(const struct fr_device_mailbox *mailbox));

// Gives back what a mailbox holds whose kernel is over, or was not launched.
void fr_device_mailbox_end(struct fr_device_mailbox *mailbox, bool failed);

// Leaves a kernel behind, whose entry is free once it is over. If it is `late`, no other is tried
// for a while.
void fr_device_mailbox_leave(struct fr_device_mailbox *mailbox, bool late);

// Forgets the kernels that were left behind in a context that is destroyed. What describes it is
// about to be freed. Words and work are gone with the context.
void fr_device_mailboxes_forget(const struct fr_device_kernels *kernels);

// Forgets the kernels that were left behind. Called before the devices are released.
void fr_device_mailboxes_release(void);

#endif
