// SPDX-License-Identifier: BSD-3-Clause
// The exported dlsym. It shows each question to fr_intercept_lookup and goes on to the next dlsym
// by a jump. The C library tells by the return address who asks, and so which object comes next.

#include "fabrail/abi/function.def"

#if defined(__x86_64__)

    .text
fr_function dlsym 4
    endbr64
    pushq %rsi
    .cfi_adjust_cfa_offset 8
    call fr_intercept_lookup
    popq %rsi
    .cfi_adjust_cfa_offset -8
    movq %rax, %rdi
    jmp *%rdx
fr_function_end dlsym

#elif defined(__aarch64__)

    .text
fr_function dlsym 4
    hint #34 // bti c
    stp x29, x30, [sp, #-32]!
    .cfi_def_cfa_offset 32
    .cfi_offset 29, -32
    .cfi_offset 30, -24
    mov x29, sp
    str x1, [sp, #16]
    bl fr_intercept_lookup
    mov x16, x1
    ldr x1, [sp, #16]
    ldp x29, x30, [sp], #32
    .cfi_restore 29
    .cfi_restore 30
    .cfi_def_cfa_offset 0
    br x16
fr_function_end dlsym

#endif

    .globl fr_core_own_dlsym
    .hidden fr_core_own_dlsym
    .set fr_core_own_dlsym, dlsym

    .section .note.GNU-stack, "", %progbits
