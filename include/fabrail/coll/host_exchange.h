// SPDX-License-Identifier: BSD-3-Clause
// Exchanges of a team of one host by its CPUs (host.h). Each rank publishes its slices one after
// the other, and the others take theirs.
#ifndef FR_FABRAIL_COLL_HOST_EXCHANGE_H
#define FR_FABRAIL_COLL_HOST_EXCHANGE_H

#include "fabrail/coll/copies.h"
#include "fabrail/coll/host.h"

enum { FR_COLL_EXCHANGE_WORDS = 2 }; // of a rank for another one

// One rank's part. The operation ends with FR_ERR_TRUNCATE where a rank has sent this one more than
// it has room for.
struct fr_coll_host_exchange {
    struct fr_coll_host host;
    // By rank; a slice of 0 bytes needs no address. A slice that several ranks get has one address.
    const struct fr_coll_slot *sends;
    const struct fr_coll_slot *receives;
};

// Prepares an exchange, of which the caller has written all else, and host.likely_bytes.
void fr_coll_host_exchange_prepare(const struct fr_coll_team *team,
                                   struct fr_coll_host_exchange *exchange);

#endif
