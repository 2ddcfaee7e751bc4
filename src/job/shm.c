// SPDX-License-Identifier: BSD-3-Clause
// Shared memory by name. The names are files of /dev/shm, mode 0600, and nobody can guess them.
//
// A name is needed as long as some process may still come. If all are killed before that, nobody is
// left to remove it. So each process that has a name holds a shared lock on its file, which the
// kernel ends with the process. A process that makes a name that lasts removes those of the same
// user that nobody has a lock on.
#include "config.h"

#include "fabrail/job/shm.h"

#include "fabrail/core/wait.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { NAME_BYTES = 64 };

static const char folder[] = "/dev/shm";
static const char prefix[] = "fabrail-shared-"; // of files with locks, which are all of them

static void name_of(const struct fr_job_secret *secret, char name[NAME_BYTES])
{
    size_t used = (size_t)snprintf(name, NAME_BYTES, "%s/%s", folder, prefix);
    for (size_t i = 0; i < sizeof(secret->bytes); i++)
        used += (size_t)snprintf(name + used, NAME_BYTES - used, "%02x", secret->bytes[i]);
}

static bool is_own(const struct stat *status)
{
    return S_ISREG(status->st_mode) && status->st_uid == geteuid();
}

// Returns whether a file still has a name.
static bool is_named(int file)
{
    struct stat status;
    return fstat(file, &status) == 0 && status.st_nlink > 0;
}

// Removes the name of an open file, unless another descriptor has a lock on it. Returns whether it
// has. The descriptor's own lock is lost.
static bool remove_unlocked(int file, const char *name)
{
    return flock(file, LOCK_EX | LOCK_NB) == 0 && is_named(file) && unlink(name) == 0;
}

