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

#define FORTRAN_NAMES(X)                                                                           \
    X(mpi_win_get_attr)                                                                            \
    X(mpi_win_get_attr_)                                                                           \
    X(mpi_win_get_attr__)                                                                          \
    X(MPI_WIN_GET_ATTR)                                                                            \
    X(mpi_win_get_attr_f08_)                                                                       \
    X(pmpi_win_get_attr)                                                                           \
    X(pmpi_win_get_attr_)                                                                          \
    X(pmpi_win_get_attr__)                                                                         \
    X(PMPI_WIN_GET_ATTR)                                                                           \
    X(pmpi_win_get_attr_f08_)

FORTRAN_NAMES(FORTRAN_NAME)

FR_UNSANITIZED bool fr_intercept_is_fortran_name(const char *name)
{
    enum { LONGEST = 24 };
    static const char names[][LONGEST] = {
#define ROW(name) #name,
        FORTRAN_NAMES(ROW)
#undef ROW
    };
    if (!name || (name[0] != 'm' && name[0] != 'p' && name[0] != 'M' && name[0] != 'P'))
        return false;
    for (size_t i = 0; i < FR_ARRAY_LENGTH(names); i++) {
        size_t at = 0;
        while (names[i][at] && names[i][at] == name[at])
            at++;
        if (names[i][at] == name[at])
            return true;
    }
    return false;
}
