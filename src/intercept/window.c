// SPDX-License-Identifier: BSD-3-Clause
// Windows over device memory: their making, epochs and end. The real MPI hears of the making and
// the end alone.
#include "config.h"

#include "fabrail/abi/hook.h"
#include "fabrail/job.h"
#include "fabrail/request/attendant.h"
#include "fabrail/request/errors.h"
#include "intercept/window.h"

#include <stdlib.h>
#include <string.h>

// Writes the ranks in the window of the members of a group. The caller frees *ranks.
static enum fr_status ranks_of(fr_word win, fr_word group, int **ranks, int *count)
{
    _Alignas(8) char all[8];
    if (FR_MPI(Group_size, group, FR_PTR(count)) != fr_abi_mpi.SUCCESS ||
        FR_MPI(Win_get_group, win, FR_PTR(all)) != fr_abi_mpi.SUCCESS)
        return FR_ERR_MPI;
    enum fr_status status = FR_ERR_NO_MEMORY;
    int *members = malloc(2 * ((size_t)*count + 1) * sizeof(*members));
    if (members) {
        int *own = members + *count;
        for (int i = 0; i < *count; i++)
            own[i] = i;
        status = FR_MPI(Group_translate_ranks, group, (fr_word)*count, FR_PTR(own),
                        fr_abi_handle_load(all, 0), FR_PTR(members)) == fr_abi_mpi.SUCCESS
                     ? FR_OK
                     : FR_ERR_MPI;
    }
    FR_MPI(Group_free, FR_PTR(all));
    for (int i = 0; i < *count && status == FR_OK; i++)
        status = members[i] == fr_abi_mpi.UNDEFINED ? FR_ERR_INVALID : FR_OK;
    if (status != FR_OK)
        free(members);
    else
        *ranks = members;
    return status;
}

static enum fr_status with_group(struct fr_rma_window *window, fr_word win, fr_word group,
                                 enum fr_status (*call)(struct fr_rma_window *window,
                                                        const int *ranks, size_t count))
{
    int *ranks = NULL, count = 0;
    enum fr_status status = ranks_of(win, fr_abi_handle(group), &ranks, &count);
    if (status == FR_OK)
        status = call(window, ranks, (size_t)count);
    free(ranks);
    return status;
}

// Has messages of a window's ranks acted on.
static void expect_messages(const struct fr_rma_window *window)
{
    switch (fr_rma_window_server(window)) {
    case FR_RMA_BY_THREAD:
        if (!fr_request_attendant_keep(fr_intercept_attend))
            fr_error("no thread could be started for the messages of a window");
        break;
    case FR_RMA_BY_HOOK:
        if (!fr_abi_hook(fr_intercept_serve_within))
            fr_error("MPI lets no function act on messages of a window");
        break;
    default:
        fr_request_expect(1);
        break;
    }
}

static void expect_no_more(enum fr_rma_server server)
{
    switch (server) {
    case FR_RMA_BY_THREAD:
        fr_request_attendant_let_go();
        break;
    case FR_RMA_BY_HOOK:
        fr_abi_unhook();
        break;
    default:
        fr_request_expect(-1);
        break;
    }
}

// Ends a window. Its memory is the program's again when all ranks have come here.
static int free_window(struct fr_rma_window *window, const fr_word *args)
{
    fr_word win = fr_abi_handle_load((const void *)args[0], 0);
    enum fr_status flushed = FR_OK;
    enum fr_status status = fr_rma_window_close(window, &flushed);
    if (status != FR_OK)
        return fr_intercept_window_result(win, FR_FN_MPI_Win_free, status);
    // The error handler goes with the real window, and all others are freeing theirs.
    int raised = fr_intercept_window_result(win, FR_FN_MPI_Win_free, flushed);
    bool has_messages = fr_rma_window_has_messages(window);
    fr_rma_window_unbind(window);
    int rc = fr_abi_call(FR_FN_MPI_Win_free, args);
    if (rc == fr_abi_mpi.SUCCESS) {
        if (has_messages)
            expect_no_more(fr_rma_window_server(window));
        fr_rma_window_free(window);
    } else {
        fr_rma_window_bind(window, win);
    }
    return rc == fr_abi_mpi.SUCCESS ? raised : rc;
}

static enum fr_status test(struct fr_rma_window *window, int *flag)
{
    bool over = false;
    enum fr_status status = fr_rma_test(window, &over);
    *flag = over;
    return status;
}

