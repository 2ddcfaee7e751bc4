// SPDX-License-Identifier: BSD-3-Clause
// The making of windows over device memory: over memory of the program's, over memory of Fabrail's
// own, and over what is attached later. All ranks agree on it first.
#include "config.h"

#include "fabrail/abi/hook.h"
#include "fabrail/job.h"
#include "fabrail/request/attendant.h"
#include "fabrail/request/errors.h"
#include "intercept/window_call.h"

#include <string.h>

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

// Returns whether all ranks take part in windows. Goes by facts alone, so that all find the same.
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

// Returns whether all ranks of the communicator come to an agreement on a window, alike on all of
// them. Fills what the call says of it, but for memory.
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

// Returns whether this rank wants device memory for a window.
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

// Returns whether a rank's part of shared memory may lie apart from those of its neighbours.
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
