// SPDX-License-Identifier: BSD-3-Clause
// Module abi: the MPI library of the process. The table of all MPI functions, the addresses of the
// real ones, and the personality: what the MPI family's mpi.h says, as data. No MPI is linked and
// no other module includes an mpi.h.
//
// Arguments of MPI functions are words. A handle is an int in the MPICH family and a pointer in
// Open MPI and in the standard ABI; both calling conventions served (x86-64 System V, AArch64
// AAPCS64) pass every integer and pointer argument in a slot of eight bytes of its own, of which a
// callee reads what its parameter's type needs. So one C source calls every family.
#ifndef FR_FABRAIL_ABI_H
#define FR_FABRAIL_ABI_H

#include "fabrail/core.h"

typedef uintptr_t fr_word;

// What a function does with its buffers: which of them matter on which rank, and how long.
enum fr_class {
    FR_CLASS_PASS, // no buffer and no request of interest: the stub jumps to the real function
#define FR_CLASS(name, check, handler) FR_CLASS_##name,
#include "fabrail/abi/classes.def"
#undef FR_CLASS
};

// Every function of the table, in its order; those with stubs come first.
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

// Whether the function only asks whether something has come, as programs do again and again.
bool fr_abi_is_poll(enum fr_fn fn);

// Flags of a row.
enum {
    FR_ROW_LARGE = 1u << 0,      // a _c form: counts are MPI_Count, displacements MPI_Aint
    FR_ROW_PERSISTENT = 1u << 1, // makes a persistent request
    FR_ROW_EXTERNAL = 1u << 2,   // Pack_external: sizes and position are MPI_Aint
};

// Where the arguments of one side of a call stand: of what it sends, or of what it receives; -1 for
// those that the function lacks. Both sides name an argument that they share.
struct fr_abi_side {
    signed char buffer;
    signed char count;         // of elements, or the array of counts
    signed char displacements; // an array
    signed char type;          // or the array of datatypes
    bool has_counts;           // an array of them, by rank or by neighbour
    bool has_types;            // the same: displacements are then in bytes
    bool wide_count;           // MPI_Count in every form
    bool wide_displacements;   // MPI_Aint in every form
};

enum { FR_MAX_BUFFERS = 3 };

// One row of the table: what functions.def says, and where the arguments stand by that, -1 for
// those that the function lacks. `signature` has a letter for each argument, explained there.
struct fr_abi_row {
    const char *name; // "MPI_Send"
    const char *signature;
    enum fr_class class;
    unsigned char flags;
    unsigned char arg_count;
    unsigned char buffer_count;
    unsigned char buffers[FR_MAX_BUFFERS]; // all choice buffers
    struct fr_abi_side send, receive;      // one that is read and written is on both sides
    signed char peer;                      // rank; of an exchange, the receiver's
    signed char sender;                    // rank; of an exchange alone
    signed char root;                      // rank
    signed char comm;
    signed char window;
    signed char window_freed; // pointer to it
    signed char file;
    signed char comm_made;   // pointer to it
    signed char operation;   // of a reduction
    signed char message;     // pointer to it
    signed char request;     // pointer to the one that the call makes
    signed char requests;    // pointer to those that it is given
    signed char one_request; // given by value
    signed char flag;        // pointer to it
    signed char index;       // pointer to it, or to a number
    signed char status;      // pointer to one
    signed char size;        // bytes of a raw buffer
    signed char position;    // pointer to the position in a raw buffer
    signed char address;     // that MPI keeps
};
extern struct fr_abi_row fr_abi_rows[FR_FN_COUNT]; // written by fr_abi_rows_fill alone

// Finds where the arguments of all functions with stubs stand. fr_abi_find and fr_abi_start do
// so; any other user of the rows calls it first. Not thread-safe; idempotent.
void fr_abi_rows_fill(void);

// Who sends what to whom in a collective (shapes.def), which all that treat collectives read.
// Inside of one communicator, that is; between two, the root is in the one and all others are in
// the other.
enum fr_abi_who {
    FR_WHO_ALL,
    FR_WHO_ROOT,
};
enum fr_abi_in_place {
    FR_IN_PLACE_NEVER,
    FR_IN_PLACE_SEND,    // stands for what a receiver sends, which is where it receives
    FR_IN_PLACE_RECEIVE, // stands for what a sender receives, which is where it sends from
};
struct fr_abi_shape {
    enum fr_abi_who sender;
    enum fr_abi_who receiver;
    bool sends_each;    // a slice for each receiver; else one, which all receivers get alike
    bool receives_each; // a slice from each sender; else one
    enum fr_abi_in_place in_place;
    bool is_neighbourly; // between neighbours
    bool reduces;        // what is received is computed from what is sent
};

// The shape of a collective that moves or reduces data, NULL for any other function.
const struct fr_abi_shape *fr_abi_shape_of(enum fr_fn fn);

// Whether all receivers get the same, which is better sent on than sent by one to all.
static inline bool fr_abi_shape_spreads(const struct fr_abi_shape *shape)
{
    return !shape->reduces && !shape->sends_each && shape->receiver == FR_WHO_ALL;
}

// Whether each sends something else to each: in place, what it sends is then overwritten.
static inline bool fr_abi_shape_swaps(const struct fr_abi_shape *shape)
{
    return shape->sends_each && shape->receives_each;
}

// The side of a call that a buffer is on, by the position of that.
static inline const struct fr_abi_side *fr_abi_side_of(enum fr_fn fn, int buffer)
{
    const struct fr_abi_row *row = &fr_abi_rows[fn];
    return row->receive.buffer == buffer ? &row->receive : &row->send;
}

