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

#include "fabrail/abi/rows.h"

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
extern FR_OWN struct fr_abi_personality fr_abi_mpi; // valid once fr_abi_start returned FR_OK

static inline bool fr_abi_is_open_mpi(void)
{
    return fr_abi_mpi.family[0] == 'O'; // as that of no other family
}

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
extern FR_OWN void *fr_abi_reals[FR_FN_COUNT];
static inline void *fr_abi_address(enum fr_fn fn)
{
    return fr_abi_reals[fn];
}

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

// Returns whether MPI_COMM_WORLD and MPI_COMM_SELF can be used: from the end of MPI_Init to that of
// MPI_Finalize. A program that uses sessions alone never has them.
bool fr_abi_has_world(void);

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
extern FR_OWN struct fr_abi_handles fr_abi_named_types[2];

// Returns true for predefined datatypes, told from the handle alone without a call of MPI. May
// return false for a predefined datatype, but never true for a derived one.
static inline bool fr_abi_type_is_named(fr_word type)
{
    return type - fr_abi_named_types[0].first < fr_abi_named_types[0].count ||
           type - fr_abi_named_types[1].first < fr_abi_named_types[1].count;
}

#endif
