// SPDX-License-Identifier: BSD-3-Clause
// The kernels as nvcc made them, for every architecture in one image, which the driver picks from.
    .section .rodata
    .balign 64
    .globl fr_device_kernels_fatbin
    .hidden fr_device_kernels_fatbin
    .type fr_device_kernels_fatbin, %object
fr_device_kernels_fatbin:
    .incbin "src/device/kernels.fatbin"
    .size fr_device_kernels_fatbin, . - fr_device_kernels_fatbin

    .section .note.GNU-stack, "", %progbits
