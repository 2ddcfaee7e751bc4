// SPDX-License-Identifier: BSD-3-Clause
// MPI_Win_get_attr of Fortran. Bindings of MPI libraries look into the real MPI's window by
// functions of their own, and find memory of Fabrail's there. So Fabrail exports the names that
// compilers make of this function. In a process without Fortran nobody calls them.
#include "config.h"

#include "fabrail/core/object.h"
#include "fabrail/rma.h"
#include "intercept/intercept_int.h"

#include <dlfcn.h>
#include <string.h>

typedef void get_attr(const int *win, const int *keyval, intptr_t *value, int *flag, int *error);

// Tells what a window over device memory answers. Returns false for other windows and attributes.
static bool tell(const int *win, const int *keyval, intptr_t *value, int *flag, int *error)
{
    // MPICH has keys of their own for Fortran, each next to that of C.
    int key =
        strcmp(fr_abi_mpi.family ? fr_abi_mpi.family : "", "MPICH") == 0 ? *keyval - 1 : *keyval;
    struct fr_rma_window *window = fr_rma_any() ? fr_rma_window_find_fortran(*win) : NULL;
    void *found;
    if (!window || !fr_rma_window_attribute(window, key, &found))
        return false;
    if (key == fr_abi_mpi.WIN_BASE)
        *value = (intptr_t)found;
    else if (key == fr_abi_mpi.WIN_SIZE)
        *value = *(const intptr_t *)found;
    else
        *value = *(const int *)found;
    *flag = 1; // .TRUE.
    if (error) // is optional in mpi_f08
        *error = fr_abi_mpi.SUCCESS;
    return true;
}

// Calls the binding's own function, which `*next` keeps once it is found.
static void pass_on(const char *name, void *_Atomic *next, const int *win, const int *keyval,
                    intptr_t *value, int *flag, int *error)
{
    void *found = atomic_load_explicit(next, memory_order_relaxed);
    if (!found)
        found = fr_core_dlsym(RTLD_NEXT, name);
    if (!found) // the binding belongs to a plugin, and is in no search scope
        found = fr_abi_find_loaded(name);
    atomic_store_explicit(next, found, memory_order_relaxed);
    if (found)
        ((get_attr *)found)(win, keyval, value, flag, error);
    else
        fr_error("%s was called, but no MPI library has it", name);
    if (!found && error)
        *error = 1;
}

#define FORTRAN_NAME(name)                                                                         \
    __attribute__((visibility("default"))) get_attr name;                                          \
    void name(const int *win, const int *keyval, intptr_t *value, int *flag, int *error)           \
    {                                                                                              \
        static void *_Atomic next;                                                                 \
        if (!tell(win, keyval, value, flag, error))                                                \
            pass_on(#name, &next, win, keyval, value, flag, error);                                \
    }

FORTRAN_NAME(mpi_win_get_attr)
FORTRAN_NAME(mpi_win_get_attr_)
FORTRAN_NAME(mpi_win_get_attr__)
FORTRAN_NAME(MPI_WIN_GET_ATTR)
FORTRAN_NAME(mpi_win_get_attr_f08_)
FORTRAN_NAME(pmpi_win_get_attr)
FORTRAN_NAME(pmpi_win_get_attr_)
FORTRAN_NAME(pmpi_win_get_attr__)
FORTRAN_NAME(PMPI_WIN_GET_ATTR)
FORTRAN_NAME(pmpi_win_get_attr_f08_)
