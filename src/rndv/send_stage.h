// SPDX-License-Identifier: BSD-3-Clause
// Inside of module rndv: the bytes of a send in workspace, and the copies on their way there.
#ifndef FR_RNDV_SEND_STAGE_H
#define FR_RNDV_SEND_STAGE_H

#include "fabrail/staging/path.h"

struct fr_rndv_send;

// The bytes of a send in workspace, and the copies on their way there.
struct fr_rndv_stage {
    size_t counted_bytes; // counted against the bound
    size_t aside_bytes;   // counted against the bound on device workspace, and not taken
    size_t ring_bytes;    // memory for a part of the bytes, used in turn; 0: for all of them
    size_t room_bytes;    // with a ring: bytes, from the first on, that there has been room for
    bool copying;
    size_t step;         // bytes to copy next, between two marks
    size_t growth;       // factor from one step to the next
    size_t begun;        // bytes whose copies have begun
    size_t copied_bytes; // bytes that are there
    unsigned set;        // marks that were set
    unsigned reached;    // marks that were reached
    // Most sends never write what follows. Before it is opened, the view has no lease.
    struct fr_staging_view view; // of the program's buffer, staged; it has the lease, if any
    struct fr_staging_view_block block;
    struct fr_device_batch batch; // while `copying`
    size_t ends[FR_DEVICE_MARKS]; // bytes that are there at each mark that was set
};

// Opens the send's staging view on a path. Its memory counts against a bound; returns FR_ERR_LIMIT
// beyond it.
FR_MUST_CHECK enum fr_status fr_rndv_stage_open(struct fr_rndv_send *send,
                                                enum fr_policy_path path);
void fr_rndv_stage_close(struct fr_rndv_send *send);

// Opens it on path host with memory for `bytes` of the message, a multiple of the copies' steps.
// The memory is used again once fr_rndv_stage_give_room has said that its bytes are no longer
// needed.
FR_MUST_CHECK enum fr_status fr_rndv_stage_open_ring(struct fr_rndv_send *send, size_t bytes);
void fr_rndv_stage_give_room(struct fr_rndv_send *send, size_t taken_bytes);

// Gives up copies through a ring that have not begun, since the program gets its buffer back before
// the receiver has taken all. The rest of the message goes empty.
void fr_rndv_stage_cut_ring(struct fr_rndv_send *send);

// Returns where byte `first` of the message stands, packed.
uintptr_t fr_rndv_stage_address(const struct fr_rndv_send *send, size_t first);

// Moves the bytes to host workspace, from the program's buffer or from where they have gone since.
// On failure they stay where they are.
FR_MUST_CHECK enum fr_status fr_rndv_stage_to_host(struct fr_rndv_send *send);

// Returns whether `bytes` more would exceed the bound on workspace for sends on this path.
bool fr_rndv_stage_is_full(enum fr_policy_path path, size_t bytes);

// Returns whether a send of `bytes` bytes that stays in the program's buffer can be expected to get
// workspace on the device later.
bool fr_rndv_stage_is_likely(int device, size_t bytes);

// Counts the bytes of a send as device workspace, which it may need later, and no longer.
void fr_rndv_stage_set_aside(struct fr_rndv_send *send);
void fr_rndv_stage_end_aside(struct fr_rndv_send *send);

// Begins to copy the program's bytes to the staging memory. The first step has `step` bytes, each
// later one `growth` times those of the one before.
void fr_rndv_stage_begin(struct fr_rndv_send *send, size_t step, size_t growth);

// Goes on with the copies, and writes how many bytes are there. Returns true when that is all of
// them, or when something has failed; `failure` of the send then says what.
bool fr_rndv_stage_poll(struct fr_rndv_send *send, size_t *ready);

// Begins the copies in steps that suit device memory, and writes how many bytes are there. A
// message to another host that goes in one step is there when this returns. With `may_gate`, the
// kernel that packs a message in one step also opens a gate, for a receiver that waits there. Such
// a kernel is launched by the first poll, once the receiver has been told.
FR_MUST_CHECK enum fr_status fr_rndv_stage_begin_on_device(struct fr_rndv_send *send, bool may_gate,
                                                           uint64_t *ready);

// Goes on with the copies, and tells the receiver how many bytes are there. Returns what
// fr_rndv_stage_poll does.
bool fr_rndv_stage_push(struct fr_rndv_send *send);

#endif
