// SPDX-License-Identifier: BSD-3-Clause
// The path of each buffer of a call: the facts that module policy must know, its choice, and sends
// by rendezvous where MPI could only get the bytes through host memory.
#include "config.h"

#include "intercept/buffer_paths.h"

#include "fabrail/job.h"
#include "fabrail/report.h"
#include "fabrail/request.h"
#include "fabrail/request/errors.h"
#include "fabrail/rndv/progress.h"
#include "intercept/rts.h"

#include <string.h>

// Returns the facts that hold for any device memory in a function.
static FR_OFTEN struct fr_policy_facts facts_of_function(enum fr_fn fn)
{
    bool is_aware = fr_intercept_is_gpu_aware();
    return (struct fr_policy_facts){
        .device_memory = true,
        .stageable = true,
        .mpi_gpu_aware = is_aware,
        .function_gpu_safe = is_aware && fr_intercept_accepts_device_ptr(fn),
        .paths = fr_core_settings()->paths,
        .fabric_use = fr_core_settings()->fabric,
        .fabric_workspace = true, // until it is needed and cannot be had
    };
}

static struct fr_policy_facts facts_of(const struct fr_request_op *op,
                                       const struct fr_device_range *range)
{
    struct fr_policy_facts facts = facts_of_function(op->fn);
    facts.fabric_allocated = (range->caps & FR_SHARE_FABRIC) != 0;
    if (facts.mpi_gpu_aware && facts.function_gpu_safe)
        facts.multi_node_nvlink = fr_intercept_has_fabric(op, range->device);
    return facts;
}

bool fr_intercept_passes_any_memory(enum fr_fn fn, bool fabric)
{
    struct fr_policy_facts facts = facts_of_function(fn);
    facts.multi_node_nvlink = fr_job_clique_count() > 0;
    facts.fabric_workspace = fabric;
    return fr_policy_choose(&facts).path == FR_PATH_PASS;
}

bool fr_intercept_passes_device_memory(enum fr_fn fn)
{
    return fr_intercept_passes_any_memory(fn, true);
}

static FR_SELDOM int refuse(const struct fr_request_op *op, enum fr_device_kind kind,
                            const char *reason)
{
    bool window = op->fn == FR_FN_MPI_Win_create || op->fn == FR_FN_MPI_Win_create_c ||
                  op->fn == FR_FN_MPI_Win_attach;
    fr_error("%s: device memory of kind %s is refused: %s; give it host memory instead",
             fr_abi_rows[op->fn].name, fr_device_kind_name(kind), reason);
    return fr_request_raise(op->object_kind, op->object,
                            window ? fr_abi_mpi.ERR_BASE : fr_abi_mpi.ERR_BUFFER);
}

bool fr_intercept_call_refusable(enum fr_fn fn, fr_word *args, int *result)
{
    const struct fr_abi_row *row = &fr_abi_rows[fn];
    for (unsigned i = 0; i < row->buffer_count; i++) {
        struct fr_device_range range;
        struct fr_request_op op = {.fn = fn};
        fr_device_classify((const void *)args[row->buffers[i]], 1, &range);
        if (!fr_device_owns(&range))
            continue;
        struct fr_policy_facts facts = facts_of_function(fn);
        facts.stageable = facts.fabric_workspace = false;
        struct fr_policy_choice choice = fr_policy_choose(&facts);
        if (choice.path != FR_PATH_REFUSE)
            return false;
        memcpy(op.args, args, row->arg_count * sizeof(*args));
        fr_intercept_find_object(&op);
        *result = refuse(&op, range.kind, choice.reason);
        return true;
    }
    return false;
}

// Leases workspace for the view at once, since the path is another one if there is none.
static FR_SELDOM bool open_fabric(struct fr_staging_view *view)
{
    if (!fr_intercept_has_fabric_memory(view->range.device))
        return false;
    enum fr_status status = fr_staging_view_open(view);
    if (status != FR_OK && status != FR_ERR_LIMIT) // workspace has logged the limit
        fr_warn_once("no memory on device %d for the fabric workspace, so messages are given to "
                     "the MPI library as they are: %s",
                     view->range.device, fr_core_status_text(status));
    return status == FR_OK;
}

static struct fr_policy_choice choose_path(const struct fr_request_op *op,
                                           struct fr_staging_view *view)
{
    struct fr_policy_facts facts = facts_of(op, &view->range);
    struct fr_policy_choice choice = fr_policy_choose(&facts);
    view->path = choice.path;
    if (choice.path == FR_PATH_FABRIC && !open_fabric(view)) {
        facts.fabric_workspace = false;
        choice = fr_policy_choose(&facts);
        view->path = choice.path;
    }
    return choice;
}

