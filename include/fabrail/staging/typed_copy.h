// SPDX-License-Identifier: BSD-3-Clause
// Copies of datatypes of many blocks between device memory and the staging memory of a view, by
// kernel.
#ifndef FR_FABRAIL_STAGING_TYPED_COPY_H
#define FR_FABRAIL_STAGING_TYPED_COPY_H

#include "fabrail/staging/path.h"

// The first `bytes` bytes of `count` elements, at `user`, and where the staging side of the first
// element is.
struct fr_staging_packing {
    const struct fr_staging_view *view;
    const struct fr_layout *layout;
    size_t count;
    size_t bytes;
    uintptr_t user;
    uintptr_t stage;
    enum fr_device_direction direction;
};

// Starts the copy if a kernel does it faster than copies piece by piece, or the CPU where there are
// no kernels and the pieces are very many. Returns false, with nothing done, if not. Failures stay
// in the batch.
bool fr_staging_pack(const struct fr_staging_packing *packing, struct fr_device_batch *batch);

// Frees the tables in device memory. Called before fr_device_release, with no copy under way.
void fr_staging_pack_release(void);

#endif
