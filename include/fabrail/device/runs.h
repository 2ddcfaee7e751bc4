// SPDX-License-Identifier: BSD-3-Clause
// Copies of many pieces by the driver. Contiguous runs of bytes are gathered, and the driver gets
// hundreds of them in one call.
#ifndef FR_FABRAIL_DEVICE_RUNS_H
#define FR_FABRAIL_DEVICE_RUNS_H

#include "fabrail/device/batch.h"

enum { FR_DEVICE_RUNS = 512 }; // of one call

// Runs that wait for their call. The caller owns the storage, and one thread uses it. Its fields
// are the module's.
struct fr_device_runs {
    struct fr_device_batch *batch;
    const struct fr_device_range *range;
    enum fr_device_direction direction;
    bool own, on_device; // of all copies, as in struct fr_device_copy
    size_t count;
    // Addresses and lengths, in the types that the driver takes.
    unsigned long long dst[FR_DEVICE_RUNS], src[FR_DEVICE_RUNS];
    size_t bytes[FR_DEVICE_RUNS];
};

// Begins to gather copies for a batch. Both and the range must stay in place until
// fr_device_runs_end. Nothing else is added to the batch meanwhile.
void fr_device_runs_begin(struct fr_device_runs *runs, struct fr_device_batch *batch,
                          const struct fr_device_range *range, enum fr_device_direction direction);

// Adds one copy, as fr_device_batch_copy does. All copies agree in `own` and `on_device`, and write
// to different bytes. Failures are kept in the batch.
void fr_device_runs_add(struct fr_device_runs *runs, const struct fr_device_copy *copy);

// Gives the last runs to the driver. Must be called once.
void fr_device_runs_end(struct fr_device_runs *runs);

// Returns the number of driver calls for one copy by itself.
size_t fr_device_copy_calls(const struct fr_device_copy *copy);

#endif
