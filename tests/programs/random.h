// SPDX-License-Identifier: BSD-3-Clause
// Declarations that the parts of the randomised program share. A walk is the sequence of random
// rounds that one thread of each rank goes through. Choices that concern all ranks are drawn from a
// stream that is alike on all of them, those of one rank from a stream of its own. Both begin anew
// in each round, so that any round can be had alone.
#ifndef PROGRAMS_RANDOM_H
#define PROGRAMS_RANDOM_H

#include "harness.h"

#include <stdatomic.h>

enum { CIRCLES = 8, BLOCKS = 64, TEXT_BYTES = 4000, BSEND_BYTES = 8192 };

// ---- random numbers

uint64_t draw(uint64_t *state);
int draw_below(uint64_t *state, int limit); // 0 .. limit - 1
bool draw_one_in(uint64_t *state, int chances);

// A number that depends on all three alike on every rank.
uint64_t draw_hash(uint64_t a, uint64_t b, uint64_t c);

// Up to most: near the sizes where transports change their ways, or log-uniform.
size_t draw_bytes(uint64_t *state, size_t most);

// The numbers 0 .. count - 1 in random order. The caller frees them.
int *draw_order(uint64_t *state, int count);

// ---- random descriptions of a message

enum base { BASE_BYTE, BASE_SHORT, BASE_INT, BASE_DOUBLE, BASES };

MPI_Datatype base_type(enum base base);
size_t base_bytes(enum base base);

struct piece {
    MPI_Aint at; // from the address of the instance
    size_t bytes;
};

// count instances of a type, one behind the other, whose data are some elements of the base.
struct form {
    const char *name;
    enum base base;
    MPI_Datatype type;
    int count;
    MPI_Aint low, high;   // bytes that one instance touches, from its address
    MPI_Aint extent;      // from one instance to the next; they never overlap
    size_t type_bytes;    // data of one instance
    struct piece *pieces; // of one instance, in the order of the type map
    int piece_count;
};

// The base itself, as an array, when state is NULL.
struct form form_new(uint64_t *state, enum base base, size_t elements);
void form_free(struct form *form);

// Bytes before the address that MPI is given, and of a buffer that holds so many instances.
size_t form_origin(const struct form *form);
size_t form_room(const struct form *form, MPI_Aint instances);

// Writes the first bytes of the stream of seed to where a message of that length has them.
void form_write(const struct form *form, unsigned char *address, size_t bytes, uint64_t seed);

// Copy the first bytes of a message from where it has them, and back.
void form_pack(const struct form *form, const unsigned char *address, unsigned char *packed,
               size_t bytes);
void form_unpack(const struct form *form, unsigned char *address, const unsigned char *packed,
                 size_t bytes);

// ---- communicators

enum making {
    MADE_WORLD,
    MADE_SELF,
    MADE_DUP,
    MADE_IDUP,
    MADE_SPLIT,
    MADE_SUBSET,
    MADE_GRID,
    MADE_GRAPH,
    MADE_BETWEEN,
    MAKINGS
};

// A communicator as one rank has it. The identities of processes are their ranks in the walk's own
// communicator of all.
struct circle {
    enum making making; // alike on all ranks
    MPI_Comm comm;      // MPI_COMM_NULL on ranks outside
    int rank, size;
    int *members;         // identities of all members, of this rank's side if there are two
    int side;             // of two groups, 0 or 1
    int remote_size;      // 0 unless there are two groups
    int *remote;          // identities of the other side
    int sources, targets; // of a topology
    int *from, *to;       // identities; MPI_PROC_NULL beyond the edge of a grid
};

// ---- the walk

struct mixture {
    const enum memory_kind *kinds;
    int kind_count;
    size_t most_bytes;
    int threads;
    uint64_t first_round, rounds; // rounds 0: as many as the seconds allow
    int seconds;
    uint64_t break_round; // 0: never
    int windows;          // one round in so many is on windows; 0: none
    bool trace;
    int stuck_seconds;
};

struct block {
    struct memory memory; // address NULL: the place is free
    bool used;
    int kind_index;
};

struct walk {
    struct run run; // comm: a communicator of all ranks that is this walk's alone
    const struct mixture *mixture;
    int thread;
    uint64_t round;
    uint64_t common, own; // streams of this round
    uint64_t stage;       // counts the data sets of this round
    struct circle *circles[CIRCLES];
    struct block blocks[BLOCKS];
    struct tally *tallies; // a kind
    bool broken;
    atomic_ulong progress; // rounds done; what the watchdog looks at
    char text[TEXT_BYTES]; // what happens now, for messages
    size_t text_bytes;
};

// Adds to the description of the round.
void walk_say(struct walk *walk, const char *format, ...) __attribute__((format(printf, 2, 3)));

void form_say(struct walk *walk, const struct form *form);

// From here on run_seed gives other data.
void walk_new_data(struct walk *walk);

// A buffer of random kind at a random place of an allocation, new or used before. Its content is
// what no peer ever sends.
struct buffer *walk_buffer(struct walk *walk, const char *name, size_t bytes, size_t alignment);

// Makes a buffer for a window, mostly in memory that other processes can map.
struct buffer *walk_window(struct walk *walk, size_t bytes, size_t alignment);

// Compares it, and counts that for its kind.
void walk_check(struct walk *walk, struct buffer *buffer);

// Checks, and gives the memory back or keeps it for later buffers.
void walk_finish(struct walk *walk, struct buffer *buffer);
void walk_release_memory(struct walk *walk);

// Makes or frees a communicator, or neither.
void circles_change(struct walk *walk);
void circles_start(struct walk *walk);
void circles_stop(struct walk *walk);
const char *circle_name(const struct circle *circle);
int circle_id(const struct circle *circle); // of this process

// A round of one kind on a communicator. Only its members call these.
void round_collective(struct walk *walk, const struct circle *circle);
void round_reduction(struct walk *walk, const struct circle *circle);
void round_messages(struct walk *walk, const struct circle *circle);
void round_shift(struct walk *walk, const struct circle *circle);
void round_windows(struct walk *walk, const struct circle *circle); // not of two groups

// How a collective is called.
enum manner { BLOCKING, NONBLOCKING, STANDING, MANNERS };

#ifdef HAVE_PERSISTENT_COLLECTIVES
#define IF_STANDING(name, ...) MPI_##name##_init(__VA_ARGS__)
#else
#define IF_STANDING(name, ...) ((void)0)
#endif

// Calls MPI_upper, MPI_Ilower or MPI_upper_init.
#define IN_MANNER(manner, request, upper, lower, ...)                                              \
    do {                                                                                           \
        if ((manner) == BLOCKING)                                                                  \
            MPI_##upper(__VA_ARGS__);                                                              \
        else if ((manner) == NONBLOCKING)                                                          \
            MPI_I##lower(__VA_ARGS__, request);                                                    \
        else                                                                                       \
            IF_STANDING(upper, __VA_ARGS__, MPI_INFO_NULL, request);                               \
    } while (0)

enum manner manner_draw(uint64_t *common);
const char *manner_name(enum manner manner);

// Starts a standing collective and completes whatever is not complete.
void manner_complete(struct walk *walk, enum manner manner, MPI_Request *request);

#endif
