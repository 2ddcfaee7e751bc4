// SPDX-License-Identifier: BSD-3-Clause
// Inside of module rndv: what travels.
#ifndef FR_RNDV_PROTOCOL_H
#define FR_RNDV_PROTOCOL_H

#include "fabrail/job/control.h"
#include "fabrail/rndv/incoming.h"

// An RTS: what MPI carries in place of the bytes; zeros follow.
struct fr_rndv_rts {
    struct fr_job_secret secret;
    uint32_t from;  // rank in MPI_COMM_WORLD
    uint16_t index; // of the slot
    uint8_t scheme; // enum fr_policy_scheme
    uint8_t remote; // 1: the entry came by control message, and is not looked up in the ledger
    uint64_t number;
    uint64_t bytes;
};
_Static_assert(sizeof(struct fr_rndv_rts) == 40, "no padding");
_Static_assert(sizeof(struct fr_rndv_rts) == FR_RNDV_RTS_BYTES, "it fits");

// A slot's contents for processes of other hosts, in a control message. Kind RTS carries all of it,
// ahead of the RTS, or when the scheme has changed. Kind WRITE carries all of it from the receiver
// to the sender, and its location is where the sender shall write the bytes. Other kinds carry the
// members before `location`.
struct fr_rndv_entry {
    uint64_t number;
    uint64_t ready; // with kind ATS: the state that the message has reached
    uint64_t sizes;
    uint64_t comm;
    int32_t tag;    // with kind WRITTEN_ALL: whether something may still land
    uint32_t index; // of the slot
    struct fr_rndv_location location;
};
_Static_assert(sizeof(struct fr_rndv_entry) <= FR_CONTROL_BYTES, "it fits");

// Sends an entry, or its first members, by control message, as the kind demands. Where there is no
// room, a call with `must` tries again until the process is out of reach. Returns false if nothing
// was sent.
bool fr_rndv_entry_send(int to, enum fr_job_control_kind kind, const struct fr_rndv_entry *entry,
                        bool must);

#endif
