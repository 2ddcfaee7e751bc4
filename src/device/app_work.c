// SPDX-License-Identifier: BSD-3-Clause
// Work of the application's own on devices: what passes on to a row, and looks at memory that is
// being written.
#include "config.h"

#include "device/device_int.h"
#include "fabrail/core/object.h"
#include "fabrail/device/app_work.h"

void *fr_device_hook(const char *name, void *found)
{
    const struct fr_settings *settings = fr_core_settings();
    void *hook = NULL;
    if (settings->sync == FR_SYNC_OFF || settings->disable || found == NULL ||
        fr_core_is_in_fabrail(found))
        return NULL;
    for (unsigned i = 0; fr_device_rows[i] != NULL && hook == NULL; i++) {
        if (fr_device_rows[i]->hook != NULL)
            hook = fr_device_rows[i]->hook(name, found);
    }
    return hook;
}

bool fr_device_app_work_mark(const struct fr_device_range *range)
{
    struct fr_device_scope scope;
    if (fr_device_row(range->device)->app_work_mark == NULL ||
        fr_device_scope_enter(range, &scope) != FR_OK)
        return false;
    bool marked = scope.ops->app_work_mark();
    fr_device_scope_leave(&scope);
    return marked;
}

static bool is_under_way(const struct fr_device_range *range, int64_t waited_ns)
{
    struct fr_device_scope scope;
    if (fr_device_scope_enter(range, &scope) != FR_OK)
        return false;
    bool under_way = scope.ops->app_work_is_under_way(waited_ns);
    fr_device_scope_leave(&scope);
    return under_way;
}

bool fr_device_app_work_wait(const struct fr_device_range *range, void (*progress)(void))
{
    struct fr_wait wait = FR_DEVICE_APP_WORK_WAIT;
    bool waited = false;
    while (is_under_way(range, fr_wait_ns(&wait))) {
        waited = true;
        if (fr_wait_step(&wait))
            progress();
    }
    return waited;
}

enum fr_status fr_device_peek(const struct fr_device_range *range, uintptr_t address, void *host,
                              size_t bytes)
{
    struct fr_device_scope scope;
    struct fr_device_stream *stream = NULL;
    const struct fr_device_copy copy = {
        .dst = host, .src = (const void *)address, .bytes = bytes, .n = {1, 1}};
    enum fr_status status = fr_device_scope_enter(range, &scope);
    if (status != FR_OK)
        return status;
    status = scope.ops->stream_borrow(scope.context, FR_TO_STAGE, &stream);
    if (status == FR_OK) {
        status = scope.ops->stream_copy(stream, &copy);
        enum fr_status end = scope.ops->stream_return(stream);
        status = status == FR_OK ? end : status;
    }
    fr_device_scope_leave(&scope);
    return status;
}
