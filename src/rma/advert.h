// SPDX-License-Identifier: BSD-3-Clause
// Adverts, by which ranks agree on a window, and how they reach each other's memory by them.
#ifndef FR_RMA_ADVERT_H
#define FR_RMA_ADVERT_H

#include "rma/rma_int.h"

// The offer of a rank, which all others get.
struct fr_rma_advert {
    uint64_t base, bytes;
    uint64_t before; // bytes from rank 0's base to a slice of its memory
    uint64_t name;   // of the window; rank 0's counts
    uint32_t unit;
    uint32_t obstacle;
    uint32_t mute;               // an obstacle to messages
    uint8_t on_device;           // the memory is a device's
    uint8_t needs_messages;      // it does not reach all others
    uint8_t is_shared;           // a slice of rank 0's memory
    uint8_t by_calls;            // only some calls of MPI act on messages
    struct fr_job_secret secret; // of the words; that of the first rank of a host counts there
    struct fr_ipc_handle handle; // without bytes: others cannot map the memory
};

// Reaches the memory of all ranks, as far as possible. Memory that has been mapped before stays
// mapped. `own` is the range of this rank's. Returns false where some could be mapped but for a
// descriptor.
FR_MUST_CHECK bool fr_rma_reach_all(struct fr_rma_window *window,
                                    const struct fr_rma_advert *adverts,
                                    const struct fr_device_range *own);

// Returns whether no rank has to be sent messages.
bool fr_rma_reaches_all(const struct fr_rma_window *window);

#endif
