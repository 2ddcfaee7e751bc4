// SPDX-License-Identifier: BSD-3-Clause
// The table of functions that Fabrail serves or calls, with the positions of their arguments, and
// the shapes of collectives.
#ifndef FR_FABRAIL_ABI_ROWS_H
#define FR_FABRAIL_ABI_ROWS_H

#include "fabrail/core.h"

typedef uintptr_t fr_word;

// Classes of functions, by what they do with their buffers and requests. classes.def describes
// each.
enum fr_class {
    FR_CLASS_PASS, // no buffer and no request of interest: the stub jumps to the real function
#define FR_CLASS(name, check, meanwhile, handler) FR_CLASS_##name,
#include "fabrail/abi/classes.def"
#undef FR_CLASS
};

// Every function of the table, in the order of its rows. Functions with stubs come first.
enum fr_fn {
#define FR_ROW(name, class, signature, flags) FR_FN_##name,
#include "fabrail/abi/functions.def"
    FR_FN_STUB_COUNT,
    FR_FN_BEFORE_PASSES = FR_FN_STUB_COUNT - 1,
#include "fabrail/abi/passes.def"
#undef FR_ROW
    FR_FN_COUNT,
};

enum { FR_MAX_ARGS = 16 };

// Returns whether the function only asks if something has come, as programs do again and again.
bool fr_abi_is_poll(enum fr_fn fn);

// Returns whether the function sends or receives a message, or both. Partitioned messages and
// probes do not count.
bool fr_abi_is_message(enum fr_fn fn);

// Flags of a row.
enum {
    FR_ROW_LARGE = 1u << 0,      // a _c form: counts are MPI_Count, displacements MPI_Aint
    FR_ROW_PERSISTENT = 1u << 1, // makes a persistent request
    FR_ROW_EXTERNAL = 1u << 2,   // Pack_external: sizes and position are MPI_Aint
};

// Positions of the arguments of one side of a call: what it sends, or what it receives. A position
// is -1 where the function lacks the argument. An argument that both sides share has its position
// in both.
struct fr_abi_side {
    signed char buffer;
    signed char count;         // number of elements, or an array of such numbers
    signed char displacements; // an array
    signed char type;          // a datatype, or an array of them
    bool has_counts;           // `count` is an array, by rank or by neighbour
    bool has_types;            // `type` is an array; displacements are then in bytes
    bool wide_count;           // MPI_Count in every form
    bool wide_displacements;   // MPI_Aint in every form
};

enum { FR_MAX_BUFFERS = 3 };

// One row of the table: the function as functions.def describes it, and the positions of its
// arguments, -1 for those that it lacks. `signature` has a letter for each argument; functions.def
// explains the letters.
struct fr_abi_row {
    const char *name; // "MPI_Send"
    const char *signature;
    enum fr_class class;
    const struct fr_abi_shape *shape; // of a collective that moves or reduces data; else NULL
    unsigned char flags;
    unsigned char arg_count;
    unsigned char buffer_count;
    unsigned char buffers[FR_MAX_BUFFERS]; // all choice buffers
    struct fr_abi_side send, receive;      // a buffer that is read and written is on both
    signed char peer;                      // rank; in a Sendrecv, of the receiver
    signed char sender;                    // rank; in a Sendrecv alone
    signed char root;                      // rank
    signed char comm;
    signed char window;
    signed char window_freed; // pointer to it
    signed char file;
    signed char comm_made;   // pointer to it
    signed char operation;   // of a reduction
    signed char message;     // pointer to it
    signed char request;     // pointer to the request that the call makes
    signed char requests;    // pointer to the requests that the call is given
    signed char one_request; // a request given by value
    signed char flag;        // pointer to it
    signed char index;       // pointer to an index, or to a number
    signed char status;      // pointer to a status or to an array of them
    signed char size;        // bytes of a raw buffer
    signed char position;    // pointer to the position in a raw buffer
    signed char address;     // address or value that MPI keeps
    signed char info;        // an info, or pointer to the one that the call makes
};
extern FR_OWN struct fr_abi_row fr_abi_rows[FR_FN_COUNT]; // written by fr_abi_rows_fill alone

// Fills fr_abi_rows; functions without stubs get no positions. fr_abi_find and fr_abi_start call
// it. Any other user of the rows calls it first. Not thread-safe; idempotent.
void fr_abi_rows_fill(void);

// The shape of a collective: who sends what to whom. The rows are in src/abi/shapes.def; all code
// that treats collectives reads them. They describe a call within one communicator. Between two,
// the root is in one of them and all other ranks of the call in the other.
enum fr_abi_who {
    FR_WHO_ALL,
    FR_WHO_ROOT,
};
enum fr_abi_in_place {
    FR_IN_PLACE_NEVER,
    FR_IN_PLACE_SEND,    // stands for what a receiver sends, which lies where it receives
    FR_IN_PLACE_RECEIVE, // stands for what a sender receives, which lies where it sends from
};
struct fr_abi_shape {
    enum fr_abi_who sender;
    enum fr_abi_who receiver;
    bool sends_each;    // a sender has a slice for each receiver; else one slice for all receivers
    bool receives_each; // a receiver gets a slice from each sender; else one slice
    enum fr_abi_in_place in_place;
    bool is_neighbourly; // ranks send to their neighbours alone
    bool reduces;        // what is received is computed from what is sent
};

// Returns whether all receivers get the same bytes. These are better handed on by the receivers
// than sent by one rank to all.
static inline bool fr_abi_shape_spreads(const struct fr_abi_shape *shape)
{
    return !shape->reduces && !shape->sends_each && shape->receiver == FR_WHO_ALL;
}

// Returns whether each sender has something else for each receiver. In place, what a rank sends is
// then overwritten by what it receives.
static inline bool fr_abi_shape_swaps(const struct fr_abi_shape *shape)
{
    return shape->sends_each && shape->receives_each;
}

// Returns the side of a call that a buffer is on, by the buffer's position.
static inline const struct fr_abi_side *fr_abi_side_of(enum fr_fn fn, int buffer)
{
    const struct fr_abi_row *row = &fr_abi_rows[fn];
    return row->receive.buffer == buffer ? &row->receive : &row->send;
}

// Returns the function with stubs whose name is `name`, MPI_x or PMPI_x; FR_FN_STUB_COUNT if there
// is none.
enum fr_fn fr_abi_named(const char *name);

#endif
