// SPDX-License-Identifier: BSD-3-Clause
// Exchanges of a team of one host by its CPUs (host.h). Each rank publishes its slices one after
// the other, and the others take theirs.
#ifndef FR_FABRAIL_COLL_HOST_EXCHANGE_H
#define FR_FABRAIL_COLL_HOST_EXCHANGE_H

#include "fabrail/coll/copies.h"
#include "fabrail/coll/host.h"

// One rank's part. The caller writes all but most of the first member and the last one; the rest
// are zeros.
struct fr_coll_host_exchange {
    struct fr_coll_host host;
    const char *call; // for messages
    // By rank; a slice of 0 bytes needs no address. A slice that several ranks get has one address.
    const struct fr_coll_slot *sends;
    const struct fr_coll_slot *receives;
    struct fr_device_range send_range, receive_range;
    size_t likely_bytes; // that a rank sends; alike on all ranks
    bool is_cut;         // a rank has sent more than there was room for
};

// Goes on as fr_coll_host_progress does. Returns FR_ERR_TRUNCATE in the end where a rank has sent
// this one more than it has room for.
FR_MUST_CHECK enum fr_status fr_coll_host_exchange_progress(struct fr_coll_team *team,
                                                            struct fr_coll_host_exchange *exchange,
                                                            bool *over);

#endif