// Serves a call that synchronises a window. Its rank and its sort of lock have been checked.
static enum fr_status synchronise(enum fr_fn fn, struct fr_rma_window *window, fr_word win,
                                  const fr_word *args)
{
    switch (fn) {
    case FR_FN_MPI_Win_fence:
        return fr_rma_fence(window, ((int)args[0] & fr_abi_mpi.MODE_NOSUCCEED) != 0);
    case FR_FN_MPI_Win_lock:
        return fr_rma_lock(window, (int)args[1], (int)args[0] == fr_abi_mpi.LOCK_EXCLUSIVE);
    case FR_FN_MPI_Win_lock_all:
        return fr_rma_lock_all(window);
    case FR_FN_MPI_Win_unlock:
        return fr_rma_unlock(window, (int)args[0]);
    case FR_FN_MPI_Win_unlock_all:
        return fr_rma_unlock_all(window);
    case FR_FN_MPI_Win_post:
        return with_group(window, win, args[0], fr_rma_post);
    case FR_FN_MPI_Win_start:
        return with_group(window, win, args[0], fr_rma_start);
    case FR_FN_MPI_Win_complete:
        return fr_rma_complete(window);
    case FR_FN_MPI_Win_wait:
        return fr_rma_wait(window);
    case FR_FN_MPI_Win_test:
        return test(window, (int *)args[1]);
    case FR_FN_MPI_Win_sync:
        return fr_rma_sync(window);
    case FR_FN_MPI_Win_flush:
    case FR_FN_MPI_Win_flush_local:
        return fr_rma_flush_rank(window, (int)args[0]);
    default:
        return fr_rma_flush_all(window);
    }
}

int fr_intercept_window_result(fr_word win, enum fr_fn fn, enum fr_status status)
{
    if (status == FR_OK)
        return fr_abi_mpi.SUCCESS;
    fr_error("%s: %s", fr_abi_rows[fn].name, fr_core_status_text(status));
    return fr_request_raise('w', win, fr_request_error_code(status));
}

bool fr_intercept_window_has_rank(const struct fr_rma_window *window, int rank)
{
    return rank >= 0 && rank < fr_rma_window_size(window);
}

// Returns the assertions of a call, and in *allowed those that it may have.
static int assertions_of(enum fr_fn fn, const fr_word *args, int *allowed)
{
    switch (fn) {
    case FR_FN_MPI_Win_fence:
        *allowed = fr_abi_mpi.MODE_NOSTORE | fr_abi_mpi.MODE_NOPUT | fr_abi_mpi.MODE_NOPRECEDE |
                   fr_abi_mpi.MODE_NOSUCCEED;
        return (int)args[0];
    case FR_FN_MPI_Win_post:
        *allowed = fr_abi_mpi.MODE_NOCHECK | fr_abi_mpi.MODE_NOSTORE | fr_abi_mpi.MODE_NOPUT;
        return (int)args[1];
    case FR_FN_MPI_Win_start:
        *allowed = fr_abi_mpi.MODE_NOCHECK;
        return (int)args[1];
    case FR_FN_MPI_Win_lock_all:
        *allowed = fr_abi_mpi.MODE_NOCHECK;
        return (int)args[0];
    case FR_FN_MPI_Win_lock:
        *allowed = fr_abi_mpi.MODE_NOCHECK;
        return (int)args[2];
    default:
        *allowed = 0;
        return 0;
    }
}

// Returns the class of the error in the arguments of a call that synchronises, MPI_SUCCESS if there
// is none. Families other than Open MPI have one class for all of these.
static int bad_argument(const struct fr_rma_window *window, enum fr_fn fn, const fr_word *args)
{
    bool is_openmpi = fr_abi_is_open_mpi();
    int peer = fr_abi_rows[fn].peer, allowed;
    if (fn == FR_FN_MPI_Win_lock && (int)args[0] != fr_abi_mpi.LOCK_EXCLUSIVE &&
        (int)args[0] != fr_abi_mpi.LOCK_SHARED)
        return is_openmpi ? fr_abi_mpi.ERR_LOCKTYPE : fr_abi_mpi.ERR_ARG;
    if (peer >= 0 && !fr_intercept_window_has_rank(window, (int)args[peer]))
        return fr_abi_mpi.ERR_RANK;
    if (assertions_of(fn, args, &allowed) & ~allowed)
        return is_openmpi ? fr_abi_mpi.ERR_ASSERT : fr_abi_mpi.ERR_ARG;
    return fr_abi_mpi.SUCCESS;
}

