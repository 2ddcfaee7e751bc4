// SPDX-License-Identifier: BSD-3-Clause
// Buffers of blocks for the collectives of the randomised program: what all ranks agree about, how
// each describes its own side of it, and what the blocks hold.
#ifndef PROGRAMS_RANDOM_BLOCKS_H
#define PROGRAMS_RANDOM_BLOCKS_H

#include "random.h"

// How the blocks of one buffer are described to MPI.
enum spread {
    EVEN,   // one count and type
    VARIED, // a count and a place each, one type
    TYPED,  // a type each, places in bytes
};

// Facts that all ranks of a collective share.
struct deal {
    struct walk *walk;
    const struct circle *circle;
    enum manner manner;
    enum spread spread;
    bool in_place;
    bool plain; // no derived types
    enum base base;
    size_t unit;  // elements of a block; of a part of one when blocks vary
    size_t most;  // bytes of a block
    uint64_t key; // blocks' sizes depend on it
    int root;
    int peers;      // processes that this one exchanges blocks with
    const int *ids; // theirs
};

// The blocks of a side, one a peer.
enum direction {
    OUTGOING, // from here to the peer
    INCOMING, // from the peer to here
    PEERS_OWN // the one that the peer has, whoever gets it
};

// One buffer of blocks.
struct side {
    enum spread spread;
    int n;
    struct form *forms; // one, or one a block
    size_t *elements;
    int *counts, *places;
    MPI_Aint *far;
    MPI_Datatype *types;
    size_t *at; // where a block's address is in the buffer
    size_t bytes, origin;
    struct buffer *buffer;
    void *address; // that MPI is given
};

// The one block that a process has in a gather, scatter or broadcast.
struct single {
    struct form form;
    struct buffer *buffer;
    void *address;
    size_t bytes;
};

struct deal deal_new(struct walk *walk, const struct circle *circle);

// Describes the deal in the text of the round.
void deal_say(const struct deal *deal, const char *what);

// How many times the collective runs, each time with new data.
int deal_times(const struct deal *deal);

struct side side_new(const struct deal *deal, const char *name, int n, const int *ids,
                     enum direction direction);
void side_free(const struct deal *deal, struct side *side);

// Block i is what that seed gives.
void side_write(const struct side *side, int i, uint64_t seed);

// All blocks are what their peers send or get; those of MPI_PROC_NULL stay as they are.
void side_write_all(const struct deal *deal, const struct side *side, const int *ids,
                    enum direction direction);

// The block of process id alone.
struct single single_new(const struct deal *deal, const char *name, int id);
void single_write(const struct single *single, uint64_t seed);
void single_free(const struct deal *deal, struct single *single);

// The data that a process has for everybody.
uint64_t seed_of(const struct deal *deal, int id);

#endif
