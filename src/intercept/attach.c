// SPDX-License-Identifier: BSD-3-Clause
// Memory that the application attaches for buffered sends, which the MPI library writes with the
// CPU. In place of device memory the library gets host memory of that size. The application gets
// its own pointer back.
#include "config.h"

#include "intercept/intercept_int.h"

#include "fabrail/request/errors.h"

#include <stdlib.h>
#include <string.h>

struct attached {
    struct attached *next;
    void *host;    // given to the MPI library
    fr_word given; // by the application
};

static struct fr_lock lock = FR_LOCK_INIT;
static struct attached *all_attached FR_GUARDED_BY(lock);
static _Atomic size_t attached_count;

bool fr_intercept_any_attached(void)
{
    return atomic_load_explicit(&attached_count, memory_order_acquire) != 0;
}

static void free_attached(struct attached *attached)
{
    if (attached)
        free(attached->host);
    free(attached);
}

static struct attached *new_attached(fr_word given, size_t bytes)
{
    struct attached *attached = calloc(1, sizeof(*attached));
    if (!attached)
        return NULL;
    attached->given = given;
    attached->host = malloc(bytes ? bytes : 1);
    if (attached->host)
        return attached;
    free(attached);
    return NULL;
}

static int attach(enum fr_fn fn, const fr_word *args, int buffer, struct attached *attached)
{
    fr_word changed[FR_MAX_ARGS];
    memcpy(changed, args, fr_abi_rows[fn].arg_count * sizeof(changed[0]));
    changed[buffer] = FR_PTR(attached->host);
    int result = fr_abi_call(fn, changed);
    if (result != fr_abi_mpi.SUCCESS) {
        free_attached(attached);
        return result;
    }
    fr_core_lock(&lock);
    attached->next = all_attached;
    all_attached = attached;
    fr_core_unlock(&lock);
    atomic_fetch_add_explicit(&attached_count, 1, memory_order_release);
    return result;
}

bool fr_intercept_call_buffer_attach(enum fr_fn fn, fr_word *args, int *result)
{
    struct fr_device_range range;
    int buffer = fr_abi_rows[fn].send.buffer, comm = fr_abi_rows[fn].comm;
    bool large = fr_abi_rows[fn].flags & FR_ROW_LARGE;
    int64_t bytes = large ? (int64_t)args[buffer + 1] : (int)args[buffer + 1];
    fr_device_classify((const void *)args[buffer], 1, &range);
    if (!fr_device_owns(&range) || bytes < 0)
        return false;
    if (!(fr_core_settings()->paths & FR_PATH_BIT_HOST))
        return fr_intercept_call_refusable(fn, args, result);
    struct attached *attached = new_attached(args[buffer], (size_t)bytes);
    if (attached) {
        *result = attach(fn, args, buffer, attached);
        return true;
    }
    fr_error("%s: no host memory in place of %lld bytes of device memory", fr_abi_rows[fn].name,
             (long long)bytes);
    *result = fr_request_raise(comm >= 0 ? 'c' : 0, comm >= 0 ? fr_abi_handle(args[comm]) : 0,
                               fr_abi_mpi.ERR_NO_MEM);
    return true;
}

static struct attached *take(const void *host)
{
    fr_core_lock(&lock);
    struct attached **link = &all_attached;
    while (*link && (*link)->host != host)
        link = &(*link)->next;
    struct attached *found = *link;
    if (found)
        *link = found->next;
    fr_core_unlock(&lock);
    return found;
}

bool fr_intercept_call_buffer_return(enum fr_fn fn, fr_word *args, int *result)
{
    void **pointer = (void **)args[fr_abi_rows[fn].address];
    *result = fr_abi_call(fn, args);
    struct attached *attached = *result == fr_abi_mpi.SUCCESS && pointer ? take(*pointer) : NULL;
    if (attached) {
        *pointer = (void *)attached->given;
        atomic_fetch_sub_explicit(&attached_count, 1, memory_order_release);
    }
    free_attached(attached);
    return true;
}

// MPI_Finalize has given back what the application has not.
void fr_intercept_attached_release(void)
{
    fr_core_lock(&lock);
    struct attached *attached = all_attached;
    all_attached = NULL;
    fr_core_unlock(&lock);
    atomic_store_explicit(&attached_count, 0, memory_order_release);
    while (attached) {
        struct attached *next = attached->next;
        free_attached(attached);
        attached = next;
    }
}
