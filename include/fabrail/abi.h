// SPDX-License-Identifier: BSD-3-Clause
// Module abi: the MPI library of the process. It holds the table of the functions that Fabrail
// serves or calls, the addresses of the real ones, and the personality: what the MPI family's mpi.h
// says, as data. No MPI is linked, and no mpi.h is included.
//
// Arguments of MPI functions are words. A handle is an int in the MPICH family, and a pointer in
// Open MPI and in the standard ABI. Both calling conventions served (x86-64 System V, AArch64
// AAPCS64) pass every integer and pointer argument in a slot of eight bytes. The callee reads as
// much of it as its parameter's type needs. So one C source calls every family.
#ifndef FR_FABRAIL_ABI_H
#define FR_FABRAIL_ABI_H

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
};
extern struct fr_abi_row fr_abi_rows[FR_FN_COUNT]; // written by fr_abi_rows_fill alone

// Fills fr_abi_rows with the positions of the arguments of all functions with stubs. fr_abi_find
// and fr_abi_start call it; any other user of the rows calls it first. Not thread-safe; idempotent.
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

// Returns the shape of a collective that moves or reduces data, NULL for any other function.
const struct fr_abi_shape *fr_abi_shape_of(enum fr_fn fn);

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

// Families of predefined datatypes, by the operations that MPI allows on them. Fortran's integers
// and the types of addresses and sizes are INTEGER.
enum fr_abi_family {
    FR_FAMILY_NONE, // not predefined, or not for predefined operations
    FR_FAMILY_C_SIGNED,
    FR_FAMILY_C_UNSIGNED,
    FR_FAMILY_INTEGER,
    FR_FAMILY_FLOATING,
    FR_FAMILY_COMPLEX,
    FR_FAMILY_LOGICAL, // Fortran's
    FR_FAMILY_BOOL,    // C's and C++'s
    FR_FAMILY_BYTES,
    FR_FAMILY_FLOAT_INT, // the families from here on are pairs
    FR_FAMILY_DOUBLE_INT,
    FR_FAMILY_LONG_INT,
    FR_FAMILY_SHORT_INT,
    FR_FAMILY_TWO_INTEGERS,
    FR_FAMILY_TWO_REALS,
};

// Predefined operations, and predefined datatypes that have a family.
enum fr_abi_operation {
#define FR_DATATYPE(name, family)
#define FR_OPERATION(name) FR_OPERATION_##name,
#include "fabrail/abi/types.def"
#undef FR_DATATYPE
#undef FR_OPERATION
    FR_OPERATIONS, // any other
};
enum fr_abi_datatype {
#define FR_DATATYPE(name, family) FR_DATATYPE_##name,
#define FR_OPERATION(name)
#include "fabrail/abi/types.def"
#undef FR_DATATYPE
#undef FR_OPERATION
    FR_DATATYPES,
};

// The content of the MPI family's mpi.h as data. Handles are words, integers are as the macros of
// that header.
struct fr_abi_personality {
    const char *family; // "Open MPI", "MPICH", "MPI ABI"
    unsigned handle_bytes;
    unsigned status_bytes;
    unsigned status_source_offset;
    unsigned status_tag_offset;
    unsigned status_error_offset;
    int status_bytes_offset; // offset of 64 bits, the bytes of an uncancelled receive; -1: unknown
    fr_word types[FR_DATATYPES]; // DATATYPE_NULL or 0 where the family has none
    fr_word operations[FR_OPERATIONS];
#define FR_HANDLE(name)  fr_word name;
#define FR_ADDRESS(name) fr_word name;
#define FR_INT(name)     int name;
#include "fabrail/abi/constants.def"
#undef FR_HANDLE
#undef FR_ADDRESS
#undef FR_INT
};
extern struct fr_abi_personality fr_abi_mpi; // valid once fr_abi_start returned FR_OK

// Finds the MPI library in the process, identifies its family and fills the tables. It also finds a
// library that was opened with dlopen(RTLD_LOCAL). Called on the first MPI call of the process.
// Thread-safe and idempotent; waits for no other thread except in the loader. Returns
// FR_ERR_NOT_FOUND when no MPI is loaded, and FR_ERR_UNSUPPORTED when its family is unknown. In the
// second case the addresses are known, but fr_abi_mpi is not.
FR_MUST_CHECK enum fr_status fr_abi_start(void);

// Finds the addresses of the real functions and calls none of them, for callers that need no more
// than the addresses. Thread-safe and idempotent; waits for no other thread except in the loader.
// Returns false when no MPI is loaded; later calls then return false as well.
bool fr_abi_find(void);

