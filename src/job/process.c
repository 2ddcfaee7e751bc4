// SPDX-License-Identifier: BSD-3-Clause
// The identity of this process for all others of its job.
#include "config.h"

#include "fabrail/job/control.h"

#include "fabrail/core/time.h"
#include "fabrail/job.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

static struct fr_job_process self; // constant once `known` is set
static atomic_bool known;
static struct fr_lock self_lock = FR_LOCK_INIT;

// Fills bytes that no other process has. Returns whether they come from the kernel, so that nobody
// can guess them.
static bool draw(void *bytes, size_t count)
{
    unsigned char *at = bytes;
    while (count > 0) {
        ssize_t got = getrandom(at, count, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        at += got;
        count -= (size_t)got;
    }
    if (count == 0)
        return true;
    for (; count > 0; count--) {
        uint64_t mixed = ((uint64_t)fr_time_ns() ^ ((uint64_t)getpid() << 20) ^ (uintptr_t)&count) *
                         0x9e3779b97f4a7c15u;
        *at++ = (unsigned char)(mixed >> 56);
    }
    return false;
}

static uint64_t hash_text(const char *text, size_t length)
{
    uint64_t hash = 0xcbf29ce484222325u; // FNV-1a
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)text[i]) * 0x100000001b3u;
    return hash;
}

// Returns what identifies the host: the kernel's boot id, of 122 random bits. It is the same in all
// containers of a host, whose names may differ, and differs between hosts, whose names may be the
// same.
static uint64_t identify_host(void)
{
    char text[256] = "";
    ssize_t length = -1;
    int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
        length = read(file, text, sizeof(text) - 1);
        close(file);
    }
    if (length <= 0) {
        (void)gethostname(text, sizeof(text) - 1);
        length = (ssize_t)strlen(text);
    }
    return hash_text(text, (size_t)length);
}

// Returns the inode number of the pid namespace, which has 32 bits.
static uint32_t identify_namespace(void)
{
    struct stat status;
    return stat("/proc/self/ns/pid", &status) == 0 ? (uint32_t)status.st_ino : 0;
}

static void identify(void)
{
    struct fr_job_process drawn = {
        .host = identify_host(), .pid = (int32_t)getpid(), .pid_namespace = identify_namespace()};
    while (drawn.cookie == 0) // 0 means no process
        (void)draw(&drawn.cookie, sizeof(drawn.cookie));
    fr_core_lock(&self_lock);
    if (!atomic_load_explicit(&known, memory_order_relaxed)) {
        self = drawn;
        atomic_store_explicit(&known, true, memory_order_release);
    }
    fr_core_unlock(&self_lock);
}

const struct fr_job_process *fr_job_control_self(void)
{
    if (FR_UNLIKELY(!atomic_load_explicit(&known, memory_order_acquire)))
        identify();
    return &self;
}

enum fr_status fr_job_secret_draw(struct fr_job_secret *secret)
{
    bool drawn = draw(secret->bytes, sizeof(secret->bytes));
    return drawn ? FR_OK : FR_ERR_UNSUPPORTED;
}

bool fr_job_process_is_alive(const struct fr_job_process *process)
{
    // A process id means nothing in another container.
    uint32_t own = fr_job_control_self()->pid_namespace;
    if (own == 0 || process->pid_namespace != own)
        return true;
    return kill((pid_t)process->pid, 0) == 0 || errno != ESRCH;
}

struct fr_job_process fr_job_process_from(const struct fr_job_facts *facts)
{
    return (struct fr_job_process){.cookie = facts->cookie,
                                   .host = facts->kernel,
                                   .pid = facts->pid,
                                   .pid_namespace = facts->pid_namespace};
}
