// SPDX-License-Identifier: BSD-3-Clause
// The exported functions: MPI_x and PMPI_x for every row of functions.def. Each is one tail jump
// through fr_intercept_slots. The target of a slot is the real function, a profiler's, or one of
// the two entries at the end. These find the slot's number in r11 (x86-64) or w17 (AArch64): 2 *
// row for MPI_x, plus 1 for PMPI_x. Arguments stay where the caller put them, so a stub knows
// nothing of signatures. No row is variadic or takes a floating-point number, so the entries keep
// no vector registers.

#include "fabrail/abi/function.def"

#if defined(__x86_64__)

.macro fr_stub name
    fr_function \name 4
.Lstub_\name:
    endbr64
    movl $fr_slot, %r11d
    jmp *fr_intercept_slots + 8 * fr_slot(%rip)
    fr_function_end \name
    .set fr_slot, fr_slot + 1
.endm

// A function that is exported only where the MPI library has it.
.macro fr_later name
    .section .rodata.str1.1, "aMS", @progbits, 1
.Lname_\name:
    .asciz "\name"
    .text
    .globl \name
    .type \name, @gnu_indirect_function
    .p2align 4
\name:
    .cfi_startproc
    endbr64
    leaq .Lname_\name(%rip), %rdi
    leaq .Lstub_\name(%rip), %rsi
    jmp fr_intercept_present
    .cfi_endproc
    .size \name, . - \name
    .p2align 4
.Lstub_\name:
    .cfi_startproc
    endbr64
    movl $fr_slot, %r11d
    jmp *fr_intercept_slots + 8 * fr_slot(%rip)
    .cfi_endproc
    .set fr_slot, fr_slot + 1
.endm

#elif defined(__aarch64__)

.macro fr_stub name
    fr_function \name 4
.Lstub_\name:
    hint #34 // bti c
    adrp x16, fr_intercept_slots + 8 * fr_slot
    ldr x16, [x16, :lo12:fr_intercept_slots + 8 * fr_slot]
    mov w17, fr_slot
    br x16
    fr_function_end \name
    .set fr_slot, fr_slot + 1
.endm

// A function that is exported only where the MPI library has it.
.macro fr_later name
    .section .rodata.str1.1, "aMS", %progbits, 1
.Lname_\name:
    .asciz "\name"
    .text
    .globl \name
    .type \name, %gnu_indirect_function
    .p2align 4
\name:
    .cfi_startproc
    hint #34
    adrp x0, .Lname_\name
    add x0, x0, :lo12:.Lname_\name
    adrp x1, .Lstub_\name
    add x1, x1, :lo12:.Lstub_\name
    b fr_intercept_present
    .cfi_endproc
    .size \name, . - \name
    .p2align 4
.Lstub_\name:
    .cfi_startproc
    hint #34
    adrp x16, fr_intercept_slots + 8 * fr_slot
    ldr x16, [x16, :lo12:fr_intercept_slots + 8 * fr_slot]
    mov w17, fr_slot
    br x16
    .cfi_endproc
    .set fr_slot, fr_slot + 1
.endm

#endif

    .text
    .hidden fr_intercept_stubs_begin
    .globl fr_intercept_stubs_begin
fr_intercept_stubs_begin:
    .set fr_slot, 0
#define FR_ROW(name, class, signature, flags) fr_stub name; fr_stub P##name;
#define FR_LATER(name, class, signature, flags) fr_later name; fr_stub P##name;
#include "fabrail/abi/functions.def"
#undef FR_ROW

    .section .rodata
    .p2align 2
    .hidden fr_intercept_stub_offsets
    .globl fr_intercept_stub_offsets
fr_intercept_stub_offsets:
#define FR_ROW(name, class, signature, flags) .long .Lstub_P##name - fr_intercept_stubs_begin;
#include "fabrail/abi/functions.def"
#undef FR_ROW

    .section .data.rel.local, "aw"
    .p2align 6
    .hidden fr_intercept_slots
    .globl fr_intercept_slots
fr_intercept_slots:
    .rept fr_slot
    .quad fr_stub_unresolved
    .endr
    .size fr_intercept_slots, . - fr_intercept_slots

    .text
#if defined(__x86_64__)

// Shows the arguments to a function. It returns an address to jump to in rax, or 0 and the call's
// result in rdx.
.macro fr_entry name function
    fr_hidden_function \name 6
    pushq %rbp
    .cfi_def_cfa_offset 16
    .cfi_offset %rbp, -16
    movq %rsp, %rbp
    .cfi_def_cfa_register %rbp
    subq $48, %rsp
    movq %rdi, 0(%rsp)
    movq %rsi, 8(%rsp)
    movq %rdx, 16(%rsp)
    movq %rcx, 24(%rsp)
    movq %r8, 32(%rsp)
    movq %r9, 40(%rsp)
    movl %r11d, %edi
    movq %rsp, %rsi
    leaq 16(%rbp), %rdx
    call \function
    testq %rax, %rax
    jz 1f
    movq %rax, %r11
    movq 0(%rsp), %rdi
    movq 8(%rsp), %rsi
    movq 16(%rsp), %rdx
    movq 24(%rsp), %rcx
    movq 32(%rsp), %r8
    movq 40(%rsp), %r9
    .cfi_remember_state
    leave
    .cfi_def_cfa %rsp, 8
    jmp *%r11
1:  .cfi_restore_state
    movl %edx, %eax
    leave
    .cfi_def_cfa %rsp, 8
    ret
    fr_function_end \name
.endm

#elif defined(__aarch64__)

// Shows the arguments to a function. It returns an address to jump to in x0, or 0 and the call's
// result in x1.
.macro fr_entry name function
    fr_hidden_function \name 6
    stp x29, x30, [sp, #-80]!
    .cfi_def_cfa_offset 80
    .cfi_offset 29, -80
    .cfi_offset 30, -72
    mov x29, sp
    stp x0, x1, [sp, #16]
    stp x2, x3, [sp, #32]
    stp x4, x5, [sp, #48]
    stp x6, x7, [sp, #64]
    mov w0, w17
    add x1, sp, #16
    add x2, sp, #80
    bl \function
    cbz x0, 1f
    mov x16, x0
    ldp x0, x1, [sp, #16]
    ldp x2, x3, [sp, #32]
    ldp x4, x5, [sp, #48]
    ldp x6, x7, [sp, #64]
    .cfi_remember_state
    ldp x29, x30, [sp], #80
    .cfi_def_cfa_offset 0
    br x16
1:  .cfi_restore_state
    mov w0, w1
    ldp x29, x30, [sp], #80
    .cfi_def_cfa_offset 0
    ret
    fr_function_end \name
.endm

#endif

fr_entry fr_stub_enter fr_intercept_dispatch
fr_entry fr_stub_unresolved fr_intercept_dispatch_unresolved

    .section .note.GNU-stack, "", %progbits
