// SPDX-License-Identifier: BSD-3-Clause
// Operations of a team of one host by its CPUs, for ranks that do not reach each other's memory.
// Short ones, and those across hosts, take posts of the team (host_posts.h).
//
// Each rank publishes its data chunk by chunk in shared memory of this operation alone, and takes
// what it needs of the others' chunks. No function of MPI is called, so any thread can go on with
// it. The memory has room for two chunks of each rank, whatever the size of the data, and at most
// 8 MiB of them; with little room in /dev/shm the chunks are short.
#ifndef FR_FABRAIL_COLL_HOST_H
#define FR_FABRAIL_COLL_HOST_H

#include "fabrail/coll.h"
#include "fabrail/job/shm.h"

struct fr_coll_host;

// The functions of reductions, or of exchanges.
struct fr_coll_host_ops {
    // Writes a chunk of this rank's data to `to`.
    enum fr_status (*load)(const struct fr_coll_team *team, const struct fr_coll_host *host,
                           uint64_t chunk, void *to);
    // Returns whether this rank needs data of another one's chunk.
    bool (*needs)(const struct fr_coll_team *team, const struct fr_coll_host *host, int other,
                  uint64_t chunk);
    // Does this rank's share of the work on a chunk, once all ranks have published theirs. It may
    // change parts of chunks that no other rank looks at before all have done their share. NULL:
    // there is none.
    enum fr_status (*share)(const struct fr_coll_team *team, struct fr_coll_host *host,
                            uint64_t chunk);
    // Takes what this rank needs of a chunk of all ranks.
    enum fr_status (*store)(const struct fr_coll_team *team, struct fr_coll_host *host,
                            uint64_t chunk);
    // Writes what this rank announces before it publishes: `words` for each other rank. NULL: it
    // announces nothing.
    void (*announce)(const struct fr_coll_team *team, const struct fr_coll_host *host,
                     uint64_t *words);
};

// One rank's part, the first member of a kind's own struct. The caller writes the members up to the
// ranges, `is_short` and `leave_device`, and in an exchange `likely_bytes`. The function that
// prepares an operation of the kind writes the others up to `words`.
struct fr_coll_host {
    const char *call; // for messages
    uint64_t number;  // of the operation, alike on all ranks; the team has no other one of it
    // This rank can do nothing but tell the others, whose operations fail as well.
    enum fr_status failure;
    struct fr_device_range send_range, receive_range; // of the program's memory
    const struct fr_coll_host_ops *ops;
    size_t element_bytes; // alike on all ranks
    size_t elements;      // of this rank
    size_t likely_bytes;  // of a rank's data; alike on all ranks
    size_t words;         // for each pair of ranks; alike on all ranks
    bool is_short;        // its data fit into posts; alike on all ranks
    // Makes memory ready for the CPU where the operation has first been prepared for devices, and
    // may set `failure`. Calls no function of MPI. NULL: it is ready.
    void (*leave_device)(struct fr_coll_host *host);
    // Written by the functions below, the first two by a kind's operations as well.
    enum fr_status result; // of an operation that has not failed
    void *scratch;         // made with malloc, or NULL; freed with the rest
    bool has_left;         // leave_device was called
    bool by_posts;         // the data are in posts, or published chunks
    unsigned char *post;   // this rank's, or NULL; freed with the rest
    unsigned char *rooms;  // for the chunk of each rank, or NULL; freed with the rest
    bool is_forsaken;      // a copy has failed, and may use this memory or a chunk still
    uint64_t round;        // in which all have posted their data, 0 before that
    uint64_t chunk;        // of the next round
    struct fr_job_shm shm;
    struct fr_job_secret secret;
    bool is_open;
    size_t chunk_bytes, chunk_elements; // alike on all ranks; known when the memory is open
    size_t chunks;                      // of this rank
    struct fr_wait lack;                // the wait for memory
    int64_t retry_ns;
    struct fr_wait time; // the wait for other ranks
    int64_t looked_ns;
    unsigned looks;
};

// Goes on as far as is possible without waiting for another rank. The operation is prepared, and
// begins with the first call. Sets *over when it is over. Returns FR_OK until then, and the result
// of the operation with it. The work of the program on its memory must be over. The caller has the
// team in hand.
FR_MUST_CHECK enum fr_status fr_coll_host_progress(struct fr_coll_team *team,
                                                   struct fr_coll_host *host, bool *over);

// Gives memory back, also of an operation that has not begun or is not over.
void fr_coll_host_end(const struct fr_coll_team *team, struct fr_coll_host *host);

// Tells the others that this rank cannot begin an operation, which then fails on all of them.
// `likely_bytes` and `words` are those of its kind. The caller has the team in hand.
void fr_coll_host_fail(struct fr_coll_team *team, const char *call, uint64_t number,
                       size_t likely_bytes, size_t words);

// Gets the memory ready for the CPU, once.
void fr_coll_host_leave_device(struct fr_coll_host *host);

// The functions below are for the kinds.

// Takes the status of copies to or from memory of the operation, and returns it. After a failure
// the memory is kept for good, since the device may be at it still.
FR_MUST_CHECK enum fr_status fr_coll_host_copied(struct fr_coll_host *host, enum fr_status status);

// Returns a chunk that a rank has published.
void *fr_coll_host_chunk(const struct fr_coll_team *team, const struct fr_coll_host *host, int rank,
                         uint64_t chunk);

// Returns how many elements this rank has in a chunk.
size_t fr_coll_host_count_in(const struct fr_coll_host *host, uint64_t chunk);

// Returns what a rank has told, once all have published: `words` for each rank.
uint64_t *fr_coll_host_words(const struct fr_coll_team *team, const struct fr_coll_host *host,
                             int rank);

#endif
