// SPDX-License-Identifier: BSD-3-Clause
// The library of fakempi.h. Its name says that it is of the standard ABI.
#include "fakempi.h"

#include <stdarg.h>
#include <string.h>

#define EXPORTED __attribute__((visibility("default")))

EXPORTED struct fake_record fake_last;

// Fails every call, with a code that tells the function: what Fabrail itself asks gets no answer.
static int record(int function, const word *args)
{
    fake_last.function = function;
    fake_last.calls++;
    memcpy(fake_last.args, args, sizeof(fake_last.args));
    return FAKE_RESULT + function;
}

#define RECORDER(symbol, function)                                                                 \
    EXPORTED int symbol(FAKE_PARAMETERS);                                                          \
    int symbol(FAKE_PARAMETERS)                                                                    \
    {                                                                                              \
        const word args[] = {a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13};          \
        return record(function, args);                                                             \
    }

// These are not recorders: their names give way while the others are made.
#define MPI_Get_library_version         unused_1
#define PMPI_Get_library_version        unused_2
#define MPI_Initialized                 unused_3
#define PMPI_Initialized                unused_4
#define MPI_Finalized                   unused_5
#define PMPI_Finalized                  unused_6
#define MPI_Pcontrol                    unused_7
#define PMPI_Pcontrol                   unused_8
#define MPI_Wtime                       unused_9
#define PMPI_Wtime                      unused_10
#define MPI_Aint_add                    unused_11
#define PMPI_Aint_add                   unused_12
#define MPIX_Query_cuda_support         unused_13
#define PMPIX_Query_cuda_support        unused_14
#define FR_ROW(name, class, sig, flags) RECORDER(name, FAKE_##name) RECORDER(P##name, FAKE_##name)
#include "fabrail/abi/functions.def"
#include "fabrail/abi/passes.def"
#undef MPI_Get_library_version
#undef PMPI_Get_library_version
#undef MPI_Initialized
#undef PMPI_Initialized
#undef MPI_Finalized
#undef PMPI_Finalized
#undef MPI_Pcontrol
#undef PMPI_Pcontrol
#undef MPI_Wtime
#undef PMPI_Wtime
#undef MPI_Aint_add
#undef PMPI_Aint_add

EXPORTED int PMPI_Get_library_version(char *version, int *length);
int PMPI_Get_library_version(char *version, int *length)
{
    static const char text[] = "an MPI that does nothing";
    memcpy(version, text, sizeof(text));
    *length = sizeof(text) - 1;
    return 0;
}
EXPORTED int MPI_Get_library_version(char *, int *)
    __attribute__((alias("PMPI_Get_library_version")));

EXPORTED int PMPI_Initialized(int *flag);
int PMPI_Initialized(int *flag)
{
    *flag = 0;
    return 0;
}
EXPORTED int MPI_Initialized(int *) __attribute__((alias("PMPI_Initialized")));
EXPORTED int PMPI_Finalized(int *) __attribute__((alias("PMPI_Initialized")));
EXPORTED int MPI_Finalized(int *) __attribute__((alias("PMPI_Initialized")));

// Followed by reals and integers by turns until registers and stack hold some of both.
EXPORTED int PMPI_Pcontrol(const int level, ...);
int PMPI_Pcontrol(const int level, ...)
{
    va_list rest;
    va_start(rest, level);
    fake_last.level = level;
    for (int i = 0; i < 9; i++) {
        fake_last.reals[i] = va_arg(rest, double);
        if (i < 6)
            fake_last.whole[i] = va_arg(rest, long);
    }
    va_end(rest);
    return 0;
}
EXPORTED int MPI_Pcontrol(const int, ...) __attribute__((alias("PMPI_Pcontrol")));

EXPORTED double PMPI_Wtime(void);
double PMPI_Wtime(void)
{
    return 1234567.0625;
}
EXPORTED double MPI_Wtime(void) __attribute__((alias("PMPI_Wtime")));

EXPORTED intptr_t PMPI_Aint_add(intptr_t base, intptr_t displacement);
intptr_t PMPI_Aint_add(intptr_t base, intptr_t displacement)
{
    return base + displacement;
}
EXPORTED intptr_t MPI_Aint_add(intptr_t, intptr_t) __attribute__((alias("PMPI_Aint_add")));
