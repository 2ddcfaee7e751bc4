// SPDX-License-Identifier: BSD-3-Clause
// MPI_Init, MPI_Finalize and the questions about GPU support, and calls that Fabrail only takes
// note of.
#include "config.h"

#include "fabrail/abi/hook.h"
#include "fabrail/coll/queue.h"
#include "fabrail/coll/shm_slots.h"
#include "fabrail/coll/team_discovery.h"
#include "fabrail/coll/team_message.h"
#include "fabrail/core/files.h"
#include "fabrail/core/time.h"
#include "fabrail/device/aperture.h"
#include "fabrail/ipc.h"
#include "fabrail/ipc/tuned.h"
#include "fabrail/job.h"
#include "fabrail/report.h"
#include "fabrail/request/attendant.h"
#include "fabrail/request/errors.h"
#include "fabrail/request/schedule.h"
#include "fabrail/rma.h"
#include "fabrail/staging/typed_copy.h"
#include "intercept/coll_nonblocking.h"
#include "intercept/intercept_int.h"

#include <dlfcn.h>
#include <stdio.h>

// Says what this job runs on, as rank 0 sees it.
static void tell_machine(void)
{
    enum { NICS_BYTES = 256 };
    char gpus[FR_DEVICE_MACHINE_BYTES], nics[NICS_BYTES];
    Dl_info library = {.dli_fname = NULL};
    if (fr_core_log_level < FR_LOG_INFO)
        return;
    if (fr_device_machine_text(gpus) != FR_OK)
        snprintf(gpus, sizeof(gpus), "no GPU");
    (void)dladdr((void *)(uintptr_t)tell_machine, &library);
    if (!fr_core_folder_list("/sys/class/infiniband", "device", nics, sizeof(nics)) &&
        !fr_core_folder_list("/sys/class/net", "device", nics, sizeof(nics)))
        snprintf(nics, sizeof(nics), "none");
    fr_info("%s; NICs %s; library %s", gpus, nics,
            library.dli_fname ? library.dli_fname : "unknown");
}

// Introduces this rank to the others. Returns false when ranks without Fabrail are in the way.
static bool introduce(void)
{
    int level = fr_abi_mpi.THREAD_MULTIPLE;
    bool known = FR_MPI(Query_thread, FR_PTR(&level)) == fr_abi_mpi.SUCCESS;
    if (level != fr_abi_mpi.THREAD_MULTIPLE)
        fr_request_set_serial(true);
    fr_job_note();
    fr_core_log_set_rank(fr_job_rank());
    fr_job_warn_alone();
    fr_device_aperture_start(fr_ipc_tuned_cpu);
    if (!fr_intercept_gather_facts())
        return false;
    fr_intercept_nvlink_start();
    fr_intercept_aliases_start();
    fr_intercept_messages_start();
    fr_intercept_nvlink_meet();
    if (known && level == fr_abi_mpi.THREAD_MULTIPLE && fr_intercept_rndv_is_enabled &&
        fr_core_settings()->progress != FR_PROGRESS_MANUAL)
        fr_request_attendant_allow(fr_intercept_attend);
    if (fr_job_rank() > 0)
        return true;
    if (fr_job_host_count() > 0)
        fr_info("%d hosts, %d groups of GPUs with multi-node NVLink", fr_job_host_count(),
                fr_job_clique_count());
    fr_info("fabrail %s with %s, which is %sGPU-aware", PACKAGE_VERSION, fr_abi_mpi.family,
            fr_intercept_is_gpu_aware() ? "" : "not ");
    tell_machine();
    return true;
}

