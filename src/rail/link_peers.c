// SPDX-License-Identifier: BSD-3-Clause
// Peers: who they are, and which of their rails each own rail talks with. An unknown peer costs
// nothing, and a link takes a few words. libfabric learns of a peer at the first transfer.
#include "config.h"

#include "rail/steps_int.h"

#include "fabrail/core/wait.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(struct fr_rail_link) <= 48, "1024 peers cost less than 64 KiB a rail");
_Static_assert((int)FR_RAIL_WIRE_ADDRESS_MAX <= (int)FR_RAIL_ADDRESS_MAX, "an address fits");
_Static_assert((int)FR_RAIL_WIRE_KEY_MAX <= (int)FR_RAIL_KEY_MAX, "a key fits");

static bool same_provider(const struct fr_rail_wire_rail *a, const struct fr_rail_wire_rail *b)
{
    return strcmp(a->provider, b->provider) == 0;
}

static bool same_fabric(const struct fr_rail_wire_rail *a, const struct fr_rail_wire_rail *b)
{
    return same_provider(a, b) && strcmp(a->fabric, b->fabric) == 0;
}

typedef bool (*match_fn)(const struct fr_rail_wire_rail *, const struct fr_rail_wire_rail *);

// Returns the remote rail for the own rail `index`, -1 for none. Among the remote rails that match,
// it has the place that `index` has among the own rails that match.
static int pair(const struct fr_rail_wire_address *own, unsigned index,
                const struct fr_rail_wire_address *other, match_fn match)
{
    unsigned turn = 0, count = 0, candidates[FR_RAILS_MAX];
    for (unsigned i = 0; i < index; i++)
        turn += match(&own->rails[i], &own->rails[index]);
    for (unsigned i = 0; i < other->count; i++)
        if (match(&own->rails[index], &other->rails[i]))
            candidates[count++] = i;
    return count > 0 ? (int)candidates[turn % count] : -1;
}

// Pairs rails by fabric, which is the subnet where a provider has such. If no fabric is in common,
// as between routed subnets, rails are paired by index. Returns the number of pairs.
static unsigned pair_all(const struct fr_rail_wire_address *own,
                         const struct fr_rail_wire_address *other, int remote[FR_RAILS_MAX])
{
    static const match_fn matches[] = {same_fabric, same_provider};
    unsigned pairs = 0;
    for (size_t m = 0; pairs == 0 && m < FR_ARRAY_LENGTH(matches); m++) {
        for (unsigned i = 0; i < own->count; i++) {
            remote[i] = pair(own, i, other, matches[m]);
            pairs += remote[i] >= 0;
        }
    }
    return pairs;
}

struct fr_rail_peer *fr_rail_peer_find(struct fr_rails *rails, unsigned number)
{
    struct fr_rail_peer *peer = NULL;
    HASH_FIND(hh, rails->peers, &number, sizeof(number), peer);
    return peer;
}

static struct fr_rail_peer *make_peer(struct fr_rails *rails, unsigned number,
                                      const struct fr_rail_wire_address *named, const void *address,
                                      size_t bytes)
{
    int remote[FR_RAILS_MAX];
    if (pair_all(&rails->address, named, remote) == 0)
        return NULL;
    struct fr_rail_peer *peer = calloc(1, sizeof(*peer) + rails->count * sizeof(peer->links[0]));
    if (peer == NULL)
        return NULL;
    peer->number = number;
    peer->address = malloc(bytes);
    peer->address_bytes = bytes;
    if (peer->address == NULL) {
        free(peer);
        return NULL;
    }
    memcpy(peer->address, address, bytes);
    for (unsigned i = 0; i < rails->count; i++) {
        peer->links[i].paired = remote[i] >= 0;
        peer->links[i].remote = (uint8_t)(remote[i] >= 0 ? remote[i] : 0);
    }
    return peer;
}

static void free_peer(struct fr_rail_peer *peer)
{
    free(peer->address);
    free(peer);
}