// Serves a call that synchronises with no rank. Open MPI refuses to lock that.
static int synchronise_nobody(enum fr_fn fn, fr_word win)
{
    bool locks = fn == FR_FN_MPI_Win_lock || fn == FR_FN_MPI_Win_unlock;
    return locks && fr_abi_is_open_mpi() ? fr_request_raise('w', win, fr_abi_mpi.ERR_RANK)
                                         : fr_abi_mpi.SUCCESS;
}

static int attached(fr_word win, enum fr_fn fn, enum fr_status status)
{
    if (status == FR_ERR_INVALID)
        return fr_request_raise('w', win, fr_abi_mpi.ERR_RMA_ATTACH);
    return fr_intercept_window_result(win, fn, status);
}

// Tells where a rank's memory is for kernels of this process. MPI_PROC_NULL stands for the first
// rank that gives any.
static int query(enum fr_fn fn, struct fr_rma_window *window, fr_word win, const fr_word *args)
{
    int rank = (int)args[1], unit = 1;
    uintptr_t address = 0;
    size_t bytes = 0;
    bool is_shown = true, any = rank == fr_abi_mpi.PROC_NULL;
    for (int i = 0; any && bytes == 0 && i < fr_rma_window_size(window); i++)
        is_shown = fr_rma_window_query(window, i, &address, &bytes, &unit);
    if (!any && !fr_intercept_window_has_rank(window, rank))
        return fr_request_raise('w', win, fr_abi_mpi.ERR_RANK);
    if (!any)
        is_shown = fr_rma_window_query(window, rank, &address, &bytes, &unit);
    if (!is_shown)
        return fr_request_raise('w', win, fr_abi_mpi.ERR_RMA_FLAVOR);
    *(intptr_t *)args[2] = (intptr_t)bytes;
    if (fr_abi_rows[fn].flags & FR_ROW_LARGE)
        *(intptr_t *)args[3] = unit;
    else
        *(int *)args[3] = unit;
    *(void **)args[4] = (void *)address;
    return fr_abi_mpi.SUCCESS;
}

// Waits in a window of the real MPI, within which MPICH acts on no message of other windows. MPI
// has a test for the end of an exposure epoch alone. Returns false for other calls.
static bool wait_in_real(enum fr_fn fn, const fr_word *args, int *result)
{
    if (fn != FR_FN_MPI_Win_wait || !fr_rma_far_any())
        return false;
    *result = fr_request_wait_for_epoch(args);
    return true;
}

bool fr_intercept_call_window(enum fr_fn fn, fr_word *args, int *result)
{
    const struct fr_abi_row *row = &fr_abi_rows[fn];
    bool frees = row->window_freed >= 0;
    if (!fr_rma_any() || (frees && !args[0]))
        return false;
    fr_word win =
        frees ? fr_abi_handle_load((const void *)args[0], 0) : fr_abi_handle(args[row->window]);
    struct fr_rma_window *window = fr_rma_window_find(win);
    if (!window)
        return wait_in_real(fn, args, result);
    int bad = fr_abi_mpi.SUCCESS;
    if (frees) {
        *result = free_window(window, args);
    } else if (fn == FR_FN_MPI_Win_get_attr) {
        if (!fr_rma_window_attribute(window, (int)args[1], (void **)args[2]))
            return false;
        *(int *)args[3] = 1;
        *result = fr_abi_mpi.SUCCESS;
    } else if (fn == FR_FN_MPI_Win_detach) {
        *result = attached(win, fn, fr_rma_detach(window, (uintptr_t)args[1]));
    } else if (fn == FR_FN_MPI_Win_shared_query || fn == FR_FN_MPI_Win_shared_query_c) {
        *result = query(fn, window, win, args);
    } else if (row->peer >= 0 && (int)args[row->peer] == fr_abi_mpi.PROC_NULL) {
        *result = synchronise_nobody(fn, win);
    } else if ((bad = bad_argument(window, fn, args)) != fr_abi_mpi.SUCCESS) {
        *result = fr_request_raise('w', win, bad);
    } else {
        *result = fr_intercept_window_result(win, fn, synchronise(fn, window, win, args));
    }
    return true;
}

// Whether all ranks of the communicator that a waiting function names call it.
static bool is_collective(enum fr_fn fn)
{
    enum fr_class class = fr_abi_rows[fn].class;
    return fr_abi_rows[fn].comm >= 0 && class != FR_CLASS_STREAM &&
           class != FR_CLASS_BUFFER_RETURN && fn != FR_FN_MPI_Comm_create_group;
}

