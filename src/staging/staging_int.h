// SPDX-License-Identifier: BSD-3-Clause
// Inside of module staging: regions of host memory that are cut into blocks of a few sizes, and
// pools of device memory that are cut into extents of any.
#ifndef FR_STAGING_STAGING_INT_H
#define FR_STAGING_STAGING_INT_H

#include "fabrail/core/list.h"
#include "fabrail/staging.h"
#include "fabrail/staging/typed_copy.h"

// Block sizes: powers of two from 4 KiB to 64 MiB, then four steps a doubling, so that no more than
// a fifth of a large block is wasted.
enum { FR_STAGING_CLASSES = 95 };

// Returns the class of the smallest blocks that hold `bytes`, FR_STAGING_CLASSES if none does.
unsigned fr_staging_class_of(size_t bytes);

// Returns the size in bytes of the blocks of a class.
size_t fr_staging_class_bytes(unsigned class_index);

// A block: host memory that one lease gets. Free blocks of a class are in one list, latest returned
// first.
struct fr_staging_block {
    struct fr_list free_link;
    struct fr_staging_region *region;
    void *address;
};

// A region: host memory that is mapped and page-locked as a whole. It holds one large block or many
// small ones, since registering memory costs tens of microseconds whatever its size.
struct fr_staging_region {
    struct fr_list idle_link; // in a list of regions of which nothing is lent
    uint64_t idle_since_ns;
    void *address;
    size_t bytes;
    uint64_t id;
    unsigned class_index;
    bool pinned;
    unsigned lent_count;
    unsigned block_count;
    struct fr_staging_block blocks[];
};

// Returns the bytes of a region for blocks of this class.
size_t fr_staging_region_bytes(unsigned class_index);

// Maps a region. `pin` asks for page-locked memory; region->pinned tells whether it is. Returns
// NULL when the system has no memory.
struct fr_staging_region *fr_staging_region_create(unsigned class_index, bool pin);

// Page-locks a region that is not page-locked. Returns whether it is now. The caller sets
// region->pinned.
bool fr_staging_region_pin(struct fr_staging_region *region);
void fr_staging_region_destroy(struct fr_staging_region *region);

// An extent: a piece of a chunk, lent or not. The structures lie apart from the memory, which the
// CPU cannot touch.
struct fr_staging_extent {
    struct fr_list order; // in the list of all extents of the chunk, by address
    struct fr_list free;  // in the list of those that are not lent, by address; or of spares
    struct fr_staging_chunk *chunk;
    size_t offset_bytes;
    size_t bytes;
    bool lent;
};

// A chunk: device memory that the driver allocates as a whole.
struct fr_staging_chunk {
    struct fr_list link;  // in its pool, or among chunks about to be destroyed
    struct fr_list order; // all extents, by address
    struct fr_list free;  // extents that are not lent, by address
    struct fr_device_memory memory;
    struct fr_device_range range; // of all of it
    size_t lent_bytes;
    size_t room_bytes; // no free extent is larger
    uint64_t idle_since_ns;
};

// The pool of one device: its chunks. Callers that share a pool lock it. Functions of a pool do not
// call the driver.
struct fr_staging_pool {
    struct fr_list chunks; // newest first; no links before fr_staging_pool_init
    struct fr_list spares; // extents that stand for no memory
    size_t bytes;          // of all chunks
    size_t idle_bytes;     // of chunks of which nothing is lent
    size_t lent_bytes;
    uint64_t queried_ns; // when the driver was last asked how much is left
    bool is_growing;     // a thread is making a chunk
};

// Chunks are multiples of this, as drivers allocate in such units.
#define FR_STAGING_CHUNK_UNIT ((size_t)2 << 20)

void fr_staging_pool_init(struct fr_staging_pool *pool);

// Returns the bytes that a lease of `bytes` takes in a chunk.
size_t fr_staging_pool_round(size_t bytes);

// Lends `bytes`, rounded by fr_staging_pool_round, at the lowest free address of the newest chunk
// with room. Returns NULL when there is no room. The pool must have a spare extent.
struct fr_staging_extent *fr_staging_pool_lend(struct fr_staging_pool *pool, size_t bytes);

// Takes an extent back. Returns whether its chunk is idle now: nothing of it is lent.
bool fr_staging_pool_give_back(struct fr_staging_pool *pool, struct fr_staging_extent *extent,
                               uint64_t now_ns);

// Returns the bytes of the chunk to add for a lease of `bytes` for which no chunk has room. Assumes
// that all idle chunks are given up. `max_bytes` bounds the pool; returns 0 if it leaves no room.
size_t fr_staging_pool_plan(const struct fr_staging_pool *pool, size_t bytes, size_t max_bytes);

// Adds a chunk with its memory to the pool, which owns it from now on. `whole` becomes the extent
// of all its memory, `spare` one to split with.
void fr_staging_pool_add(struct fr_staging_pool *pool, struct fr_staging_chunk *chunk,
                         struct fr_staging_extent *whole, struct fr_staging_extent *spare);

// Moves chunks that have been idle for `min_idle_ns` to the list of victims, whose owner destroys
// them. Returns their bytes.
size_t fr_staging_pool_condemn(struct fr_staging_pool *pool, uint64_t now_ns, uint64_t min_idle_ns,
                               struct fr_list *victims);

// A chunk that has been idle for so long goes back to the driver when a lease is returned.
#define FR_STAGING_IDLE_NS ((uint64_t)5 * 1000 * 1000 * 1000)

// Takes back an extent of device memory at the time `now_ns`.
void fr_staging_device_return(struct fr_staging_extent *extent, uint64_t now_ns);

// Makes sure that somebody looks for idle memory before long, tables included.
void fr_staging_device_look_after(uint64_t now_ns);

// Gives back tables of datatypes in device memory (tables.h) that no copy has used since a time;
// UINT64_MAX stands for all that no copy uses now. Returns whether there was one.
bool fr_staging_tables_drop(uint64_t unused_since_ns);

// Returns whether there are tables of datatypes in device memory.
bool fr_staging_tables_any(void);

// Tells the watcher (fr_staging_watch) that memory with this id is about to be given back.
void fr_staging_tell_watcher(uint64_t id);

// Gives back the device memory that is not lent.
void fr_staging_device_release(void);

// Lends `bytes` (> 0) of host address space, for memory that is hardly ever used. It is pageable,
// and takes no memory before it is touched. Its first two pages may hold what an earlier borrower
// has written. The other pages go back to the system on return, unless the lease says `is_clean`.
// Returns FR_ERR_NO_MEMORY where the system bounds what processes reserve.
FR_MUST_CHECK enum fr_status fr_staging_reserve(size_t bytes, struct fr_staging_lease *lease);

// Returns whether a lease is of page-locked host memory, which every device reaches.
bool fr_staging_is_pinned(const struct fr_staging_lease *lease);

// Takes address space back. Unless it `is_clean`, pages that were touched go back to the system.
void fr_staging_reservation_return(struct fr_staging_reservation *reservation, bool is_clean);

// Gives back address space that is not lent.
void fr_staging_reservations_release(void);

// Writes the address of the first byte of the program's that a copy touches, and of the byte behind
// the last.
void fr_staging_packing_span(const struct fr_staging_packing *packing, uintptr_t *low,
                             uintptr_t *high);

// Packs by the CPU and waits, if that takes less time than giving the pieces to the driver. Returns
// whether it has; failures stay in the batch.
bool fr_staging_pack_on_host(const struct fr_staging_packing *packing,
                             const struct fr_policy_pieces *pieces, struct fr_device_batch *batch);

#endif
