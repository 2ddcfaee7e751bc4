// SPDX-License-Identifier: BSD-3-Clause
// The processes that measure, one for each GPU as in a job, and their memory, which each maps from
// all others. In one process on H200 copy engines took 3 us longer for a message than in jobs.
#include "config.h"

#include "tune_rig.h"

#include "command.h"
#include "fabrail/core/wait.h"
#include "fabrail/device/reduce.h"

#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

bool fr_tune_fail(struct fr_tune_board *board, const char *format, ...)
{
    char text[512];
    va_list arguments;
    if (atomic_exchange(&board->failed, true))
        return false;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    return fr_tool_complain("%s", text);
}

bool fr_tune_ok(struct fr_tune_board *board, const char *call, CUresult result)
{
    const char *name = NULL;
    if (result == CUDA_SUCCESS)
        return true;
    if (fr_tune_cu.cuGetErrorName(result, &name) != CUDA_SUCCESS || name == NULL)
        name = "an error without a name";
    return fr_tune_fail(board, "%s failed with %s (%d)", call, name, (int)result);
}

bool fr_tune_meet(struct fr_tune_board *board, struct fr_tune_meeting *meeting, int count)
{
    unsigned round = atomic_load(&meeting->round);
    if (atomic_fetch_add(&meeting->arrived, 1) + 1 == (unsigned)count) {
        atomic_store(&meeting->arrived, 0);
        atomic_store(&meeting->round, round + 1);
    }
    struct fr_wait wait = {.steps_a_yield = FR_WAIT_POLLS, .pauses = true};
    while (atomic_load_explicit(&meeting->round, memory_order_acquire) == round) {
        if (atomic_load_explicit(&board->failed, memory_order_relaxed))
            return false;
        (void)fr_wait_step(&wait);
    }
    return !atomic_load_explicit(&board->failed, memory_order_relaxed);
}

bool fr_tune_meet_all(const struct fr_tune_rig *rig)
{
    return fr_tune_meet(rig->board, &rig->board->all, rig->count);
}

static bool allocate(const struct fr_tune_rig *rig, uintptr_t *address,
                     struct fr_device_range *range, struct fr_device_export *export)
{
    CUdeviceptr memory = 0;
    if (!fr_tune_ok(rig->board, "cuMemAlloc",
                    fr_tune_cu.cuMemAlloc_v2(&memory, rig->piece_bytes * (size_t)rig->count)))
        return false;
    *address = (uintptr_t)memory;
    if (fr_device_query((void *)*address, range) != FR_OK)
        return fr_tune_fail(rig->board, "the driver does not know its own memory");
    return fr_device_export(range, (void *)*address, export) == FR_OK ||
           fr_tune_fail(rig->board, "the driver makes no handle of GPU memory for other processes");
}

static bool fill(const struct fr_tune_rig *rig)
{
    uintptr_t send = rig->memory[rig->own].send;
    for (int to = 0; to < rig->count; to++) {
        if (!fr_tune_ok(rig->board, "cuMemsetD32",
                        fr_tune_cu.cuMemsetD32_v2(send + (size_t)to * rig->piece_bytes,
                                                  fr_tune_word(rig->own, to),
                                                  rig->piece_bytes / 4)))
            return false;
    }
    return fr_device_sync_app_work(&rig->send_range, send, (size_t)rig->count * rig->piece_bytes) ==
               FR_OK ||
           fr_tune_fail(rig->board, "a GPU does not come to an end");
}

static bool open_own(struct fr_tune_rig *rig)
{
    CUdevice device;
    CUcontext context = NULL;
    struct fr_tune_board *board = rig->board;
    struct fr_tune_memory *memory = &rig->memory[rig->own];
    if (!fr_tune_ok(board, "cuDeviceGet",
                    fr_tune_cu.cuDeviceGet(&device, rig->gpus->devices[rig->own])) ||
        !fr_tune_ok(board, "cuDevicePrimaryCtxRetain",
                    fr_tune_cu.cuDevicePrimaryCtxRetain(&context, device)) ||
        !fr_tune_ok(board, "cuCtxSetCurrent", fr_tune_cu.cuCtxSetCurrent(context)) ||
        !allocate(rig, &memory->send, &rig->send_range, &board->sends[rig->own]) ||
        !allocate(rig, &memory->receive, &rig->receive_range, &board->receives[rig->own]))
        return false;
    board->memory[rig->own] = *memory;
    board->has_kernels[rig->own] = fr_device_has_kernels(&rig->send_range, FR_IMAGE_PUSH);
    board->can_reduce[rig->own] = fr_device_has_kernels(&rig->send_range, FR_IMAGE_REDUCE);
    board->can_pack[rig->own] = fr_device_has_kernels(&rig->send_range, FR_IMAGE_PACK);
    return fill(rig);
}