// Calls the real function: never a stub, a wrapper or a profiler. `args` holds one word for each
// letter of the row's signature. Returns MPI's return value. For a function that this MPI lacks,
// logs an error and returns MPI_ERR_UNSUPPORTED_OPERATION.
int fr_abi_call(enum fr_fn fn, const fr_word *args);

// Returns whether this MPI has the function. Valid after fr_abi_find.
bool fr_abi_has(enum fr_fn fn);

// Calls another library's version of this row's function, such as a profiler's, at its address.
// `args` is as for fr_abi_call. Returns what that function returns.
int fr_abi_call_at(enum fr_fn fn, void *address, const fr_word *args);

// Returns the address of the real function, NULL when this MPI lacks it. Valid after fr_abi_find.
void *fr_abi_address(enum fr_fn fn);

// Returns an identity of the loaded object that `address` is in, NULL if it is in none. No two
// objects have the same one.
const void *fr_abi_object_of(const void *address);

// Returns whether the MPI library itself made the call that returns to this address.
bool fr_abi_is_internal(uintptr_t return_address);

// Returns the address of a function of any library in the process, however that was loaded; NULL
// when none has the function. Valid as long as that library stays loaded.
void *fr_abi_find_loaded(const char *symbol);

// Returns the address of the MPI_ function of a profiler that stands between the application and
// the MPI library, NULL when there is none. A call of MPI_x then belongs to the profiler, which
// calls PMPI_x.
void *fr_abi_profiler(enum fr_fn fn);

// Calls the real function, with a word for every argument: FR_MPI(Comm_size, comm, FR_PTR(&size)).
#define FR_MPI(name, ...) fr_abi_call(FR_FN_MPI_##name, (const fr_word[]){__VA_ARGS__})
#define FR_PTR(p)         ((fr_word)(p))

// Take a handle out of a register, load one from memory, and store one to memory, in the family's
// width.
static inline fr_word fr_abi_handle(fr_word raw)
{
    return fr_abi_mpi.handle_bytes == 4 ? (fr_word)(uint32_t)raw : raw;
}
static inline fr_word fr_abi_handle_load(const void *array, size_t index)
{
    return fr_abi_mpi.handle_bytes == 4 ? (fr_word)((const uint32_t *)array)[index]
                                        : ((const fr_word *)array)[index];
}
static inline void fr_abi_handle_store(void *array, size_t index, fr_word handle)
{
    if (fr_abi_mpi.handle_bytes == 4)
        ((uint32_t *)array)[index] = (uint32_t)handle;
    else
        ((fr_word *)array)[index] = handle;
}

// Returns the communicator argument of a call. The function must have one.
static inline fr_word fr_abi_comm(enum fr_fn fn, const fr_word *args)
{
    return fr_abi_handle(args[fr_abi_rows[fn].comm]);
}

// Returns the size of a datatype in bytes, as MPI_Type_size does, or -1 where the handle is no
// datatype. The handle may be wrong, so no error handler is called if fr_abi_ask_on has set a
// communicator. Without one, MPI is asked by a function that may call error handlers.
int fr_abi_type_bytes(fr_word type);

// Sets the communicator, with errors returned on it, by which fr_abi_type_bytes asks MPI.
// MPI_COMM_NULL sets none. Not thread-safe.
void fr_abi_ask_on(fr_word comm);

// Returns the bytes of a receive that has completed with this status, or a negative number when MPI
// does not tell. Costs one load where the family's mpi.h says where the status keeps them.
int64_t fr_abi_status_size(const void *status);

// Return the family of a datatype, and which predefined operation a handle is. Other handles give
// FR_FAMILY_NONE and FR_OPERATIONS.
enum fr_abi_family fr_abi_family_of(fr_word type);
enum fr_abi_operation fr_abi_operation_of(fr_word operation);

// Returns whether a datatype is a predefined pair. Some pairs have gaps.
bool fr_abi_type_is_pair(fr_word type);

// A range of handles of predefined datatypes. Set with the family.
struct fr_abi_handles {
    fr_word first, count;
};
extern struct fr_abi_handles fr_abi_named_types[2];

// Returns true for predefined datatypes, told from the handle alone without a call of MPI. May
// return false for a predefined datatype, but never true for a derived one.
static inline bool fr_abi_type_is_named(fr_word type)
{
    return type - fr_abi_named_types[0].first < fr_abi_named_types[0].count ||
           type - fr_abi_named_types[1].first < fr_abi_named_types[1].count;
}

#endif
