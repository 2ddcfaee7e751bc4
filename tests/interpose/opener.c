// SPDX-License-Identifier: BSD-3-Clause
// A program that knows no MPI and opens a plugin that does, in a scope of its own, as Python opens
// mpi4py: opener PLUGIN [deep]. Deep is RTLD_DEEPBIND, Julia's default.
#define _GNU_SOURCE
#include "exchange.h"

#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    void *plugin = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL | (argc > 2 ? RTLD_DEEPBIND : 0));
    int (*run)(void) = plugin ? (int (*)(void))dlsym(plugin, "exchange_run") : NULL;
    if (!run) {
        fprintf(stderr, "opener: %s\n", dlerror());
        return 2;
    }
    return run();
}
