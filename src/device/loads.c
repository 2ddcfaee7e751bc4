// SPDX-License-Identifier: BSD-3-Clause
// Whether objects may have come into the process since this was last asked. The loader's own count
// is under its lock, and asking for it costs more than all else that a call of host memory pays. So
// threads that begin to load objects are counted where they do so, by the exported dlopen. That one
// has come back of its thread is only known once the thread asks here itself; until then the loader
// is asked. A constructor may do so before that: whatever its dlopen loads is there by then.
#include "config.h"

#include "device/device_int.h"

#include <dlfcn.h>

// Called as the process starts, by sanitizers too, before they are set up.
#define FR_UNSANITIZED __attribute__((no_sanitize("address", "thread", "undefined")))

static _Atomic unsigned loading; // threads that may not have come back
static FR_TLS bool loads;

// The dlopen of opener.S: in the library to preload, but not where the rooms are linked into a
// program.
extern char fr_device_dlopen[] __attribute__((weak, visibility("hidden")));

// What is opened so that it prefers its own libraries' symbols does not come here when it opens
// others.
FR_UNSANITIZED static void begin(int flags)
{
    static _Atomic bool passed_by;
    if (flags & RTLD_DEEPBIND && !atomic_exchange(&passed_by, true))
        atomic_fetch_add(&loading, 1);
    if (!loads)
        atomic_fetch_add(&loading, 1);
    loads = true;
}

FR_UNSANITIZED void *fr_device_loads_begin(unsigned function, int flags)
{
    static const char *const names[] = {"dlopen", "dlmopen"};
    static void *next[FR_ARRAY_LENGTH(names)]; // the same for whoever comes first
    void *address = __atomic_load_n(&next[function], __ATOMIC_RELAXED);
    begin(flags);
    if (!address) {
        address = dlsym(RTLD_NEXT, names[function]);
        __atomic_store_n(&next[function], address, __ATOMIC_RELAXED);
    }
    return address;
}

// Whether all objects are opened by the dlopen here. Another preloaded library may come first.
static bool are_seen(void)
{
    static _Atomic int known; // 1 yes, -1 no
    int seen = atomic_load_explicit(&known, memory_order_relaxed);
    if (FR_UNLIKELY(seen == 0)) {
        seen = fr_device_dlopen && dlsym(RTLD_DEFAULT, "dlopen") == fr_device_dlopen ? 1 : -1;
        atomic_store_explicit(&known, seen, memory_order_relaxed);
    }
    return seen > 0;
}

bool fr_device_loads_any(void)
{
    return atomic_load_explicit(&loading, memory_order_acquire) != 0 || !are_seen();
}

void fr_device_loads_looked(void)
{
    if (loads)
        atomic_fetch_sub(&loading, 1);
    loads = false;
}
