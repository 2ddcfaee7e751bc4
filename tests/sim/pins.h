// SPDX-License-Identifier: BSD-3-Clause
// The memory that the simulated driver has page-locked. Its libcuda exports the function. A program
// finds it with dlsym once the driver is loaded; where it is absent the driver is another one.
#ifndef FR_TESTS_SIM_PINS_H
#define FR_TESTS_SIM_PINS_H

#include <stddef.h>

struct frsim_pins {
    unsigned long pins;   // calls that page-locked memory
    unsigned long unpins; // calls that unlocked it
    size_t bytes;         // page-locked now
    size_t most_bytes;    // most bytes page-locked at any time
};

typedef struct frsim_pins frsim_pins_fn(void);
__attribute__((visibility("default"))) frsim_pins_fn frsim_pins;

#endif
