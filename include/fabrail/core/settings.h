// SPDX-License-Identifier: BSD-3-Clause
// The settings of a process, which its environment gives.
#ifndef FR_FABRAIL_CORE_SETTINGS_H
#define FR_FABRAIL_CORE_SETTINGS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Marks a declaration of data that are not exported. Compilers would otherwise load their address
// from a table each time, since another library could define them.
#define FR_OWN __attribute__((visibility("hidden")))

// Value of a size setting that leaves the choice to the library.
#define FR_BYTES_AUTO SIZE_MAX

enum fr_log_level { FR_LOG_ERROR, FR_LOG_WARN, FR_LOG_INFO, FR_LOG_DEBUG, FR_LOG_TRACE };

enum fr_tristate { FR_AUTO, FR_YES, FR_NO };

// Bits of the setting FABRAIL_PATHS.
enum {
    FR_PATH_BIT_PASS = 1u << 0,
    FR_PATH_BIT_HOST = 1u << 1,
    FR_PATH_BIT_FABRIC = 1u << 2,
    FR_PATH_BIT_PEER = 1u << 3
};

// The setting FABRAIL_FABRIC.
enum fr_fabric_use {
    FR_FABRIC_AUTO,  // on communicators that have multi-node NVLink
    FR_FABRIC_FORCE, // on every communicator
    FR_FABRIC_OFF,
};

// The setting FABRAIL_RAIL_FLUSH: the operation that makes data visible to the device which NICs
// wrote to its memory.
enum fr_rail_flush {
    FR_RAIL_FLUSH_AUTO,
    FR_RAIL_FLUSH_NONE,
    FR_RAIL_FLUSH_CUDA,       // the driver's own call
    FR_RAIL_FLUSH_READ,       // a read of device memory over each rail
    FR_RAIL_FLUSH_WRITE_READ, // a write to device memory, then a read of it
};

enum { FR_RAILS_MAX = 16 }; // rails of a process

// The setting FABRAIL_RAIL: which messages may go over rails.
enum fr_rail_use {
    FR_RAIL_AUTO,  // where MPI is not GPU-aware and rails have more to give than MPI
    FR_RAIL_FORCE, // all messages that can
    FR_RAIL_OFF,
};

// The setting FABRAIL_RAIL_VERB: whether messages over rails are read or written.
enum fr_rail_verb {
    FR_RAIL_VERB_AUTO, // reads, unless they are known to be bad and writes are not
    FR_RAIL_VERB_READ,
    FR_RAIL_VERB_WRITE, // writes, where the sender can write
};

// The setting FABRAIL_PROGRESS: which threads make progress. Each value from FR_PROGRESS_THREAD on
// adds to the one before.
enum fr_progress_use {
    FR_PROGRESS_AUTO, // calls of MPI, and a thread while others read over rails that want a CPU
    FR_PROGRESS_MANUAL,
    FR_PROGRESS_THREAD,   // a thread for such rails at all times
    FR_PROGRESS_MULTIPLE, // MPI starts with MPI_THREAD_MULTIPLE, so that a thread may call it
};

// The setting FABRAIL_SYNC: what is done about work of the application's on a GPU that is under way
// when it hands a buffer to MPI.
enum fr_sync_use {
    FR_SYNC_OFF,
    FR_SYNC_CHECK, // look whether it changes the buffer, and report that
    FR_SYNC_AUTO,  // wait for it
};

// The setting FABRAIL_CPU_ACCESS: how the CPU reaches device memory itself.
enum fr_cpu_access {
    FR_CPU_ACCESS_AUTO, // by the first way below that there is
    FR_CPU_ACCESS_OFF,
    FR_CPU_ACCESS_GDRCOPY,
    FR_CPU_ACCESS_DMABUF,
};

// The setting FABRAIL_WIN_ALLOCATE: memory of the windows that MPI_Win_allocate makes.
enum fr_window_memory {
    FR_WINDOW_HOST,
    FR_WINDOW_DEVICE,
};