void fr_intercept_gate(enum fr_fn fn, const fr_word *args)
{
    int arg = fr_abi_rows[fn].comm;
    struct fr_intercept_shape shape;
    if (!is_collective(fn) || fr_abi_handle(args[arg]) == fr_abi_mpi.COMM_NULL ||
        fr_intercept_shape_of(fr_abi_handle(args[arg]), &shape) != FR_OK || shape.inter)
        return;
    fr_rma_gate(fr_abi_handle(args[arg]), shape.size);
}

bool fr_intercept_call_window_sync(enum fr_fn fn, fr_word *args, int *result)
{
    return fr_intercept_call_window(fn, args, result) ||
           fr_intercept_call_win_sync(fn, args, result);
}

// Makes the real MPI's window over memory of Fabrail's, and ties both together. `made`
// points to its handle.
static int make_real(struct fr_rma_window *window, fr_word info, fr_word comm, fr_word made)
{
    const fr_word real[FR_MAX_ARGS] = {
        FR_PTR(fr_rma_window_host_memory(window)), FR_RMA_HOST_BYTES, 1, info, comm, made};
    int rc = fr_abi_call(FR_FN_MPI_Win_create, real);
    if (rc == fr_abi_mpi.SUCCESS) {
        fr_rma_window_bind(window, fr_abi_handle_load((const void *)made, 0));
        if (fr_rma_window_has_messages(window))
            expect_messages(window);
    } else {
        fr_rma_window_free(window);
    }
    return rc;
}

// Whether all ranks take part in windows. Goes by facts alone, so that all find the same.
static bool have_windows(fr_word comm, int size)
{
    bool all = true;
    for (int rank = 0; rank < size && all; rank++) {
        uint64_t id;
        const struct fr_job_facts *facts = fr_job_facts_of(fr_job_rank_in(comm, rank, &id));
        all = facts && facts->windows;
    }
    return all;
}

// Whether all ranks of the communicator come to an agreement on a window, alike on all of them.
// Fills what the call says of it, but for memory.
static bool agrees(enum fr_fn fn, fr_word comm, fr_word size, fr_word unit,
                   struct fr_rma_offer *offer)
{
    struct fr_intercept_shape shape;
    bool is_bad = (intptr_t)size < 0 || (int)unit <= 0;
    if (!fr_intercept_nvlink_is_enabled() || comm == fr_abi_mpi.COMM_NULL ||
        fr_job_comm_name(comm) == 0 || fr_intercept_shape_of(comm, &shape) != FR_OK ||
        shape.inter || !have_windows(comm, shape.size))
        return false;
    *offer = (struct fr_rma_offer){
        .call = fr_abi_rows[fn].name,
        .comm = comm,
        .rank = shape.rank,
        .size = shape.size,
        .bytes = is_bad ? 0 : (size_t)size,
        .unit = is_bad ? 1 : (int)unit,
        .is_bad = is_bad,
    };
    return true;
}

bool fr_intercept_call_win_make(enum fr_fn fn, fr_word *args, int *result)
{
    struct fr_rma_offer offer;
    struct fr_rma_window *window = NULL;
    fr_word comm = fr_abi_comm(fn, args);
    if (!agrees(fn, comm, args[1], args[2], &offer))
        return fr_intercept_call_refusable(fn, args, result);
    offer.base = args[0];
    switch (fr_rma_window_agree(&offer, &window)) {
    case FR_RMA_PLAIN:
        return false;
    case FR_RMA_SERVED:
        *result = make_real(window, args[3], comm, args[5]);
        return true;
    default:
        *result = fr_request_raise('c', comm, fr_abi_mpi.ERR_BASE);
        return true;
    }
}

// Whether this rank wants device memory for a window.
static bool wants_device(fr_word info)
{
    enum { ROOM = 16 };
    char value[ROOM + 1] = "";
    int found = 0;
    if (fr_core_settings()->win_allocate == FR_WINDOW_DEVICE)
        return true;
    if (info != fr_abi_mpi.INFO_NULL)
        FR_MPI(Info_get, info, FR_PTR("fabrail_memory"), ROOM, FR_PTR(value), FR_PTR(&found));
    return found && strcmp(value, "device") == 0;
}

// Whether a rank's part of shared memory may lie apart from those of its neighbours.
static bool may_lie_apart(fr_word info)
{
    enum { ROOM = 16 };
    char value[ROOM + 1] = "";
    int found = 0;
    if (info != fr_abi_mpi.INFO_NULL)
        FR_MPI(Info_get, info, FR_PTR("alloc_shared_noncontig"), ROOM, FR_PTR(value),
               FR_PTR(&found));
    return found && strcmp(value, "true") == 0;
}

