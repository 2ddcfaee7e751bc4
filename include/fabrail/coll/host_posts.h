// SPDX-License-Identifier: BSD-3-Clause
// Operations of a team by its CPUs (host.h) in rounds of the team, so that nothing has to be opened
// or mapped. Each rank posts its data in a round. A rank without device memory posts short ones in
// place of an advert. If all do, that round is all that it takes.
//
// On one host these are short operations alone. Across hosts they are all operations that ranks do
// not move on their devices. Data that are longer than a post are published chunk by chunk, each in
// a round (slab.h).
#ifndef FR_FABRAIL_COLL_HOST_POSTS_H
#define FR_FABRAIL_COLL_HOST_POSTS_H

#include "fabrail/coll/host.h"
#include "fabrail/coll/slab.h"

// The content of the posts of all ranks in a round.
enum fr_coll_posted {
    FR_COLL_POSTED_DATA,   // each has its data
    FR_COLL_POSTED_OTHERS, // some do not
    FR_COLL_POSTED_FAILED, // some rank cannot load its data
};

// Returns the most bytes of a post in a team of `size` ranks.
size_t fr_coll_host_posts_bytes(int size);

// Makes this rank's post, which stays valid until the operation ends. A rank that cannot load its
// data says so in it.
struct fr_coll_post fr_coll_host_posts_load(const struct fr_coll_team *team,
                                            struct fr_coll_host *host);

// Returns what all ranks have posted in a round, which is complete. All ranks find the same. Logs
// which rank has failed.
enum fr_coll_posted fr_coll_host_posts_find(const struct fr_coll_team *team,
                                            const struct fr_coll_host *host, uint64_t round);

// Returns whether data of so many bytes a rank fit into posts. All ranks find the same.
bool fr_coll_host_posts_suit(const struct fr_coll_team *team, size_t bytes);

// Takes what this rank needs of the data of all ranks. Sets *goes_on, on all ranks, if that was not
// all, and all post once more. Else it returns the result of the operation.
FR_MUST_CHECK enum fr_status fr_coll_host_posts_take(const struct fr_coll_team *team,
                                                     struct fr_coll_host *host, uint64_t round,
                                                     bool *goes_on);

// Returns what a rank tells, and its data. For host.c alone.
void *fr_coll_host_posts_words(const struct fr_coll_team *team, const struct fr_coll_host *host,
                               int rank);
void *fr_coll_host_posts_data(const struct fr_coll_team *team, const struct fr_coll_host *host,
                              int rank);

#endif