// Removes the name of a file of this user's, if nobody has a lock on it.
static void remove_abandoned(const char *name)
{
    struct stat status;
    if (lstat(name, &status) != 0 || !is_own(&status))
        return;
    int file = open(name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (file < 0)
        return;
    if (remove_unlocked(file, name))
        fr_debug("shared memory %s that a job had left behind is taken away", name);
    close(file);
}

static void remove_all_abandoned(void)
{
    char name[NAME_BYTES];
    DIR *list = opendir(folder);
    for (struct dirent *entry; list && (entry = readdir(list)) != NULL;) {
        int used = snprintf(name, sizeof(name), "%s/%s", folder, entry->d_name);
        if (used < (int)sizeof(name) && strncmp(entry->d_name, prefix, sizeof(prefix) - 1) == 0)
            remove_abandoned(name);
    }
    if (list)
        closedir(list);
}

// Opens a file of this user's, with a lock so that others do not take it for abandoned. Another
// process that looks for abandoned files may be faster: then the name is gone, or will be in a
// moment, and this tries again. Returns -1 with EINVAL when the file is another user's.
static int open_locked(const char *name, int flags)
{
    enum { MOST_TRIES = 1000 };
    for (unsigned tries = 0; tries < MOST_TRIES; tries++) {
        struct stat status;
        int file = open(name, flags | O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (file < 0 && errno == EEXIST && tries > 0) { // this call's own, about to be removed
            fr_wait_yield();
            continue;
        }
        if (file < 0)
            return -1;
        bool is_fit = fstat(file, &status) == 0 && is_own(&status);
        if (is_fit && flock(file, LOCK_SH | LOCK_NB) == 0 && is_named(file))
            return file;
        close(file);
        errno = is_fit ? EAGAIN : EINVAL;
        if (!is_fit)
            return -1;
        fr_wait_yield();
    }
    return -1;
}

// Creates a file and claims its room at once: a page that tmpfs cannot provide later would be a
// SIGBUS.
static int create_memory(const char *name, size_t bytes)
{
    int file = open_locked(name, O_CREAT | O_EXCL);
    if (file < 0)
        return -1;
    int error;
    do {
        error = posix_fallocate(file, 0, (off_t)bytes);
    } while (error == EINTR);
    if (error == 0)
        return file;
    unlink(name);
    close(file);
    errno = error;
    return -1;
}

static int attach_memory(const char *name, size_t bytes)
{
    struct stat status;
    int file = open(name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (file < 0)
        return -1;
    if (fstat(file, &status) == 0 && status.st_size == (off_t)bytes && status.st_uid == geteuid())
        return file;
    close(file);
    errno = EINVAL;
    return -1;
}

static void remember_file(struct fr_job_shm *shm, int file)
{
    struct stat status;
    if (fstat(file, &status) == 0) {
        shm->device = (uint64_t)status.st_dev;
        shm->inode = (uint64_t)status.st_ino;
    }
    shm->file = file;
}

enum fr_status fr_job_shm_map(const struct fr_job_secret *secret, bool create, size_t bytes,
                              struct fr_job_shm *shm)
{
    char name[NAME_BYTES];
    name_of(secret, name);
    *shm = (struct fr_job_shm){.bytes = bytes, .file = -1};
    int file = create ? create_memory(name, bytes) : attach_memory(name, bytes);
    if (file < 0 && !create && errno == ENOENT) // taken away by the process that made it
        return FR_ERR_NOT_FOUND;
    if (file < 0) {
        fr_warn_once("no shared memory with the other processes of this host: %m");
        return errno == ENOSPC || errno == ENOMEM ? FR_ERR_NO_MEMORY
               : errno == EINVAL                  ? FR_ERR_INVALID
                                                  : FR_ERR_NOT_FOUND;
    }
    shm->memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (create && shm->memory != MAP_FAILED) {
        remember_file(shm, file);
        return FR_OK;
    }
    close(file);
    if (shm->memory != MAP_FAILED)
        return FR_OK;
    fr_warn_once("shared memory cannot be mapped: %m");
    if (create)
        unlink(name);
    return FR_ERR_NO_MEMORY;
}

// Returns whether the descriptor still is that of the file, which stays open. A program may close
// descriptors that are not its own, and get the number for a file of its own.
static bool is_own_file(const struct fr_job_shm *shm)
{
    struct stat status;
    return fstat(shm->file, &status) == 0 && (uint64_t)status.st_dev == shm->device &&
           (uint64_t)status.st_ino == shm->inode;
}

// Uses fallocate, since posix_fallocate writes to the file where the file system cannot claim room.
bool fr_job_shm_claim(const struct fr_job_shm *shm, size_t offset, size_t bytes)
{
    int result;
    if (shm->file < 0)
        return true;
    errno = EBADF;
    if (!is_own_file(shm))
        result = -1;
    else
        do {
            result = fallocate(shm->file, 0, (off_t)offset, (off_t)bytes);
        } while (result != 0 && errno == EINTR);
    if (result != 0)
        fr_warn_once("no room in the shared memory of this host (/dev/shm), so messages take a "
                     "slower path: %m");
    return result == 0;
}

bool fr_job_shm_is_named(const struct fr_job_shm *shm)
{
    return !is_own_file(shm) || is_named(shm->file);
}

void fr_job_shm_close_file(struct fr_job_shm *shm)
{
    if (shm->file >= 0 && is_own_file(shm))
        close(shm->file);
    shm->file = -1;
}

// Files that this process no longer uses, and others may.
struct abandoned {
    struct abandoned *next;
    struct fr_job_shm shm;
};
static struct fr_lock abandoned_lock = FR_LOCK_INIT;
static struct abandoned *all_abandoned FR_GUARDED_BY(abandoned_lock);

// Closes those whose names are gone.
static void close_abandoned(void)
{
    fr_core_lock(&abandoned_lock);
    for (struct abandoned **at = &all_abandoned; *at;) {
        struct abandoned *one = *at;
        if (fr_job_shm_is_named(&one->shm)) {
            at = &one->next;
            continue;
        }
        fr_job_shm_close_file(&one->shm);
        *at = one->next;
        free(one);
    }
    fr_core_unlock(&abandoned_lock);
}

static void unmap(struct fr_job_shm *shm)
{
    if (shm->memory)
        munmap(shm->memory, shm->bytes);
    shm->memory = NULL;
}

void fr_job_shm_leave(struct fr_job_shm *shm)
{
    struct abandoned *one = malloc(sizeof(*one));
    unmap(shm);
    if (one) {
        one->shm = *shm;
        fr_core_lock(&abandoned_lock);
        one->next = all_abandoned;
        all_abandoned = one;
        fr_core_unlock(&abandoned_lock);
    } else {
        fr_job_shm_close_file(shm);
    }
    shm->file = -1;
}

// Opens a file, which the first process makes. All give it the same size. Returns -1 when it is
// another's. The process that makes a file that lasts removes abandoned ones.
static int open_file(const char *name, size_t bytes, bool lasts)
{
    struct stat status;
    close_abandoned();
    int file = open_locked(name, O_CREAT);
    if (file < 0)
        return -1;
    if (fstat(file, &status) == 0) {
        if (status.st_size != 0 && status.st_size != (off_t)bytes)
            errno = EINVAL;
        else if (ftruncate(file, (off_t)bytes) == 0) {
            if (status.st_size == 0 && lasts)
                remove_all_abandoned();
            return file;
        }
    }
    int error = errno;
    close(file);
    errno = error;
    return -1;
}

static enum fr_status translate(int error)
{
    return error == EINVAL ? FR_ERR_INVALID : FR_ERR_NO_MEMORY;
}

// A name whose memory not all have attached to is removed by those who have, at their end.
enum fr_status fr_job_shm_open(const struct fr_job_secret *secret, size_t bytes, size_t claimed,
                               bool lasts, struct fr_job_shm *shm)
{
    char name[NAME_BYTES] = "";
    int flags = secret ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
    *shm = (struct fr_job_shm){.bytes = bytes, .file = -1};
    if (secret) {
        name_of(secret, name);
        int file = open_file(name, bytes, lasts);
        if (file < 0) {
            fr_warn_once("no shared memory with the other processes of this host: %m");
            return translate(errno);
        }
        remember_file(shm, file);
    }
    if (!fr_job_shm_claim(shm, 0, claimed))
        goto close_file;
    shm->memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, shm->file, 0);
    if (shm->memory != MAP_FAILED)
        return FR_OK;
    fr_warn_once("shared memory cannot be mapped: %m");
close_file:
    if (shm->file >= 0) {
        (void)!remove_unlocked(shm->file, name); // others may have opened it by now
        close(shm->file);
        shm->file = -1;
    }
    return FR_ERR_NO_MEMORY;
}

// Sizes of zero are those of a file system without a bound.
bool fr_job_shm_has_room(const struct fr_job_shm *shm, size_t bytes)
{
    struct statvfs status;
    if (!is_own_file(shm) || fstatvfs(shm->file, &status) != 0)
        return false;
    return status.f_blocks == 0 || status.f_bavail >= bytes / status.f_frsize;
}

void fr_job_shm_close(struct fr_job_shm *shm)
{
    unmap(shm);
    fr_job_shm_close_file(shm);
}

void fr_job_shm_remove(const struct fr_job_secret *secret)
{
    char name[NAME_BYTES];
    name_of(secret, name);
    if (unlink(name) != 0 && errno != ENOENT)
        fr_warn("shared memory %s is left behind: %m", name);
}
