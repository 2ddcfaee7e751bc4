// SPDX-License-Identifier: BSD-3-Clause
// Module core: the status type, the log, the settings and small helpers that every other module
// uses. It knows neither MPI nor CUDA.
#ifndef FR_FABRAIL_CORE_H
#define FR_FABRAIL_CORE_H

#include "fabrail/core/settings.h"

#include <stdatomic.h>

#define FR_MUST_CHECK       __attribute__((warn_unused_result))
#define FR_PRINTF(fmt, arg) __attribute__((format(printf, fmt, arg)))
#define FR_LIKELY(x)        __builtin_expect(!!(x), 1)
#define FR_UNLIKELY(x)      __builtin_expect(!!(x), 0)
#define FR_ARRAY_LENGTH(a)  (sizeof(a) / sizeof((a)[0]))
#define FR_TLS              __thread __attribute__((tls_model("initial-exec")))

// Marks a function that most calls go through. Such functions are kept together, and aligned so
// that no branch is slow by chance.
#define FR_HOT __attribute__((hot, aligned(64)))

// Marks a function that each call goes through that begins a message. These lie together, too:
// where they lie as the files come, they push one another out of the CPU's cache for instructions.
#define FR_OFTEN __attribute__((hot))

// Marks a function of which few messages have need. Its code stays apart from that of its callers.
#define FR_SELDOM __attribute__((noinline, cold))

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
    FR_ERR_RANGE,       // an access goes beyond the memory that a window has there
    FR_ERR_EPOCH,       // an access or a synchronisation does not fit the epochs of its window
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

// Lines up to this level are written. It is read relaxed, since no thread orders anything else by
// it.
extern FR_OWN _Atomic enum fr_log_level fr_core_log_level;

// Writes one line to stderr, "fabrail[rank]: level: text". Keeps errno and does not allocate.
void fr_core_log_write(enum fr_log_level level, const char *format, ...) FR_PRINTF(2, 3)
    __attribute__((cold));

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

// Return the number of this process among those that the launcher has started together, 0 where it
// says nothing, and how many these are, 1 where it says nothing.
int fr_core_job_process(void);
int fr_core_job_processes(void);

// Returns the value of a variable of the launcher's own, or NULL where it is not set. The string is
// the environment's.
const char *fr_core_job_value(const char *name);

// Number of reasons for housekeeping. A reason is something that this process holds for other
// processes, has from them, or keeps for its next use. Calls of MPI look after that now and then,
// also while the program uses host memory alone. Its owner counts it for as long as it lasts.
extern FR_OWN _Atomic size_t fr_core_housekeeping_count;
// Returns whether there is such a reason, at the cost of a load.
static inline bool fr_core_needs_housekeeping(void)
{
    return atomic_load_explicit(&fr_core_housekeeping_count, memory_order_relaxed) != 0;
}
// Counts a reason that begins or ends: whether it `was` one before, and `is` one now.
static inline void fr_core_housekeeping_change(bool was, bool is)
{
    if (was != is)
        atomic_fetch_add_explicit(&fr_core_housekeeping_count, is ? 1 : (size_t)-1,
                                  memory_order_relaxed);
}

// A lock that clang's thread-safety analysis understands. Static storage starts unlocked with
// FR_LOCK_INIT. It is held for some instructions, so a thread that waits for it spins, then yields,
// and sleeps where the holder does not run. A lock that is free costs one atomic exchange.
struct FR_CAPABILITY("mutex") fr_lock {
    _Atomic bool held;
};
#define FR_LOCK_INIT                                                                               \
    {                                                                                              \
        false                                                                                      \
    }
// Takes a lock that is held. For fr_core_lock alone.
void fr_core_lock_wait(struct fr_lock *lock);
// Takes a lock. The holder makes no call of the driver, MPI or libfabric.
FR_UNANALYSED static inline void fr_core_lock(struct fr_lock *lock) FR_ACQUIRES(lock)
{
    if (FR_UNLIKELY(atomic_exchange_explicit(&lock->held, true, memory_order_acquire)))
        fr_core_lock_wait(lock);
}
// Says whether one thread alone calls MPI, and Fabrail has no thread of its own. It is set when MPI
// has started, and ends for good before a second such thread begins.
extern FR_OWN bool fr_core_serial;
// Sets it. Once `yes` was false it stays so.
void fr_core_set_serial(bool yes);
// Sets a flag, and adds to a counter, that only threads in calls of MPI change, and Fabrail's own.
// Both return what was there before. While one such thread alone is there, they cost no atomic
// instruction, which would wait for all that the CPU has yet to store.
static inline bool fr_core_set_in_call(_Atomic bool *flag)
{
    if (FR_UNLIKELY(!fr_core_serial))
        return atomic_exchange_explicit(flag, true, memory_order_acquire);
    bool before = atomic_load_explicit(flag, memory_order_relaxed);
    atomic_store_explicit(flag, true, memory_order_relaxed);
    return before;
}
static inline size_t fr_core_add_in_call(_Atomic size_t *counter, size_t more)
{
    if (FR_UNLIKELY(!fr_core_serial))
        return atomic_fetch_add_explicit(counter, more, memory_order_acq_rel);
    size_t before = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, before + more, memory_order_release);
    return before;
}
// Takes a lock that only such threads take.
FR_UNANALYSED static inline void fr_core_lock_in_call(struct fr_lock *lock) FR_ACQUIRES(lock)
{
    if (FR_UNLIKELY(fr_core_set_in_call(&lock->held)))
        fr_core_lock_wait(lock);
}
// Gives back a lock, on the thread that holds it.
FR_UNANALYSED static inline void fr_core_unlock(struct fr_lock *lock) FR_RELEASES(lock)
{
    atomic_store_explicit(&lock->held, false, memory_order_release);
}

#endif