// Adds `peer` unless another thread has added it first.
static enum fr_status add_peer(struct fr_rails *rails, struct fr_rail_peer *peer)
{
    fr_core_lock(&rails->lock);
    bool known = fr_rail_peer_find(rails, peer->number) != NULL;
    if (!known)
        HASH_ADD(hh, rails->peers, number, sizeof(peer->number), peer);
    bool added = !known && FR_HASH_HAS(peer);
    fr_core_unlock(&rails->lock);
    if (!added)
        free_peer(peer);
    return known || added ? FR_OK : FR_ERR_NO_MEMORY;
}

static bool is_known(struct fr_rails *rails, unsigned peer)
{
    fr_core_lock(&rails->lock);
    bool known = fr_rail_peer_find(rails, peer) != NULL;
    fr_core_unlock(&rails->lock);
    return known;
}

static unsigned count_alive(struct fr_rails *rails, unsigned peer, bool retry)
{
    unsigned alive = 0;
    fr_core_lock(&rails->lock);
    struct fr_rail_peer *known = fr_rail_peer_find(rails, peer);
    fr_core_unlock(&rails->lock);
    while (atomic_flag_test_and_set_explicit(&rails->polling, memory_order_acquire))
        fr_wait_yield(); // links belong to the thread that polls
    if (known != NULL && retry)
        fr_rail_retry_links(rails, known);
    for (unsigned i = 0; known != NULL && i < rails->count; i++)
        alive += known->links[i].paired && !known->links[i].lost && !rails->rails[i].out;
    atomic_flag_clear_explicit(&rails->polling, memory_order_release);
    return alive;
}

unsigned fr_rail_peer_rails(struct fr_rails *rails, unsigned peer)
{
    return count_alive(rails, peer, false);
}

unsigned fr_rail_peer_retry(struct fr_rails *rails, unsigned peer)
{
    return count_alive(rails, peer, true);
}

enum fr_status fr_rail_peer_add(struct fr_rails *rails, unsigned peer, const void *address,
                                size_t bytes)
{
    struct fr_rail_wire_address named;
    int remote[FR_RAILS_MAX];
    if (is_known(rails, peer))
        return FR_OK;
    if (!fr_rail_wire_read_address(address, bytes, &named)) {
        fr_warn_once("the rail address of process %u is malformed", peer);
        return FR_ERR_INVALID;
    }
    if (pair_all(&rails->address, &named, remote) == 0) {
        fr_info("no rail in common with process %u: its provider is %s, here it is %s", peer,
                named.rails[0].provider, rails->address.rails[0].provider);
        return FR_ERR_UNSUPPORTED;
    }
    struct fr_rail_peer *made = make_peer(rails, peer, &named, address, bytes);
    return made != NULL ? add_peer(rails, made) : FR_ERR_NO_MEMORY;
}

static void connect_link(struct fr_rail *rail, struct fr_rail_link *link,
                         const struct fr_rail_wire_rail *named)
{
    fi_addr_t initiator;
    link->lost = !fr_rail_endpoint_insert(rail, named->target, &link->addr);
    link->inserted = !link->lost;
    if (rail->known_first && !link->lost)
        (void)fr_rail_endpoint_insert(rail, named->initiator, &initiator);
    rail->errors += link->lost;
}

void fr_rail_peer_connect(struct fr_rails *rails, struct fr_rail_peer *peer)
{
    struct fr_rail_wire_address named;
    if (peer->address == NULL)
        return;
    bool good = fr_rail_wire_read_address(peer->address, peer->address_bytes, &named);
    for (unsigned i = 0; i < rails->count; i++) {
        struct fr_rail_link *link = &peer->links[i];
        if (good && link->paired) // also for a rail that is out, since it may come back
            connect_link(&rails->rails[i], link, &named.rails[link->remote]);
    }
    free(peer->address);
    peer->address = NULL;
}

void fr_rail_peers_free(struct fr_rails *rails)
{
    struct fr_rail_peer *peer, *next;
    fr_core_lock(&rails->lock);
    HASH_ITER(hh, rails->peers, peer, next)
    {
        HASH_DEL(rails->peers, peer);
        free_peer(peer);
    }
    fr_core_unlock(&rails->lock);
}