static FR_OFTEN void count_view(struct fr_request_op *op, const struct fr_staging_view *view,
                                struct fr_policy_choice choice, const char *scheme)
{
    if (FR_LIKELY(!fr_report_on))
        return;
    bool staged = choice.path == FR_PATH_HOST || choice.path == FR_PATH_FABRIC;
    if (staged && view->out_bytes && fr_intercept_receives(op->fn))
        fr_intercept_count_later(op, view, choice, scheme);
    else
        fr_intercept_count_view(op, view, choice, scheme);
}

// Counts the buffer of a message by rendezvous.
static void count_sent(struct fr_request_op *op, const struct fr_staging_view *view,
                       const struct fr_policy_scheme_choice *chosen)
{
    if (FR_LIKELY(!fr_report_on))
        return;
    const struct fr_policy_choice choice = {.path = fr_policy_scheme_path(chosen->scheme),
                                            .reason = chosen->reason};
    count_view(op, view, choice, fr_policy_scheme_name(chosen->scheme));
}

// Chooses for host memory: it is sent over rails, or as it is.
static enum fr_buffer_outcome choose_for_host(struct fr_request_op *op,
                                              struct fr_staging_view *view)
{
    struct fr_policy_scheme_choice chosen = {.reason = NULL};
    view->path = FR_PATH_PASS;
    if (!fr_intercept_sends_host(op, view))
        return FR_BUFFER_UNCHANGED;
    fr_rndv_progress(NULL);
    if (fr_intercept_send_start(op, view, &chosen)) {
        count_sent(op, view, &chosen);
        return FR_BUFFER_STAGED;
    }
    const struct fr_policy_choice choice = {.path = FR_PATH_PASS, .reason = chosen.reason};
    count_view(op, view, choice, NULL);
    return FR_BUFFER_UNCHANGED;
}

// Chooses for device memory that does not go by rendezvous. `left` is why it does not, NULL where
// nobody has asked.
static enum fr_buffer_outcome choose_for_mpi(struct fr_request_op *op, struct fr_staging_view *view,
                                             const char *left, int *result)
{
    struct fr_policy_choice choice = choose_path(op, view);
    if (choice.path == FR_PATH_HOST && fr_report_on)
        choice.reason = left ? left : fr_intercept_staged_because(op, view, choice.reason);
    count_view(op, view, choice, NULL);
    if (choice.path == FR_PATH_REFUSE) {
        *result = refuse(op, view->range.kind, choice.reason);
        return FR_BUFFER_FAILED;
    }
    return choice.path == FR_PATH_PASS ? FR_BUFFER_UNCHANGED : FR_BUFFER_STAGED;
}

// Chooses for device memory. Rendezvous comes first: it is enabled where MPI could only get device
// memory through host memory, and then asks for no path.
static enum fr_buffer_outcome choose_for_device(struct fr_request_op *op,
                                                struct fr_staging_view *view, int *result)
{
    struct fr_policy_scheme_choice chosen = {.reason = NULL};
    if (fr_intercept_rndv_is_enabled) {
        fr_rndv_progress_in_passing(&view->range);
        fr_request_look_in_passing(view->out_bytes);
    }
    view->expects_rts = op->receive.takes_rts && view->out_bytes && !view->in_bytes;
    view->as_bytes = op->receive.takes_rts && view->out_bytes && !fr_intercept_takes_parts();
    if (!view->in_bytes || !fr_intercept_send_start(op, view, &chosen))
        return choose_for_mpi(op, view, chosen.reason, result);
    count_sent(op, view, &chosen);
    return FR_BUFFER_STAGED;
}

FR_OFTEN enum fr_buffer_outcome fr_intercept_choose_paths(struct fr_request_op *op, int *result)
{
    enum fr_buffer_outcome all = FR_BUFFER_UNCHANGED;
    for (unsigned v = 0; v < op->view_count; v++) {
        struct fr_staging_view *view = &op->views[v];
        fr_staging_view_measure(view);
        enum fr_buffer_outcome one = fr_device_owns(&view->range)
                                         ? choose_for_device(op, view, result)
                                         : choose_for_host(op, view);
        if (one == FR_BUFFER_FAILED)
            return FR_BUFFER_FAILED;
        all = one == FR_BUFFER_STAGED ? FR_BUFFER_STAGED : all;
    }
    return all;
}
