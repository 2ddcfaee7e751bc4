// SPDX-License-Identifier: BSD-3-Clause
// An MPI library that does nothing but remember the arguments of the last call, so that a caller
// can tell whether they came through the stubs as they were.
#ifndef INTERPOSE_FAKEMPI_H
#define INTERPOSE_FAKEMPI_H

#include <stdint.h>

enum { FAKE_ARGS = 14, FAKE_RESULT = 100000 };

typedef uintptr_t word;
#define FAKE_PARAMETERS                                                                            \
    word a0, word a1, word a2, word a3, word a4, word a5, word a6, word a7, word a8, word a9,      \
        word a10, word a11, word a12, word a13

// Every function of the table, numbered: first those that have stubs.
enum fake_function {
#define FR_ROW(name, class, signature, flags) FAKE_##name,
#include "fabrail/abi/functions.def"
    FAKE_STUBS,
    FAKE_LAST_STUB = FAKE_STUBS - 1,
#include "fabrail/abi/passes.def"
#undef FR_ROW
    FAKE_FUNCTIONS
};

struct fake_record {
    int function;
    unsigned calls;
    word args[FAKE_ARGS];
    int level; // of MPI_Pcontrol, with what followed it
    double reals[9];
    long whole[6];
};
extern struct fake_record fake_last;

#endif