// Allocates this rank's memory. Rank 0 has that of all where it has to be in one piece.
static enum fr_status allocate(struct fr_rma_offer *offer, bool in_one_piece,
                               struct fr_device_memory *memory)
{
    size_t wanted = offer->bytes, all = 0;
    enum fr_status status = FR_OK;
    if (in_one_piece) {
        status = fr_rma_window_divide(offer->comm, offer->bytes, &offer->before, &all);
        offer->is_shared = true;
        wanted = offer->rank == 0 ? all : 0;
    }
    offer->lacks_memory = status == FR_OK && wanted > 0 &&
                          fr_device_memory_create(fr_device_current(), wanted, memory) != FR_OK;
    offer->base = memory->address;
    return status;
}

// Makes a window of memory of Fabrail's own. Returns false where host memory of the MPI library is
// to be had instead, or no rank wants any.
static bool make_allocated(struct fr_rma_offer *offer, bool in_one_piece, fr_word *args,
                           int *result)
{
    struct fr_rma_window *window = NULL;
    struct fr_device_memory memory = {.bytes = 0};
    uintptr_t address = 0;
    size_t bytes;
    int unit;
    enum fr_rma_outcome outcome = FR_RMA_FAILED;
    if (allocate(offer, in_one_piece, &memory) == FR_OK)
        outcome = fr_rma_window_agree(offer, &window);
    if (outcome != FR_RMA_SERVED)
        fr_device_memory_destroy(&memory);
    if (outcome == FR_RMA_PLAIN || outcome == FR_RMA_REFUSED)
        return false;
    if (outcome == FR_RMA_FAILED) {
        *result = fr_request_raise('c', offer->comm, fr_abi_mpi.ERR_OTHER);
        return true;
    }
    fr_rma_window_keep(window, &memory);
    (void)fr_rma_window_query(window, offer->rank, &address, &bytes, &unit);
    *(void **)args[4] = (void *)address;
    *result = make_real(window, args[2], offer->comm, args[5]);
    return true;
}

// Dynamic windows are Fabrail's where a rank uses a device, since nobody knows what will be
// attached.
static bool make_dynamic(struct fr_rma_offer *offer, const fr_word *args, int *result)
{
    struct fr_rma_window *window = NULL;
    switch (fr_rma_window_agree(offer, &window)) {
    case FR_RMA_SERVED:
        *result = make_real(window, args[0], offer->comm, args[2]);
        return true;
    case FR_RMA_FAILED:
        *result = fr_request_raise('c', offer->comm, fr_abi_mpi.ERR_OTHER);
        return true;
    default:
        return false;
    }
}

bool fr_intercept_call_win_allocate(enum fr_fn fn, fr_word *args, int *result)
{
    struct fr_rma_offer offer;
    fr_word comm = fr_abi_comm(fn, args);
    bool is_dynamic = fn == FR_FN_MPI_Win_create_dynamic;
    bool is_shared = fn == FR_FN_MPI_Win_allocate_shared || fn == FR_FN_MPI_Win_allocate_shared_c;
    fr_word info = fr_abi_handle(args[is_dynamic ? 0 : 2]);
    if (!agrees(fn, comm, is_dynamic ? 0 : args[0], is_dynamic ? 1 : args[1], &offer) ||
        !fr_rma_window_is_wanted(comm, is_dynamic ? fr_device_present() : wants_device(info)))
        return false;
    offer.is_optional = true;
    offer.flavor = is_dynamic  ? fr_abi_mpi.WIN_FLAVOR_DYNAMIC
                   : is_shared ? fr_abi_mpi.WIN_FLAVOR_SHARED
                               : fr_abi_mpi.WIN_FLAVOR_ALLOCATE;
    return is_dynamic ? make_dynamic(&offer, args, result)
                      : make_allocated(&offer, is_shared && !may_lie_apart(info), args, result);
}

bool fr_intercept_call_win_attach(enum fr_fn fn, fr_word *args, int *result)
{
    fr_word win = fr_abi_handle(args[0]);
    struct fr_rma_window *window = fr_rma_any() ? fr_rma_window_find(win) : NULL;
    if (!window)
        return fr_intercept_call_refusable(fn, args, result);
    *result = attached(win, fn, fr_rma_attach(window, (uintptr_t)args[1], (size_t)args[2]));
    return true;
}
