// SPDX-License-Identifier: BSD-3-Clause
// Short operations by CPUs. A post has a head, what the rank tells of its data, and the data. The
// head is that of an advert which is not eligible, and ranks that look for adverts read it so.
#include "config.h"

#include "fabrail/coll/host_posts.h"

#include "fabrail/coll/agree.h"
#include "fabrail/coll/host_exchange.h"
#include "fabrail/coll/rounds.h"
#include "fabrail/policy/coll_plan.h"

#include <stdlib.h>
#include <string.h>

enum { HEAD_BYTES = FR_CONTROL_LINE_BYTES };
_Static_assert(offsetof(struct fr_coll_advert, handles) == HEAD_BYTES, "a head of an advert");

// Values of a head's field `what`. Operations of tasks have other numbers.
#define HAS_DATA   UINT64_C(0x4652736864617461)
#define HAS_FAILED UINT64_C(0x465273686661696c)

static size_t data_at(int size, size_t words)
{
    size_t bytes = HEAD_BYTES + (size_t)size * words * sizeof(uint64_t);
    return (bytes + HEAD_BYTES - 1) / HEAD_BYTES * HEAD_BYTES;
}

size_t fr_coll_host_posts_bytes(int size)
{
    return data_at(size, FR_COLL_EXCHANGE_WORDS) + FR_POLICY_SHORT_BYTES;
}

static struct fr_coll_post fail(struct fr_coll_host *host)
{
    static const struct fr_coll_advert failed = {.what = HAS_FAILED};
    host->by_posts = false;
    return (struct fr_coll_post){.data = &failed, .bytes = HEAD_BYTES, .meets = true};
}

// Loads the data, and what the rank tells of them, behind the head.
static enum fr_status load(const struct fr_coll_team *team, struct fr_coll_host *host)
{
    const size_t all = host->elements * host->element_bytes;
    fr_coll_host_leave_device(host);
    if (host->failure == FR_OK && all > FR_POLICY_SHORT_BYTES)
        host->failure = FR_ERR_TRUNCATE;
    if (host->failure == FR_OK && !host->post)
        host->post = malloc(fr_coll_host_posts_bytes(team->size));
    if (host->failure != FR_OK || !host->post)
        return host->failure != FR_OK ? host->failure : FR_ERR_NO_MEMORY;
    const struct fr_coll_advert head = {.what = HAS_DATA};
    memcpy(host->post, &head, HEAD_BYTES);
    host->by_posts = true;
    host->round = 0;
    host->chunk_bytes = FR_POLICY_SHORT_BYTES;
    host->chunk_elements = FR_POLICY_SHORT_BYTES / host->element_bytes;
    host->chunks = 1;
    if (host->words)
        host->ops->tell(team, host, fr_coll_host_posts_words(team, host, team->rank));
    return all ? host->ops->load(team, host, 0, fr_coll_host_posts_data(team, host, team->rank))
               : FR_OK;
}

struct fr_coll_post fr_coll_host_posts_load(const struct fr_coll_team *team,
                                            struct fr_coll_host *host)
{
    if (load(team, host) != FR_OK)
        return fail(host);
    return (struct fr_coll_post){
        .data = host->post,
        .bytes = data_at(team->size, host->words) + host->elements * host->element_bytes,
        .meets = true,
    };
}

enum fr_coll_posted fr_coll_host_posts_find(const struct fr_coll_team *team,
                                            const struct fr_coll_host *host, uint64_t round)
{
    bool all = true;
    for (int rank = 0; rank < team->size; rank++) {
        const struct fr_coll_advert *advert = fr_coll_round_read(team, rank, round);
        if (!advert->eligible && advert->what == HAS_FAILED) {
            fr_error("%s: rank %d of the communicator has failed", host->call, rank);
            return FR_COLL_POSTED_FAILED;
        }
        all = all && !advert->eligible && advert->what == HAS_DATA;
    }
    return all ? FR_COLL_POSTED_DATA : FR_COLL_POSTED_OTHERS;
}

enum fr_status fr_coll_host_posts_take(const struct fr_coll_team *team, struct fr_coll_host *host,
                                       uint64_t round)
{
    host->round = round;
    enum fr_status status = host->ops->store(team, host, 0);
    return status == FR_OK ? host->result : status;
}

static unsigned char *post_of(const struct fr_coll_team *team, const struct fr_coll_host *host,
                              int rank)
{
    return host->round ? (unsigned char *)(uintptr_t)fr_coll_round_read(team, rank, host->round)
                       : host->post;
}

void *fr_coll_host_posts_words(const struct fr_coll_team *team, const struct fr_coll_host *host,
                               int rank)
{
    return post_of(team, host, rank) + HEAD_BYTES;
}

void *fr_coll_host_posts_data(const struct fr_coll_team *team, const struct fr_coll_host *host,
                              int rank)
{
    return post_of(team, host, rank) + data_at(team->size, host->words);
}
