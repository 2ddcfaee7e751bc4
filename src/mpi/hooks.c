// SPDX-License-Identifier: BSD-3-Clause
// Init, Finalize and the questions about GPU support; and calls that Fabrail only takes note of.
#include "config.h"

#include "coll/meet.h"
#include "coll/place.h"
#include "coll/posts.h"
#include "memory/memory.h"
#include "mpi/mpi_int.h"
#include "path/pack.h"
#include "report/report.h"
#include "world/world.h"

// Returns false when ranks without Fabrail are in this one's way.
static bool introduce(void)
{
    int level = fr_real_mpi.THREAD_MULTIPLE;
    FR_MPI(Query_thread, FR_PTR(&level));
    if (level != fr_real_mpi.THREAD_MULTIPLE)
        fr_request_set_serial(true);
    fr_world_note();
    fr_core_log_set_rank(fr_world_rank());
    fr_world_warn_alone();
    if (!fr_mpi_gather_facts())
        return false;
    fr_mpi_peer_start();
    fr_mpi_messages_start();
    if (fr_world_rank() > 0)
        return true;
    if (fr_world_host_count() > 0)
        fr_info("%d hosts, %d groups of GPUs with multi-node NVLink", fr_world_host_count(),
                fr_world_clique_count());
    fr_info("fabrail %s with %s, which is %sGPU-aware", PACKAGE_VERSION, fr_real_mpi.family,
            fr_mpi_is_gpu_aware() ? "" : "not ");
    return true;
}

// A fatal error of the job. MPICH ends but its own process where a fatal error handler is called,
// and Slurm then leaves the others, which wait for it.
static int fail_start(void)
{
    _Alignas(8) char handler[8];
    fr_word world = fr_real_mpi.COMM_WORLD;
    bool known = FR_MPI(Comm_get_errhandler, world, FR_PTR(handler)) == fr_real_mpi.SUCCESS;
    if (known && fr_real_handle_load(handler, 0) == fr_real_mpi.ERRORS_ARE_FATAL) {
        fr_report_write_abort();
        FR_MPI(Abort, world, (fr_word)fr_real_mpi.ERR_OTHER);
    }
    if (known)
        FR_MPI(Errhandler_free, FR_PTR(handler));
    FR_MPI(Comm_call_errhandler, world, (fr_word)fr_real_mpi.ERR_OTHER);
    return fr_real_mpi.ERR_OTHER;
}

bool fr_mpi_call_init(enum fr_fn fn, fr_word *args, int *result)
{
    fr_report_before_init();
    bool starts = fr_world_census_begin();
    *result = fr_real_call(fn, args);
    if (starts)
        fr_world_census_note();
    if (*result == fr_real_mpi.SUCCESS) {
        bool introduced = introduce();
        fr_report_after_init(&(struct fr_report_job){
            .mpi_gpu_aware = fr_mpi_is_gpu_aware(),
            .hosts = fr_world_host_count(),
            .cliques = fr_world_clique_count(),
            .fabric_memory = "unknown",
        });
        if (!introduced)
            *result = fail_start();
    }
    return true;
}

bool fr_mpi_call_finalize(enum fr_fn fn, fr_word *args, int *result)
{
    if (fr_world_rank() < 0)
        fr_world_note(); // MPI was started by a way that no stub saw
    fr_core_log_set_rank(fr_world_rank());
    fr_mpi_messages_meet();
    fr_request_end_freed();
    fr_mpi_messages_end();
    fr_coll_meet_release();
    fr_report_write(&(struct fr_report_job){
        .mpi_gpu_aware = fr_mpi_is_gpu_aware(),
        .hosts = fr_world_host_count(),
        .cliques = fr_world_clique_count(),
        .fabric_memory = fr_mpi_fabric_memory_text(),
        .workspace_peak_bytes = fr_workspace_get_device_usage().peak_bytes,
    });
    fr_layout_forget_all();
    fr_world_release();
    *result = fr_real_call(fn, args);
    fr_mpi_attached_release();
    fr_coll_posts_release();
    fr_coll_place_release();
    fr_mpi_messages_release();
    fr_memory_release();
    fr_path_pack_release();
    fr_workspace_release();
    fr_device_release();
    fr_report_summarise();
    return true;
}

bool fr_mpi_call_query(enum fr_fn fn, fr_word *args, int *result)
{
    enum { MPICH_GPU_SUPPORT_CUDA = 0 };
    bool served = fr_real_mpi.family && !fr_core_settings()->disable &&
                  (fr_core_settings()->paths & FR_PATH_BIT_HOST) && fr_device_is_installed();
    bool cuda = fn == FR_FN_MPIX_Query_cuda_support;
    if (cuda) {
        *result = served || (fr_real_has(fn) && fr_real_call(fn, NULL) == 1);
        return true;
    }
    *result = fr_real_mpi.SUCCESS;
    if (args[1])
        *(int *)args[1] = 0;
    if (fr_real_has(fn))
        *result = fr_real_call(fn, args);
    if (served && args[1] && (int)args[0] == MPICH_GPU_SUPPORT_CUDA)
        *(int *)args[1] = 1;
    return true;
}

bool fr_mpi_call_type_free(enum fr_fn fn, fr_word *args, int *result)
{
    (void)fn;
    (void)result;
    if (args[0])
        fr_layout_forget(fr_real_handle_load((const void *)args[0], 0));
    return false;
}

bool fr_mpi_call_request_free(enum fr_fn fn, fr_word *args, int *result)
{
    (void)fn;
    bool handled = fr_request_free(args, result);
    if (handled)
        fr_mpi_comms_free_later();
    return handled;
}

// A session may have threads that MPI_Query_thread says nothing of. And the first one starts MPI,
// which makes records known once: MPI_Init may follow.
bool fr_mpi_call_session_init(enum fr_fn fn, fr_word *args, int *result)
{
    fr_request_set_serial(false);
    bool starts = fr_world_census_begin();
    *result = fr_real_call(fn, args);
    if (starts)
        fr_world_census_note();
    return true;
}

bool fr_mpi_call_handler_make(enum fr_fn fn, fr_word *args, int *result)
{
    (void)fn;
    (void)args;
    (void)result;
    fr_request_handler_made();
    return false;
}

// Fortran bindings may make an error handler by functions of their own.
bool fr_mpi_call_handler_set(enum fr_fn fn, fr_word *args, int *result)
{
    (void)result;
    fr_word set = fr_real_handle(args[1]);
    bool of_window = fr_real_rows[fn].window >= 0, of_file = fr_real_rows[fn].file >= 0;
    if (set != fr_real_mpi.ERRORS_ARE_FATAL && !of_window && !of_file)
        fr_request_errors_return = true;
    if (set != fr_real_mpi.ERRORS_ARE_FATAL && set != fr_real_mpi.ERRORS_RETURN)
        fr_request_handler_made();
    return false;
}

bool fr_mpi_call_abort(enum fr_fn fn, fr_word *args, int *result)
{
    (void)fn;
    (void)args;
    (void)result;
    fr_report_write_abort();
    return false;
}
