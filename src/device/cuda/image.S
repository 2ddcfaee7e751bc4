// SPDX-License-Identifier: BSD-3-Clause
// The kernels as nvcc made them. One image has them for every architecture, and the driver picks
// one.
    .macro image name, file
    .balign 64
    .globl \name
    .hidden \name
    .type \name, %object
\name:
    .incbin "\file"
    .size \name, . - \name
    .endm

    .section .rodata
    image fr_cuda_kernels_fatbin, src/device/cuda/kernels.fatbin
    image fr_cuda_reduce_fatbin, src/device/cuda/reduce.fatbin
    image fr_cuda_pack_fatbin, src/device/cuda/pack.fatbin

    .section .note.GNU-stack, "", %progbits
