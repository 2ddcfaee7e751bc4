// SPDX-License-Identifier: BSD-3-Clause
// The caller of MPI is found out once for each place in the program: a second question costs
// neither a walk through the objects of the process nor one through their symbols, wherever the
// calls are.
#define _GNU_SOURCE
#include "check.h"

#include "fabrail/abi.h"

#include <dlfcn.h>
#include <link.h>

typedef int walk(int (*)(struct dl_phdr_info *, size_t, void *), void *);

static unsigned looks;

int dl_iterate_phdr(int (*callback)(struct dl_phdr_info *, size_t, void *), void *data)
{
    walk *next = (walk *)dlsym(RTLD_NEXT, "dl_iterate_phdr");
    looks++;
    return next(callback, data);
}

int dladdr(const void *address, Dl_info *info)
{
    __typeof__(dladdr) *next = (__typeof__(dladdr) *)dlsym(RTLD_NEXT, "dladdr");
    looks++;
    return next(address, info);
}

static void test_many_calls(uintptr_t distance)
{
    enum { CALLS = 60 };
    unsigned before = 0;
    for (int round = 0; round < 3; round++) {
        before = looks;
        for (uintptr_t i = 0; i < CALLS; i++)
            CHECK(!fr_abi_is_internal((uintptr_t)test_many_calls + i * distance));
    }
    // A set that is full gives up one place at each call.
    CHECK(looks - before < CALLS / 10, "%u looks for %d calls, %zu bytes apart", looks - before,
          CALLS, (size_t)distance);
}

int main(void)
{
    static const uintptr_t distances[] = {4, 52, 1 << 10, 1 << 13, 1 << 16};
    for (size_t i = 0; i < FR_ARRAY_LENGTH(distances); i++)
        test_many_calls(distances[i]);
    return check_result();
}