// All settings. Each member is one row of src/core/settings.def, which names the
// environment variable, its type, default, range and help text. The values of a choice stand there
// in the order of their enumerators. AUTO is FR_BYTES_AUTO.
struct fr_settings {
    bool disable;                   // FABRAIL_DISABLE
    unsigned paths;                 // FABRAIL_PATHS, bits FR_PATH_BIT_*
    enum fr_log_level log;          // FABRAIL_LOG
    enum fr_tristate mpi_gpu_aware; // FABRAIL_MPI_GPU_AWARE
    size_t staging_max_bytes;       // FABRAIL_STAGING_MAX, bound on page-locked staging memory
    size_t staging_keep_bytes;      // FABRAIL_STAGING_KEEP, what stays cached while unused
    enum fr_fabric_use fabric;      // FABRAIL_FABRIC
    size_t workspace_max_bytes;     // FABRAIL_WORKSPACE_MAX, bound on workspace of each device
    size_t mapped_max_bytes;        // FABRAIL_MAPPED_MAX, bound on mappings
    size_t clique_min_bytes;        // FABRAIL_CLIQUE_MIN, smallest message by multi-node NVLink
    size_t shared_gpu_min_bytes;    // FABRAIL_SHARED_GPU_MIN, smallest message within a GPU
    size_t peer_sms;                // FABRAIL_PEER_SMS, multiprocessors that one exchange may take
    size_t peer_ce_min_bytes;       // FABRAIL_PEER_CE_MIN, beyond it copy engines serve, or AUTO
    size_t bcast_split_min_bytes;   // FABRAIL_BCAST_SPLIT_MIN, or AUTO
    size_t reduce_share_min_bytes;  // FABRAIL_REDUCE_SHARE_MIN, or AUTO
    size_t combine_min_bytes;       // FABRAIL_COMBINE_MIN, or AUTO
    size_t pack_first_min_bytes;    // FABRAIL_PACK_FIRST_MIN, or AUTO
    size_t pipeline_min_bytes;      // FABRAIL_PIPELINE_MIN, 0 for never
    const char *tuning;             // FABRAIL_TUNING: "auto", "" for none, else a file name
    enum fr_rail_use rail;          // FABRAIL_RAIL
    size_t rail_min_bytes;          // FABRAIL_RAIL_MIN, smallest message over rails, or AUTO
    enum fr_rail_verb rail_verb;    // FABRAIL_RAIL_VERB
    bool rail_host;                 // FABRAIL_RAIL_HOST, rails also take host memory
    enum fr_progress_use progress;  // FABRAIL_PROGRESS
    size_t rail_max;                // FABRAIL_RAIL_MAX, rails of a process
    const char *rail_nics;          // FABRAIL_RAIL_NICS, names allowed or, after ^, denied
    const char *rail_provider;      // FABRAIL_RAIL_PROVIDER, "auto" or libfabric's name of one
    enum fr_rail_flush rail_flush;  // FABRAIL_RAIL_FLUSH
    bool rail_hmem;                 // FABRAIL_RAIL_HMEM, NICs reach device memory themselves
    size_t rail_cache_bytes;        // FABRAIL_RAIL_CACHE, memory left registered while unused
    size_t timeout_s;               // FABRAIL_TIMEOUT, longest wait for other ranks, 0: no bound
    enum fr_window_memory win_allocate; // FABRAIL_WIN_ALLOCATE
    enum fr_cpu_access cpu_access;      // FABRAIL_CPU_ACCESS
    size_t cpu_read_max_bytes;          // FABRAIL_CPU_READ_MAX, or FR_BYTES_AUTO
    size_t cpu_write_max_bytes;         // FABRAIL_CPU_WRITE_MAX, or FR_BYTES_AUTO
    enum fr_sync_use sync;              // FABRAIL_SYNC
    size_t sync_wait_s;                 // FABRAIL_SYNC_WAIT, longest wait for work on a GPU
    const char *report; // FABRAIL_REPORT: "" none, "text" to stderr, else a file name
    const char *trace;  // FABRAIL_TRACE: "" none, else a file name
};

// The settings of this process once they have been read, and what reads them.
extern FR_OWN const struct fr_settings *_Atomic fr_core_settings_ready;
const struct fr_settings *fr_core_settings_read(void);

// Returns the settings of this process. The first call reads the environment and warns of unknown
// FABRAIL_ names and bad values. Never fails; the pointer stays valid until exit.
static inline const struct fr_settings *fr_core_settings(void)
{
    const struct fr_settings *settings =
        atomic_load_explicit(&fr_core_settings_ready, memory_order_acquire);
    return settings != NULL ? settings : fr_core_settings_read();
}

// Returns whether this thread is inside its first call of fr_core_settings, and so must not call it
// again. That happens when an allocator that another preloaded library wraps looks its own
// functions up.
bool fr_core_settings_are_read_here(void);

// Returns whether FABRAIL_SYNC may ask for something. Reads no settings for that: a program without
// MPI may ask, which Fabrail has nothing to tell.
bool fr_core_may_sync(void);

// Called once for each thing wrong in an environment. `text` dies with the call.
typedef void (*fr_core_complain_fn)(void *cookie, const char *text);

// Reads settings from `environment` ("NAME=value" strings, ended by NULL) in place of the process's
// own, so that tests need none. Touches no global state. Strings in `settings` point into
// `environment`. Returns the number of complaints; `complain` may be NULL.
unsigned fr_core_settings_parse(char *const *environment, struct fr_settings *settings,
                                fr_core_complain_fn complain, void *cookie);

// Returns whether a variable of this name is one by which sites and their module files say where a
// package lies, such as FABRAIL_ROOT or FABRAIL_INSTALL_DIR. It is neither a setting nor a mistake.
bool fr_core_settings_of_site(const char *name, size_t length);

// Writes the settings that all ranks of a job must have alike, as an environment sets them, with
// semicolons between them. Returns `text`, which is equal for equal settings, however they were
// spelt.
enum { FR_ALIKE_BYTES = 256 };
const char *fr_core_settings_alike(const struct fr_settings *settings, char text[FR_ALIKE_BYTES]);

// One setting of this process.
struct fr_core_setting {
    const char *name;         // with the prefix
    const char *value;        // as the environment gives it, or the default
    const char *default_text; // "" for none
    const char *values;       // what it takes, as the manual says it; NULL for any text
    const char *help;         // sentences, in roff
    bool is_given;            // by the environment, in a way that is understood
};
// Writes the setting of this number, from 0 on. Returns false beyond the last. Its texts stay.
// Signal-safe once the settings have been read.
bool fr_core_setting_at(size_t index, struct fr_core_setting *setting);

#endif