// Writes where memory is mapped that its owner has at `theirs`, somewhere in an allocation.
static bool map(const struct fr_tune_rig *rig, const struct fr_device_export *export,
                uintptr_t theirs, uintptr_t *address)
{
    struct fr_device_import import;
    if (fr_device_import(&rig->send_range, FR_SHARE_LEGACY, export, -1, &import) != FR_OK)
        return fr_tune_fail(rig->board, "a GPU cannot map another one's memory");
    *address = import.address + (theirs - export->base);
    return true;
}

static bool map_others(struct fr_tune_rig *rig)
{
    const struct fr_tune_board *board = rig->board;
    for (int i = 0; i < rig->count; i++) {
        const struct fr_tune_memory *theirs = &board->memory[i];
        struct fr_tune_memory *memory = &rig->memory[i];
        rig->has_kernels = rig->has_kernels && board->has_kernels[i];
        rig->can_reduce = rig->can_reduce && board->can_reduce[i];
        rig->can_pack = rig->can_pack && board->can_pack[i];
        if (i != rig->own && (!map(rig, &board->sends[i], theirs->send, &memory->send) ||
                              !map(rig, &board->receives[i], theirs->receive, &memory->receive)))
            return false;
    }
    return true;
}

// Nobody's memory goes before all are done with it; with the process, the driver gives it back.
static bool serve(struct fr_tune_rig *rig)
{
    struct fr_policy_tuning tuning;
    if (!fr_tune_driver_start()) {
        atomic_store(&rig->board->failed, true);
        return false;
    }
    if (!open_own(rig) || !fr_tune_meet_all(rig) || !map_others(rig) || !fr_tune_meet_all(rig) ||
        !fr_tune_table_measure(rig, &tuning) || !fr_tune_meet_all(rig))
        return false;
    if (rig->own == 0)
        rig->board->tuning = tuning;
    fr_device_release();
    return true;
}

static void __attribute__((noreturn)) become(struct fr_tune_rig *rig, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    bool done = getppid() == parent && serve(rig);
    fflush(NULL);
    _exit(done ? EXIT_SUCCESS : EXIT_FAILURE);
}

// Waits for all processes but those that are gone without a word.
static void wait_for(struct fr_tune_board *board, int count)
{
    for (int status = 0; count > 0 && wait(&status) > 0; count--) {
        if (status != 0)
            (void)fr_tune_fail(board, "the process of a GPU has ended with status %d", status);
    }
}

bool fr_tune_gpus_measure(const struct fr_tune_gpus *gpus, size_t piece_bytes,
                          struct fr_policy_tuning *tuning, bool *has_kernels)
{
    static struct fr_tune_rig rig; // of each process
    int started = 0;
    pid_t parent = getpid();
    struct fr_tune_board *board =
        mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED)
        return fr_tool_complain("no memory");
    rig = (struct fr_tune_rig){
        .gpus = gpus,
        .board = board,
        .count = gpus->count,
        .is_simulated = gpus->is_simulated,
        .has_kernels = true,
        .can_reduce = true,
        .can_pack = true,
        .piece_bytes = piece_bytes,
    };
    fflush(NULL);
    for (; started < gpus->count; started++) {
        rig.own = started;
        pid_t child = fork();
        if (child == 0)
            become(&rig, parent);
        if (child < 0) {
            (void)fr_tune_fail(board, "no more processes can be started");
            break;
        }
    }
    wait_for(board, started);
    bool done = !atomic_load(&board->failed);
    *tuning = board->tuning;
    *has_kernels = board->has_kernels[0];
    munmap(board, sizeof(*board));
    return done;
}
