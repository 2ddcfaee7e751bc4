// SPDX-License-Identifier: BSD-3-Clause
// Values that communicators carry, as attributes that no copy inherits: a value dies with its
// communicator, so that a handle that comes back for another one brings nothing old along, and no
// call that makes or frees communicators has to be watched.
#ifndef FR_WORLD_ATTRIBUTE_H
#define FR_WORLD_ATTRIBUTE_H

#include "real/real.h"

// One sort of value. Static storage; `destroy` is called for each value that was set, when its
// communicator goes.
struct fr_world_attribute {
    void (*destroy)(void *value);
    pthread_once_t once; // PTHREAD_ONCE_INIT
    int keyval;
    bool has_keyval;
};

// Makes the keyval: to be called by way of pthread_once, before the two below.
void fr_world_attribute_start(struct fr_world_attribute *attribute);

// The value of a communicator, NULL when there is none.
void *fr_world_attribute_get(const struct fr_world_attribute *attribute, fr_word comm);

// Sets it. Returns false when MPI fails; the value then stays the caller's.
bool fr_world_attribute_set(const struct fr_world_attribute *attribute, fr_word comm, void *value);

#endif
