// SPDX-License-Identifier: BSD-3-Clause
// Makes newer functions look absent where the MPI library lacks them. Programs such as mpi4py refer
// to them weakly, and choose another way when they are not there. So their symbols are indirect:
// the dynamic loader asks here what they stand for.
//
// That runs inside the loader, while it binds a program or a library. It may only read loaded
// objects, and may run before this library itself has been relocated.
#include "config.h"

#include "fabrail/core/object.h"
#include "intercept/intercept_int.h"

struct search {
    const char *name;
    bool found;
};

FR_UNSANITIZED static int look_into(struct dl_phdr_info *info, size_t size, void *data)
{
    struct search *search = data;
    struct fr_core_object object;
    (void)size;
    if (!fr_core_object_of(info, &object) || fr_core_object_is_fabrail(&object) ||
        !fr_core_object_symbol(&object, "PMPI_Init"))
        return 0;
    search->found = fr_core_object_symbol(&object, search->name) != NULL;
    return search->found;
}

// Its initial value is an address that only relocation makes right.
static void *volatile relocated_probe = (void *)&relocated_probe;

FR_UNSANITIZED void *fr_intercept_present(const char *name, void *stub)
{
    struct search search = {.name = name};
    void *volatile *probe = &relocated_probe;
    if (*probe != (void *)probe)
        return stub; // too early to ask the C library; what is referred to now is linked, so is
                     // there
    fr_core_iterate_objects(look_into, &search);
    return search.found ? stub : NULL;
}
