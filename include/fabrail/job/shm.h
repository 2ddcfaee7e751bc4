// SPDX-License-Identifier: BSD-3-Clause
// Memory that processes of one host share by a name in /dev/shm, and what
// those who wait in it for others need.
#ifndef FR_FABRAIL_JOB_SHM_H
#define FR_FABRAIL_JOB_SHM_H

#include "fabrail/job/control.h"

enum { FR_CONTROL_LINE_BYTES = 64 }; // apart, so that processes do not wait for each other's stores

// Memory of a file.
struct fr_job_shm {
    void *memory;
    size_t bytes;
    int file; // -1: none is open
    uint64_t device, inode;
};

// Maps the shared memory of a secret, created (zeroed, all of its room claimed) or found there,
// which must have this size and owner. Who has created it keeps the file open while others may
// still come, so that no other job takes the name for one that was left behind. Returns
// FR_ERR_NOT_FOUND when it does not exist here, FR_ERR_NO_MEMORY when there is no room,
// FR_ERR_INVALID when it is another's; a warning says so. What failed leaves no name behind.
FR_MUST_CHECK enum fr_status fr_job_shm_map(const struct fr_job_secret *secret, bool create,
                                            size_t bytes, struct fr_job_shm *shm);

// Maps the shared memory of a secret as above, but makes it where it is not there yet: whoever is
// first, who takes away what killed jobs of this user have left behind. The file, which stays open,
// has holes: of its bytes the first `claimed` may be touched. Without a secret it is this
// process's alone, without a file, and all may be touched.
FR_MUST_CHECK enum fr_status fr_job_shm_open(const struct fr_job_secret *secret, size_t bytes,
                                             size_t claimed, struct fr_job_shm *shm);
void fr_job_shm_close(struct fr_job_shm *shm); // the name stays

// The memory stays mapped.
void fr_job_shm_close_file(struct fr_job_shm *shm);

// Makes sure that bytes can be touched. False, with a warning once, when there is no room for them.
bool fr_job_shm_claim(const struct fr_job_shm *shm, size_t offset, size_t bytes);

// Takes the name away; no harm when it is gone.
void fr_job_shm_remove(const struct fr_job_secret *secret);

// A process, as others that share memory with it can ask after it. Plain bytes.
struct fr_job_shm_user {
    uint64_t pid_namespace;
    int64_t pid;
};
struct fr_job_shm_user fr_job_shm_self(void);

// Returns false when the process is known to be gone; true also when this one, of the namespace
// `own`, cannot know it.
bool fr_job_shm_is_alive(const struct fr_job_shm_user *user, uint64_t own);

#endif