// The function with stubs that is called MPI_x or PMPI_x; FR_FN_STUB_COUNT if there is none.
enum fr_fn fr_abi_named(const char *name);

// Kinds of predefined datatypes, by what MPI lets be done to them; Fortran's integers and those of
// addresses and sizes are INTEGER.
enum fr_abi_family {
    FR_FAMILY_NONE, // of no use to a predefined operation, or not predefined
    FR_FAMILY_C_SIGNED,
    FR_FAMILY_C_UNSIGNED,
    FR_FAMILY_INTEGER,
    FR_FAMILY_FLOATING,
    FR_FAMILY_COMPLEX,
    FR_FAMILY_LOGICAL, // Fortran's
    FR_FAMILY_BOOL,    // C's and C++'s
    FR_FAMILY_BYTES,
    FR_FAMILY_FLOAT_INT, // from here on pairs
    FR_FAMILY_DOUBLE_INT,
    FR_FAMILY_LONG_INT,
    FR_FAMILY_SHORT_INT,
    FR_FAMILY_TWO_INTEGERS,
    FR_FAMILY_TWO_REALS,
};

// Predefined operations, and the number of datatypes that have a family.
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

// What the MPI family's header says. Handles are words; integers are what the header's macros are.
struct fr_abi_personality {
    const char *family; // "Open MPI", "MPICH", "MPI ABI"
    unsigned handle_bytes;
    unsigned status_bytes;
    unsigned status_source_offset;
    unsigned status_tag_offset;
    unsigned status_error_offset;
    int status_bytes_offset;     // of 64 bits, the bytes of a receive that was not cancelled; -1
                                 // unknown
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

// Finds the MPI library in the process, tells its family and fills the tables; also a library that
// came by dlopen(RTLD_LOCAL). Called on the first MPI call of the process; thread-safe, idempotent,
// and waits for no other thread, but for the loader.
// Returns FR_ERR_NOT_FOUND when no MPI is loaded, FR_ERR_UNSUPPORTED when its family is unknown or
// was not built in: then the addresses are known but fr_abi_mpi is not.
FR_MUST_CHECK enum fr_status fr_abi_start(void);

// Finds the addresses of the real functions, and calls none of them. Called by whoever needs no
// more than these; thread-safe, idempotent, and waits for no other thread, but for the loader.
// Returns false when no MPI is loaded, which stays so.
bool fr_abi_find(void);

// Calls the real function: never a stub, a wrapper or a profiler. `args` holds one word for each
// letter of the row's signature. Returns MPI's return value; a function that this MPI lacks logs an
// error and returns MPI_ERR_UNSUPPORTED_OPERATION.
int fr_abi_call(enum fr_fn fn, const fr_word *args);
bool fr_abi_has(enum fr_fn fn);

// Calls the function of another library that stands for this row, at its address.
int fr_abi_call_at(enum fr_fn fn, void *address, const fr_word *args);

// Address of the real function, NULL when this MPI lacks it.
void *fr_abi_address(enum fr_fn fn);

// What tells the loaded object that an address is in from all others, NULL for none.
const void *fr_abi_object_of(const void *address);

// Whether the MPI library itself has made the call that returns to this address.
bool fr_abi_is_internal(uintptr_t return_address);

// Address of a function of any other library in the process, in whichever way that was loaded; NULL
// when none has it. Valid as long as that library stays.
void *fr_abi_find_loaded(const char *symbol);

// Address of the MPI_ function of a profiler that stands between the application and the MPI
// library, NULL when there is none: a call of MPI_x then belongs to the profiler, which calls
// PMPI_x.
void *fr_abi_profiler(enum fr_fn fn);

// FR_MPI(Comm_size, comm, FR_PTR(&size)): a call with a word for every argument.
#define FR_MPI(name, ...) fr_abi_call(FR_FN_MPI_##name, (const fr_word[]){__VA_ARGS__})
#define FR_PTR(p)         ((fr_word)(p))

// A handle out of a register, out of memory, and into memory, in the family's width.
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

// The communicator of a call that has one.
static inline fr_word fr_abi_comm(enum fr_fn fn, const fr_word *args)
{
    return fr_abi_handle(args[fr_abi_rows[fn].comm]);
}

// The size of a datatype in bytes, as MPI_Type_size has it, -1 for what is none: no error handler
// is called, since nobody has looked at the handle yet. For that a communicator is needed that has
// its errors returned (`fr_abi_ask_on`, MPI_COMM_NULL for none): without one MPI is asked by a
// function that may call them.
int fr_abi_type_bytes(fr_word type);
void fr_abi_ask_on(fr_word comm);

// How many bytes a receive has brought that has completed with this status; negative when that is
// not to be had. A load where the family's header tells where the status keeps them.
int64_t fr_abi_status_size(const void *status);

// What kind of predefined datatype or operation a handle is.
enum fr_abi_family fr_abi_family_of(fr_word type);
enum fr_abi_operation fr_abi_operation_of(fr_word operation);

// Whether a datatype is a predefined pair, of which some have gaps.
bool fr_abi_type_is_pair(fr_word type);

// Where handles of predefined datatypes lie, set with the family.
struct fr_abi_handles {
    fr_word first, count;
};
extern struct fr_abi_handles fr_abi_named_types[2];

// True for predefined datatypes, told from the handle alone (no call of MPI). May say false for a
// predefined one, never true for a derived one.
static inline bool fr_abi_type_is_named(fr_word type)
{
    return type - fr_abi_named_types[0].first < fr_abi_named_types[0].count ||
           type - fr_abi_named_types[1].first < fr_abi_named_types[1].count;
}

#endif
