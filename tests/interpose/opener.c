// SPDX-License-Identifier: BSD-3-Clause
// A program that knows no MPI and opens a plugin that does, in a scope of its own, as Python opens
// mpi4py: opener PLUGIN [deep]. Deep is RTLD_DEEPBIND, Julia's default. It opens and closes the
// plugin before and after that, too.
#define _GNU_SOURCE
#include "exchange.h"

#include <dlfcn.h>
#include <stdio.h>

// Returns whether a plugin can be opened, looked into and closed.
static int opens_and_closes(const char *path)
{
    void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    return plugin && dlsym(plugin, "exchange_run") && dlclose(plugin) == 0;
}

int main(int argc, char **argv)
{
    if (argc < 2 || !opens_and_closes(argv[1]))
        return 2;
    void *plugin = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL | (argc > 2 ? RTLD_DEEPBIND : 0));
    int (*run)(void) = plugin ? (int (*)(void))dlsym(plugin, "exchange_run") : NULL;
    if (!run) {
        fprintf(stderr, "opener: %s\n", dlerror());
        return 2;
    }
    int status = run();
    return dlclose(plugin) == 0 && opens_and_closes(argv[1]) ? status : 2;
}