// Ends the job with a fatal error. Where a fatal error handler is called, MPICH ends only its own
// process. Slurm then leaves the others, which wait for it. Hydra shows no output that it has not
// read before it is asked to end the job, so it gets the time to read why.
static int fail_start(void)
{
    enum { TIME_TO_READ_NS = 100000000 };
    _Alignas(8) char handler[8];
    fr_word world = fr_abi_mpi.COMM_WORLD;
    bool known = FR_MPI(Comm_get_errhandler, world, FR_PTR(handler)) == fr_abi_mpi.SUCCESS;
    if (known && fr_abi_handle_load(handler, 0) == fr_abi_mpi.ERRORS_ARE_FATAL) {
        fr_report_write_abort();
        fr_time_sleep(TIME_TO_READ_NS);
        FR_MPI(Abort, world, (fr_word)fr_abi_mpi.ERR_OTHER);
    }
    if (known)
        FR_MPI(Errhandler_free, FR_PTR(handler));
    FR_MPI(Comm_call_errhandler, world, (fr_word)fr_abi_mpi.ERR_OTHER);
    return fr_abi_mpi.ERR_OTHER;
}

// Starts the real MPI. With FABRAIL_PROGRESS=multiple it lets several threads call it, of which one
// is the attendant. MPI may give a program a higher level than it asks for.
static int start_mpi(enum fr_fn fn, const fr_word *args)
{
    int provided = 0;
    if (fr_core_settings()->progress != FR_PROGRESS_MULTIPLE)
        return fr_abi_call(fn, args);
    int rc = FR_MPI(Init_thread, args[0], args[1], (fr_word)fr_abi_mpi.THREAD_MULTIPLE,
                    FR_PTR(&provided));
    if (rc == fr_abi_mpi.SUCCESS && provided != fr_abi_mpi.THREAD_MULTIPLE)
        fr_warn("FABRAIL_PROGRESS=multiple has no effect: this MPI library does not give "
                "MPI_THREAD_MULTIPLE");
    if (rc == fr_abi_mpi.SUCCESS && fn == FR_FN_MPI_Init_thread)
        *(int *)args[3] = provided;
    return rc;
}

bool fr_intercept_call_init(enum fr_fn fn, fr_word *args, int *result)
{
    fr_report_before_init();
    bool starts = fr_job_census_begin();
    *result = start_mpi(fn, args);
    if (starts)
        fr_job_census_note();
    if (*result == fr_abi_mpi.SUCCESS) {
        bool introduced = introduce();
        fr_report_after_init(&(struct fr_report_job){
            .mpi_gpu_aware = fr_intercept_is_gpu_aware(),
            .hosts = fr_job_host_count(),
            .cliques = fr_job_clique_count(),
            .fabric_memory = "unknown",
        });
        if (!introduced)
            *result = fail_start();
    }
    return true;
}

static struct fr_report_typed typed_of(const struct fr_staging_typed *typed)
{
    return (struct fr_report_typed){.copies = typed->copies, .bytes = typed->bytes};
}

// Returns what the report has besides its counters, at the end.
static struct fr_report_job facts_at_end(void)
{
    struct fr_staging_typed typed[FR_TYPED_WAYS];
    fr_staging_get_typed(typed);
    const struct fr_device_aperture_usage by_cpu = fr_device_aperture_get_usage();
    return (struct fr_report_job){
        .by_kernel = typed_of(&typed[FR_TYPED_BY_KERNEL]),
        .by_driver = typed_of(&typed[FR_TYPED_BY_DRIVER]),
        .by_cpu = typed_of(&typed[FR_TYPED_BY_CPU]),
        .cpu_way = by_cpu.way,
        .cpu_read = {by_cpu.read_copies, by_cpu.read_bytes},
        .cpu_written = {by_cpu.write_copies, by_cpu.write_bytes},
        .mpi_gpu_aware = fr_intercept_is_gpu_aware(),
        .hosts = fr_job_host_count(),
        .cliques = fr_job_clique_count(),
        .fabric_memory = fr_intercept_fabric_memory_text(),
        .workspace_peak_bytes = fr_staging_get_device_usage().peak_bytes,
    };
}

bool fr_intercept_call_finalize(enum fr_fn fn, fr_word *args, int *result)
{
    if (fr_job_rank() < 0)
        fr_job_note(); // MPI was started in a way that no stub saw
    fr_core_log_set_rank(fr_job_rank());
    fr_request_attendant_stop();
    fr_abi_unhook_all();
    fr_intercept_messages_sync();
    fr_coll_queue_stop();
    fr_request_end_freed();
    fr_request_end_never();
    fr_intercept_messages_end();
    fr_coll_team_message_release();
    const struct fr_report_job facts = facts_at_end();
    fr_report_write(&facts);
    fr_datatype_forget_all();
    fr_job_release();
    *result = fr_abi_call(fn, args);
    fr_intercept_attached_release();
    fr_coll_slots_release();
    fr_coll_discovery_release();
    fr_ipc_release();
    fr_staging_release();
    fr_device_release();
    fr_report_summarise();
    return true;
}

