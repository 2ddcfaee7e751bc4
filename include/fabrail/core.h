// SPDX-License-Identifier: BSD-3-Clause
// Module core: the status type, the log, the settings and small helpers that every other module
// uses. It knows neither MPI nor CUDA.
#ifndef FR_FABRAIL_CORE_H
#define FR_FABRAIL_CORE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FR_MUST_CHECK       __attribute__((warn_unused_result))
#define FR_PRINTF(fmt, arg) __attribute__((format(printf, fmt, arg)))
#define FR_LIKELY(x)        __builtin_expect(!!(x), 1)
#define FR_UNLIKELY(x)      __builtin_expect(!!(x), 0)
#define FR_ARRAY_LENGTH(a)  (sizeof(a) / sizeof((a)[0]))
#define FR_TLS              __thread __attribute__((tls_model("initial-exec")))

// Marks a function that most calls go through. Such functions are kept together, and aligned so
// that no branch is slow by chance.
#define FR_HOT __attribute__((hot, aligned(64)))

// Names the lock that guards a field, for clang's thread-safety analysis.
#ifdef __clang__
#define FR_GUARDED_BY(lock) __attribute__((guarded_by(lock)))
#define FR_REQUIRES(lock)   __attribute__((requires_capability(lock)))
#define FR_CAPABILITY(name) __attribute__((capability(name)))
#define FR_ACQUIRES(...)    __attribute__((acquire_capability(__VA_ARGS__)))
#define FR_RELEASES(...)    __attribute__((release_capability(__VA_ARGS__)))
#define FR_UNANALYSED       __attribute__((no_thread_safety_analysis))
#else
#define FR_GUARDED_BY(lock)
#define FR_REQUIRES(lock)
#define FR_CAPABILITY(name)
#define FR_ACQUIRES(...)
#define FR_RELEASES(...)
#define FR_UNANALYSED
#endif

// Result of a function. The code that first learns of an error logs it; the modules above only pass
// it on.
enum fr_status {
    FR_OK = 0,
    FR_ERR_NO_MEMORY,   // no host, page-locked or device memory could be had
    FR_ERR_NOT_FOUND,   // a library, symbol or cached object is missing
    FR_ERR_UNSUPPORTED, // this machine, driver or MPI cannot do it
    FR_ERR_INVALID,     // an argument makes no sense
    FR_ERR_TRUNCATE,    // a receive buffer is too small for what is sent
    FR_ERR_LIMIT,       // a bound that the user or an integer type sets is exceeded
    FR_ERR_DEVICE,      // a driver call failed
    FR_ERR_MPI,         // a call of the real MPI failed
    FR_ERR_RAIL,        // libfabric failed, or every rail to a process is lost
    FR_ERR_CANCELLED,   // the caller took the operation back
};

// Returns the name of a status for log lines, static text.
const char *fr_core_status_text(enum fr_status status);

// Writes `bytes` to `text`, exactly and with the largest suffix that allows it: "64M", "1536M",
// "4097". Returns `text`.
enum { FR_BYTES_TEXT = 24 };
const char *fr_core_bytes_text(size_t bytes, char text[FR_BYTES_TEXT]);

// Reads a size as users write it: "4096", "8M", "1.5GiB". Settings in seconds are read alike.
// Returns false and leaves *bytes alone if the text is anything else, such as a part of a byte or
// of a second.
bool fr_core_bytes_parse(const char *text, size_t *bytes);

// Returns the bytes of the valid UTF-8 character at `at`, or 0 where there is none. The report
// needs it, since JSON takes nothing but UTF-8.
unsigned fr_core_utf8_length(const char *at);

// Value of a size setting that leaves the choice to the library.
#define FR_BYTES_AUTO SIZE_MAX

enum fr_log_level { FR_LOG_ERROR, FR_LOG_WARN, FR_LOG_INFO, FR_LOG_DEBUG, FR_LOG_TRACE };

// Lines up to this level are written. It is read relaxed, since no thread orders anything else by
// it.
extern _Atomic enum fr_log_level fr_core_log_level;

// Writes one line to stderr, "fabrail[rank]: level: text". Keeps errno and does not allocate.
void fr_core_log_write(enum fr_log_level level, const char *format, ...) FR_PRINTF(2, 3);

// Sets the rank that log lines show from now on; -1 shows none.
void fr_core_log_set_rank(int rank);

// Returns the text of the `index`th of the first FR_LOG_RECORDED warnings and errors, in the order
// in which they were written, and sets *level. Returns NULL where there is none. The report lists
// them. The strings live until exit.
enum { FR_LOG_RECORDED = 32 };
const char *fr_core_log_recorded(unsigned index, enum fr_log_level *level);

#define FR_LOG_AT(level, ...)                                                                      \
    do {                                                                                           \
        if (FR_UNLIKELY((level) <=                                                                 \
                        atomic_load_explicit(&fr_core_log_level, memory_order_relaxed)))           \
            fr_core_log_write((level), __VA_ARGS__);                                               \
    } while (0)
