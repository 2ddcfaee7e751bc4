// SPDX-License-Identifier: BSD-3-Clause
// dlopen and dlmopen, which tell device/loads.c that objects may come into the process, and go on to
// the next function of the name by a jump: the C library tells by the return address who asks, and so
// where it looks.

#if defined(__x86_64__)

.macro opener name, which, flags
    .globl \name
    .type \name, @function
    .p2align 4
\name:
    .cfi_startproc
    endbr64
    pushq %rdi
    .cfi_adjust_cfa_offset 8
    pushq %rsi
    .cfi_adjust_cfa_offset 8
    pushq %rdx
    .cfi_adjust_cfa_offset 8
    movl \flags, %esi
    movl $\which, %edi
    call fr_device_loads_begin
    popq %rdx
    .cfi_adjust_cfa_offset -8
    popq %rsi
    .cfi_adjust_cfa_offset -8
    popq %rdi
    .cfi_adjust_cfa_offset -8
    jmp *%rax
    .cfi_endproc
    .size \name, . - \name
.endm

    .text
    opener dlopen, 0, %esi
    opener dlmopen, 1, %edx

#elif defined(__aarch64__)

.macro opener name, which, flags
    .globl \name
    .type \name, %function
    .p2align 4
\name:
    .cfi_startproc
    hint #34 // bti c
    stp x29, x30, [sp, #-48]!
    .cfi_def_cfa_offset 48
    .cfi_offset 29, -48
    .cfi_offset 30, -40
    mov x29, sp
    stp x0, x1, [sp, #16]
    str x2, [sp, #32]
    mov w1, \flags
    mov w0, #\which
    bl fr_device_loads_begin
    mov x16, x0
    ldr x2, [sp, #32]
    ldp x0, x1, [sp, #16]
    ldp x29, x30, [sp], #48
    .cfi_restore 29
    .cfi_restore 30
    .cfi_def_cfa_offset 0
    br x16
    .cfi_endproc
    .size \name, . - \name
.endm

    .text
    opener dlopen, 0, w1
    opener dlmopen, 1, w2

#endif

    .globl fr_device_dlopen
    .hidden fr_device_dlopen
    .set fr_device_dlopen, dlopen

    .section .note.GNU-stack, "", %progbits
