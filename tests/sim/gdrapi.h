// SPDX-License-Identifier: BSD-3-Clause
// Questions to the stand-in of libgdrapi. A program finds the functions with dlsym once Fabrail has
// loaded the library.
#ifndef FR_TESTS_SIM_GDRAPI_H
#define FR_TESTS_SIM_GDRAPI_H

#include <stddef.h>

struct frgdr_counts {
    unsigned long pins, unpins, maps, unmaps; // calls that went well
    unsigned long reads, writes;
    unsigned long waiting; // writes that have not been read back
};
typedef struct frgdr_counts frgdr_counts_fn(void);
__attribute__((visibility("default"))) frgdr_counts_fn frgdr_counts;

// Has the `nth` call from now on of the library's functions fail; 1 is the next one, 0 none.
typedef void frgdr_fail_fn(unsigned long nth);
__attribute__((visibility("default"))) frgdr_fail_fn frgdr_fail;

#endif
