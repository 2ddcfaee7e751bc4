// SPDX-License-Identifier: BSD-3-Clause
// Operations by CPUs in rounds. A post has a head, what the rank tells of its data, and the data,
// if these are short. The head is that of an advert which is not eligible, and ranks that look for
// adverts read it so.
#include "config.h"

#include "fabrail/coll/host_posts.h"

#include "fabrail/coll/agree.h"
#include "fabrail/coll/host_exchange.h"
#include "fabrail/coll/rounds.h"
#include "fabrail/policy/coll_plan.h"

#include <stdlib.h>
#include <string.h>

enum { HEAD_BYTES = FR_CONTROL_LINE_BYTES };
enum { SLAB_BYTES = 512 }; // most bytes of data in a slab's post, which has room for an advert
_Static_assert(offsetof(struct fr_coll_advert, handles) == HEAD_BYTES, "a head of an advert");

// Values of a head's field `what`. Operations of tasks have other numbers.
#define HAS_DATA   UINT64_C(0x4652736864617461)
#define HAS_FAILED UINT64_C(0x465273686661696c)

static size_t data_at(int size, size_t words)
{
    size_t bytes = HEAD_BYTES + (size_t)size * words * sizeof(uint64_t);
    return (bytes + HEAD_BYTES - 1) / HEAD_BYTES * HEAD_BYTES;
}

// Returns the most bytes of data in a post.
static size_t most_bytes(const struct fr_coll_team *team)
{
    return team->slab ? SLAB_BYTES : FR_POLICY_SHORT_BYTES;
}

bool fr_coll_host_posts_suit(const struct fr_coll_team *team, size_t bytes)
{
    if (team->slab)
        return bytes > 0 && bytes <= SLAB_BYTES;
    return fr_policy_is_short((int64_t)bytes, team->size);
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

// Returns whether the data go chunk by chunk. All ranks find the same.
static bool has_chunks(const struct fr_coll_team *team, const struct fr_coll_host *host)
{
    return team->slab && !host->is_short;
}

// Plans posts or chunks, and makes room for this rank's post and for a chunk of each rank.
static enum fr_status prepare(const struct fr_coll_team *team, struct fr_coll_host *host)
{
    const size_t all = host->elements * host->element_bytes;
    const bool chunks = has_chunks(team, host);
    if (!chunks && all > most_bytes(team))
        return FR_ERR_TRUNCATE;
    host->chunk_bytes = chunks ? fr_coll_slab_chunk_bytes(team->slab) : most_bytes(team);
    host->chunk_elements = host->chunk_bytes / host->element_bytes;
    host->chunks = (host->elements + host->chunk_elements - 1) / host->chunk_elements;
    host->post = malloc(fr_coll_host_posts_bytes(team->size));
    if (chunks)
        host->rooms = malloc((size_t)team->size * host->chunk_bytes);
    return host->post && (!chunks || host->rooms) ? FR_OK : FR_ERR_NO_MEMORY;
}

// Loads a chunk, into the post or to where the others fetch it.
static enum fr_status load_chunk(const struct fr_coll_team *team, struct fr_coll_host *host)
{
    void *data = fr_coll_host_posts_data(team, host, team->rank);
    if (host->chunk >= host->chunks)
        return FR_OK;
    enum fr_status status = host->ops->load(team, host, host->chunk, data);
    if (status == FR_OK && has_chunks(team, host))
        status =
            fr_coll_slab_publish(team->slab, team->round + 1, data,
                                 fr_coll_host_count_in(host, host->chunk) * host->element_bytes);
    return fr_coll_host_copied(host, status);
}

// Loads the data, and what the rank tells of them, behind the head.
static enum fr_status load(const struct fr_coll_team *team, struct fr_coll_host *host)
{
    fr_coll_host_leave_device(host);
    if (host->failure == FR_OK && !host->post)
        host->failure = prepare(team, host);
    if (host->failure != FR_OK)
        return host->failure;
    const struct fr_coll_advert head = {.what = HAS_DATA, .version = host->chunks};
    memcpy(host->post, &head, HEAD_BYTES);
    host->by_posts = true;
    host->round = 0;
    if (host->words)
        host->ops->announce(team, host, fr_coll_host_posts_words(team, host, team->rank));
    host->failure = load_chunk(team, host);
    return host->failure;
}

struct fr_coll_post fr_coll_host_posts_load(const struct fr_coll_team *team,
                                            struct fr_coll_host *host)
{
    if (load(team, host) != FR_OK)
        return fail(host);
    const size_t all = has_chunks(team, host) ? 0 : host->elements * host->element_bytes;
    return (struct fr_coll_post){
        .data = host->post,
        .bytes = data_at(team->size, host->words) + all,
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

static uint64_t chunks_of(const struct fr_coll_team *team, const struct fr_coll_host *host,
                          int rank)
{
    const struct fr_coll_advert *head = fr_coll_round_read(team, rank, host->round);
    return head->version;
}

// Fetches the chunks that this rank needs.
static enum fr_status fetch(const struct fr_coll_team *team, struct fr_coll_host *host)
{
    enum fr_status status = FR_OK;
    for (int rank = 0; rank < team->size && status == FR_OK; rank++) {
        if (rank != team->rank && host->chunk < chunks_of(team, host, rank) &&
            host->ops->needs(team, host, rank, host->chunk))
            status =
                fr_coll_slab_fetch(team->slab, rank, host->round,
                                   fr_coll_host_posts_data(team, host, rank), host->chunk_bytes);
    }
    return status;
}

enum fr_status fr_coll_host_posts_take(const struct fr_coll_team *team, struct fr_coll_host *host,
                                       uint64_t round, bool *goes_on)
{
    enum fr_status status = FR_OK;
    uint64_t most = 1;
    host->round = round;
    for (int rank = 0; rank < team->size; rank++)
        most = chunks_of(team, host, rank) > most ? chunks_of(team, host, rank) : most;
    if (has_chunks(team, host))
        status = fetch(team, host);
    if (status == FR_OK)
        status = host->ops->store(team, host, host->chunk);
    status = fr_coll_host_copied(host, status);
    *goes_on = ++host->chunk < most;
    if (*goes_on) // the others hear of a failure then
        host->failure = status;
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
    if (has_chunks(team, host))
        return host->rooms + (size_t)rank * host->chunk_bytes;
    return post_of(team, host, rank) + data_at(team->size, host->words);
}
