// SPDX-License-Identifier: BSD-3-Clause
// What the simulated driver has page-locked. Its libcuda exports the function; a program finds it
// with dlsym, once the driver is loaded, and learns from its absence that the driver is another
// one.
#ifndef FR_TESTS_SIM_PINS_H
#define FR_TESTS_SIM_PINS_H

#include <stddef.h>

struct frsim_pins {
    unsigned long pins;   // calls that have page-locked memory
    unsigned long unpins; // and those that have given it up
    size_t bytes;         // page-locked just now
    size_t most_bytes;    // and the most that there ever were
};

typedef struct frsim_pins frsim_pins_fn(void);
__attribute__((visibility("default"))) frsim_pins_fn frsim_pins;

#endif