#define fr_error(...) FR_LOG_AT(FR_LOG_ERROR, __VA_ARGS__)
#define fr_warn(...)  FR_LOG_AT(FR_LOG_WARN, __VA_ARGS__)
#define fr_info(...)  FR_LOG_AT(FR_LOG_INFO, __VA_ARGS__)
#define fr_debug(...) FR_LOG_AT(FR_LOG_DEBUG, __VA_ARGS__)
#ifdef FR_ENABLE_TRACE
#define fr_trace(...) FR_LOG_AT(FR_LOG_TRACE, __VA_ARGS__)
#else
#define fr_trace(...) ((void)0)
#endif
// Writes a warning at most once in a process for each place in the code.
#define fr_warn_once(...)                                                                          \
    do {                                                                                           \
        static atomic_flag shown = ATOMIC_FLAG_INIT;                                               \
        if (!atomic_flag_test_and_set_explicit(&shown, memory_order_relaxed))                      \
            fr_warn(__VA_ARGS__);                                                                  \
    } while (0)

// Writes what the launcher calls the job, or "" where it says nothing. The name is the same in all
// processes of the job.
enum { FR_CORE_JOB_NAME_BYTES = 128 };
void fr_core_job_name(char name[FR_CORE_JOB_NAME_BYTES]);

// Returns the value of a variable of the launcher's own, or NULL where it is not set. The string is
// the environment's.
const char *fr_core_job_value(const char *name);

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
    FR_RAIL_AUTO, // where MPI is not GPU-aware and rails have more to give than MPI
    FR_RAIL_OFF,
    FR_RAIL_FORCE, // all messages that can
};

// The setting FABRAIL_RAIL_VERB: whether messages over rails are read or written.
enum fr_rail_verb {
    FR_RAIL_VERB_AUTO, // reads, unless they are known to be bad and writes are not
    FR_RAIL_VERB_READ,
    FR_RAIL_VERB_WRITE, // writes, where the sender can write
};

// The setting FABRAIL_PROGRESS: which threads move rails that want a CPU for it.
enum fr_progress_use {
    FR_PROGRESS_AUTO, // calls of MPI, and a thread while other processes read over such rails
    FR_PROGRESS_MANUAL,
    FR_PROGRESS_THREAD, // a thread at all times
};

// The setting FABRAIL_SYNC: what is done about work of the application's on a GPU that is under way
// when it hands a buffer to MPI.
enum fr_sync_use {
    FR_SYNC_OFF,
    FR_SYNC_CHECK, // look whether it changes the buffer, and report that
    FR_SYNC_AUTO,  // wait for it
};

// All settings. Each member is one row of the table in src/core/settings.c, which names the
// environment variable, its type, default, range and help text. AUTO is FR_BYTES_AUTO.
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
    enum fr_sync_use sync;          // FABRAIL_SYNC
    size_t sync_wait_s;             // FABRAIL_SYNC_WAIT, longest wait for work on a GPU
    const char *report;             // FABRAIL_REPORT: "" none, "text" to stderr, else a file name
    const char *trace;              // FABRAIL_TRACE: "" none, else a file name
};

// Returns the settings of this process. The first call reads the environment and warns of unknown
// FABRAIL_ names and bad values. Never fails; the pointer stays valid until exit.
const struct fr_settings *fr_core_settings(void);

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

// Returns whether `name`, without its prefix, is one by which sites and their module files say
// where a package lies, such as ROOT, INSTALL_DIR or VERSION. Such a variable is neither a setting
// nor a mistake.
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
    bool is_given;            // by the environment, in a way that is understood
};
// Writes the setting of this number, from 0 on. Returns false beyond the last. Its texts stay.
// Signal-safe once the settings have been read.
bool fr_core_setting_at(size_t index, struct fr_core_setting *setting);

// Writes the table of settings as manual page source (roff) to the open stdio stream `stream`.
void fr_core_settings_write_manual(void *stream);

// Number of errands: things that calls of MPI must look after now and then, also in a phase of host
// memory. An errand is something held for other processes or had from them. Its owner counts it for
// as long as it lasts.
extern _Atomic size_t fr_core_errand_count;
static inline bool fr_core_has_errands(void)
{
    return atomic_load_explicit(&fr_core_errand_count, memory_order_relaxed) != 0;
}
static inline void fr_core_errands_change(bool was, bool is)
{
    if (was != is)
        atomic_fetch_add_explicit(&fr_core_errand_count, is ? 1 : (size_t)-1, memory_order_relaxed);
}

// A mutex that clang's thread-safety analysis understands. Static storage starts unlocked with
// FR_LOCK_INIT.
struct FR_CAPABILITY("mutex") fr_lock {
    pthread_mutex_t mutex;
};
#define FR_LOCK_INIT                                                                               \
    {                                                                                              \
        PTHREAD_MUTEX_INITIALIZER                                                                  \
    }
// Take and give back a lock. The holder calls no driver, MPI or libfabric.
void fr_core_lock(struct fr_lock *lock) FR_ACQUIRES(lock);
void fr_core_unlock(struct fr_lock *lock) FR_RELEASES(lock);

#endif
