// SPDX-License-Identifier: BSD-3-Clause
// A collection of derived datatypes of every constructor, and what a message between two of them
// does to the receiver's buffer.
#ifndef PROGRAMS_TYPES_H
#define PROGRAMS_TYPES_H

#include "harness.h"

// A message as one side describes it: count times a type at an origin inside a buffer.
struct shape {
    const char *name;
    MPI_Datatype type;
    int count;
    size_t origin; // of the buffer argument: types may reach to both sides of it
    size_t bytes;  // of a buffer that holds everything the message touches and some more
    int ints;      // number of MPI_INT in the message; 0 when it is made of other types too
};

// Number of types in the collection.
int shape_count(void);

// The type of that number, scaled so that a message has about n integers.
struct shape shape_new(int number, int n);

// A plain run of MPI_INT.
struct shape shape_plain(int ints);
void shape_free(struct shape *shape);

// A buffer for a message; the one to send from is filled with the stream of seed.
struct buffer *shape_buffer(struct run *run, const char *name, const struct shape *shape);
struct buffer *shape_filled(struct run *run, const char *name, const struct shape *shape,
                            uint64_t seed);

// The arguments that MPI is given for it.
void *shape_address(const struct buffer *buffer, const struct shape *shape);

// The bytes of a message out of a buffer that holds the stream of seed, in order. The caller frees
// them. Their number is written to bytes.
void *shape_message(const struct shape *shape, uint64_t seed, int *bytes);

// The receiver's buffer after a message, no longer than it expects, from a buffer that holds the
// stream of seed.
void shape_expect(struct buffer *recv, const struct shape *to, const struct shape *from,
                  uint64_t seed);

#endif
