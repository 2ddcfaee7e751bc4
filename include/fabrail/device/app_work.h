// SPDX-License-Identifier: BSD-3-Clause
// Work that the application itself has begun on devices, for the setting FABRAIL_SYNC.
//
// The driver does not say which streams there are. They are learned when the application makes
// them, from functions that stand in for the driver's. A wait ends after FABRAIL_SYNC_WAIT seconds
// at the latest, since a kernel may run until the program ends. Nothing here disturbs the capture
// of a stream.
#ifndef FR_FABRAIL_DEVICE_APP_WORK_H
#define FR_FABRAIL_DEVICE_APP_WORK_H

#include "fabrail/device.h"

// Returns the function that the application gets in place of the driver's function `name`, whose
// address is `found`. Returns NULL where it gets the driver's own, as always without FABRAIL_SYNC.
// Loads nothing and calls no driver.
void *fr_device_hook(const char *name, void *found);

// Marks the end of all work that the application has begun on its streams until now. Returns false,
// and has marked nothing, while it captures a stream. `range` names the driver.
bool fr_device_app_work_mark(const struct fr_device_range *range);

// Waits until the application's work is done, on its streams as far as it was marked last. Returns
// whether any was under way. Calls `progress` meanwhile, outside of scopes: the work may depend on
// what other processes do. A stream whose work does not end is named in a warning, and not waited
// for until that work has ended.
bool fr_device_app_work_wait(const struct fr_device_range *range, void (*progress)(void));

// Copies `bytes` of device memory, which `range` describes, to host memory as they are just now.
// Does not wait for the application's work. Copy engines do it, since kernels of the application
// may fill the device.
FR_MUST_CHECK enum fr_status fr_device_peek(const struct fr_device_range *range, uintptr_t address,
                                            void *host, size_t bytes);

#endif
