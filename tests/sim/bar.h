// SPDX-License-Identifier: BSD-3-Clause
// Device memory as the CPU reaches it across PCIe, for the stand-in of libgdrapi. The simulated
// libcuda exports the functions.
#ifndef FR_TESTS_SIM_BAR_H
#define FR_TESTS_SIM_BAR_H

#include <cuda.h>

// Returns whether [address, address + bytes) has device memory of this process. Managed memory is
// refused. Writes the id of the newest allocation of all.
extern CUresult CUDAAPI frsim_bar_pin(CUdeviceptr address, size_t bytes,
                                      unsigned long long *newest);

// Copies between device and host memory at once. Refused unless all of the bytes belong to one
// live allocation of device memory that is no newer than `newest`.
extern CUresult CUDAAPI frsim_bar_copy(CUdeviceptr address, void *host, size_t bytes, int to_device,
                                       unsigned long long newest);

#endif
