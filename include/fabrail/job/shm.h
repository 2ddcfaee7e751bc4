// SPDX-License-Identifier: BSD-3-Clause
// Shared memory of module job: memory that processes of one host share by a name in /dev/shm. A
// name is derived from a secret, so that nobody else can guess it.
#ifndef FR_FABRAIL_JOB_SHM_H
#define FR_FABRAIL_JOB_SHM_H

#include "fabrail/job/control.h"

enum { FR_CONTROL_LINE_BYTES = 64 }; // apart, so that processes do not wait for each other's stores

// Mapped shared memory, and its file.
struct fr_job_shm {
    void *memory;
    size_t bytes;
    int file;               // -1: none is open
    uint64_t device, inode; // of the file, since the program may close it and reuse its number
};

// Maps the shared memory of a secret. With `create` it is made, zeroed, with all of its room
// claimed; else it must be there with this size and owner. The process that creates it keeps the
// file open while others may still come, so that no other job takes it for one left behind.
// Returns FR_ERR_NOT_FOUND if it does not exist, FR_ERR_NO_MEMORY if there is no room, and
// FR_ERR_INVALID if it is another's; a warning says so. A failure leaves no name behind.
FR_MUST_CHECK enum fr_status fr_job_shm_map(const struct fr_job_secret *secret, bool create,
                                            size_t bytes, struct fr_job_shm *shm);

// Maps the shared memory of a secret, and makes it if it is not there yet. The process that makes
// memory that `lasts` removes what killed jobs of this user have left behind. The file stays open
// and has holes: only its first `claimed` bytes may be touched. Without a secret (NULL) the memory
// is this process's alone, has no file, and all of it may be touched. Errors are those of
// fr_job_shm_map. A failure leaves a name behind only where other processes have opened it.
FR_MUST_CHECK enum fr_status fr_job_shm_open(const struct fr_job_secret *secret, size_t bytes,
                                             size_t claimed, bool lasts, struct fr_job_shm *shm);

// Unmaps the memory and closes the file. The name stays. A caller that has the memory stay mapped
// sets `memory` to NULL first, here as in the next function.
void fr_job_shm_close(struct fr_job_shm *shm);

// Unmaps the memory. The name stays until another process takes it away, and the file is open as
// long. So no other job takes the name for one left behind, and processes may still come.
void fr_job_shm_leave(struct fr_job_shm *shm);

// Closes the file. The memory stays mapped.
void fr_job_shm_close_file(struct fr_job_shm *shm);

// Claims room for bytes [offset, offset + bytes), so that they can be touched. Returns false, with
// one warning, if there is none.
bool fr_job_shm_claim(const struct fr_job_shm *shm, size_t offset, size_t bytes);

// Returns whether the file system has so much room that nobody has claimed. Others may claim it
// meanwhile.
bool fr_job_shm_has_room(const struct fr_job_shm *shm, size_t bytes);

// Returns whether the open file has its name still, as far as this process can tell.
bool fr_job_shm_is_named(const struct fr_job_shm *shm);

// Removes the name of the shared memory of a secret. A name that is gone does no harm.
void fr_job_shm_remove(const struct fr_job_secret *secret);

#endif
