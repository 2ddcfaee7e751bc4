// SPDX-License-Identifier: BSD-3-Clause
// Attributes of communicators.
#include "config.h"

#include "world/attribute.h"

// MPI calls these two with the family's own handles, of which they read nothing.
static int copy_nothing(fr_word comm, int keyval, void *extra, void *value, void *copied, int *flag)
{
    (void)comm;
    (void)keyval;
    (void)extra;
    (void)value;
    (void)copied;
    *flag = 0;
    return fr_real_mpi.SUCCESS;
}

static int delete_value(fr_word comm, int keyval, void *value, void *extra)
{
    const struct fr_world_attribute *attribute = extra;
    (void)comm;
    (void)keyval;
    attribute->destroy(value);
    return fr_real_mpi.SUCCESS;
}

void fr_world_attribute_start(struct fr_world_attribute *attribute)
{
    attribute->has_keyval =
        FR_MPI(Comm_create_keyval, FR_PTR(copy_nothing), FR_PTR(delete_value),
               FR_PTR(&attribute->keyval), FR_PTR(attribute)) == fr_real_mpi.SUCCESS;
}

void *fr_world_attribute_get(const struct fr_world_attribute *attribute, fr_word comm)
{
    void *value = NULL;
    int is_set = 0;
    if (!attribute->has_keyval || FR_MPI(Comm_get_attr, comm, (fr_word)attribute->keyval,
                                         FR_PTR(&value), FR_PTR(&is_set)) != fr_real_mpi.SUCCESS)
        return NULL;
    return is_set ? value : NULL;
}

bool fr_world_attribute_set(const struct fr_world_attribute *attribute, fr_word comm, void *value)
{
    return attribute->has_keyval && FR_MPI(Comm_set_attr, comm, (fr_word)attribute->keyval,
                                           FR_PTR(value)) == fr_real_mpi.SUCCESS;
}
