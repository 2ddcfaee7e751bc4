// SPDX-License-Identifier: BSD-3-Clause
// fabrail tune: measures on this machine from which sizes on copy engines are faster than kernels,
// and keeps it in the tuning file.
#ifndef FR_TOOLS_TUNE_H
#define FR_TOOLS_TUNE_H

#include "device/device.h"
#include "policy/tuning.h"

enum { FR_TUNE_MAX_GPUS = 32, FR_TUNE_MAX_ROUNDS = 201, FR_TUNE_ENGINES = 2 };

// One GPU and its memory, a piece for each GPU in either buffer.
struct fr_tune_gpu {
    int device;
    void *context; // CUcontext
    uintptr_t send, receive;
    struct fr_device_range send_range, receive_range;
};

// The GPUs of this process that can all reach each other.
struct fr_tune_rig {
    bool is_simulated;
    bool has_kernels;
    int visible; // GPUs of the process
    int count;   // of them here
    size_t piece_bytes;
    struct fr_tune_gpu gpus[FR_TUNE_MAX_GPUS];
};

// Loads the driver and looks for the GPUs. Returns false after a line on stderr where there are not
// two that can reach each other.
FR_MUST_CHECK bool fr_tune_rig_find(struct fr_tune_rig *rig);
// Allocates and fills buffers with pieces of `piece_bytes`. To be released also after a failure.
FR_MUST_CHECK bool fr_tune_rig_open(struct fr_tune_rig *rig, size_t piece_bytes);
void fr_tune_rig_release(struct fr_tune_rig *rig);

// Measures what an exchange of pieces of `bytes`, among all GPUs at once, or a message, which the
// first GPU fetches from the second, takes with each engine: median of the slowest GPU's time. What
// arrives is verified. `bytes` is a multiple of 4.
FR_MUST_CHECK bool fr_tune_measure(struct fr_tune_rig *rig, enum fr_policy_transfer transfer,
                                   size_t bytes, double us[FR_TUNE_ENGINES]);

// Returns whether the file is one that can be written: none yet, or one without faults.
FR_MUST_CHECK bool fr_tune_file_check(const char *path, const char *machine);
// Replaces this machine's section or appends it; all else in the file stays as it is, also when
// others write to it meanwhile. `section` is whole lines, the heading first.
FR_MUST_CHECK bool fr_tune_file_write(const char *path, const char *machine, const char *section);
// Makes the folders that a file is in.
FR_MUST_CHECK bool fr_tune_file_make_folders(const char *path);

#endif