// Returns whether Fabrail serves all memory of devices.
static bool serves(void)
{
    return fr_abi_mpi.family && !fr_core_settings()->disable &&
           (fr_core_settings()->paths & FR_PATH_BIT_HOST) && fr_device_is_installed();
}

bool fr_intercept_serves_cuda(void)
{
    return serves() || (fr_intercept_is_gpu_aware() && fr_device_is_installed());
}

bool fr_intercept_call_query(enum fr_fn fn, fr_word *args, int *result)
{
    enum { MPICH_GPU_SUPPORT_CUDA = 0 };
    bool served = serves();
    bool cuda = fn == FR_FN_MPIX_Query_cuda_support;
    if (cuda) {
        *result = served || (fr_abi_has(fn) && fr_abi_call(fn, NULL) == 1);
        return true;
    }
    *result = fr_abi_mpi.SUCCESS;
    if (args[1])
        *(int *)args[1] = 0;
    if (fr_abi_has(fn))
        *result = fr_abi_call(fn, args);
    if (served && args[1] && (int)args[0] == MPICH_GPU_SUPPORT_CUDA)
        *(int *)args[1] = 1;
    return true;
}

bool fr_intercept_call_type_free(enum fr_fn fn, fr_word *args, int *result)
{
    (void)fn;
    (void)result;
    if (args[0])
        fr_datatype_forget(fr_abi_handle_load((const void *)args[0], 0));
    return false;
}

bool fr_intercept_call_request_free(enum fr_fn fn, fr_word *args, int *result)
{
    (void)fn;
    bool handled = fr_request_free(args, result);
    if (handled)
        fr_intercept_comms_free_later();
    return handled;
}

// A session may have threads that MPI_Query_thread says nothing of. The first session starts MPI,
// which makes records known once: MPI_Init may follow.
bool fr_intercept_call_session_init(enum fr_fn fn, fr_word *args, int *result)
{
    fr_request_set_serial(false);
    bool starts = fr_job_census_begin();
    *result = fr_abi_call(fn, args);
    if (starts)
        fr_job_census_note();
    if (*result == fr_abi_mpi.SUCCESS)
        fr_report_session_begin();
    return true;
}

bool fr_intercept_call_session_finalize(enum fr_fn fn, fr_word *args, int *result)
{
    const struct fr_report_job facts = facts_at_end(); // the last session ends MPI
    *result = fr_abi_call(fn, args);
    if (*result == fr_abi_mpi.SUCCESS)
        fr_report_session_end(&facts);
    return true;
}

bool fr_intercept_call_handler_make(enum fr_fn fn, fr_word *args, int *result)
{
    (void)fn;
    (void)args;
    (void)result;
    fr_request_handler_made();
    return false;
}

// Fortran bindings may make an error handler by functions of their own.
bool fr_intercept_call_handler_set(enum fr_fn fn, fr_word *args, int *result)
{
    (void)result;
    fr_word set = fr_abi_handle(args[1]);
    bool of_window = fr_abi_rows[fn].window >= 0, of_file = fr_abi_rows[fn].file >= 0;
    if (set != fr_abi_mpi.ERRORS_ARE_FATAL && !of_window && !of_file)
        atomic_store_explicit(&fr_request_errors_may_return, true, memory_order_relaxed);
    if (set != fr_abi_mpi.ERRORS_ARE_FATAL && set != fr_abi_mpi.ERRORS_RETURN)
        fr_request_handler_made();
    return false;
}

bool fr_intercept_call_abort(enum fr_fn fn, fr_word *args, int *result)
{
    (void)fn;
    (void)args;
    (void)result;
    fr_report_write_abort();
    return false;
}
