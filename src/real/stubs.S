// SPDX-License-Identifier: BSD-3-Clause
// The exported functions: for every row of functions.def MPI_x and PMPI_x, one tail jump each through
// fr_mpi_slots. A slot's target is the real function, a profiler's, or one of the three entries at the
// end, which find the slot's number in r11 (x86-64) or w17 (AArch64): 2 * row for MPI_x, plus 1 for
// PMPI_x. Arguments stay where the caller put them, so a stub knows nothing of signatures.

#if defined(__x86_64__)

.macro fr_stub name
    .globl \name
    .type \name, @function
    .p2align 4
\name:
.Lstub_\name:
    .cfi_startproc
    endbr64
    movl $fr_slot, %r11d
    jmp *fr_mpi_slots + 8 * fr_slot(%rip)
    .cfi_endproc
    .size \name, . - \name
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
    jmp fr_mpi_present
    .cfi_endproc
    .size \name, . - \name
    .p2align 4
.Lstub_\name:
    .cfi_startproc
    endbr64
    movl $fr_slot, %r11d
    jmp *fr_mpi_slots + 8 * fr_slot(%rip)
    .cfi_endproc
    .set fr_slot, fr_slot + 1
.endm

#elif defined(__aarch64__)

.macro fr_stub name
    .globl \name
    .type \name, %function
    .p2align 4
\name:
.Lstub_\name:
    .cfi_startproc
    hint #34 // bti c
    adrp x16, fr_mpi_slots + 8 * fr_slot
    ldr x16, [x16, :lo12:fr_mpi_slots + 8 * fr_slot]
    mov w17, fr_slot
    br x16
    .cfi_endproc
    .size \name, . - \name
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
    b fr_mpi_present
    .cfi_endproc
    .size \name, . - \name
    .p2align 4
.Lstub_\name:
    .cfi_startproc
    hint #34
    adrp x16, fr_mpi_slots + 8 * fr_slot
    ldr x16, [x16, :lo12:fr_mpi_slots + 8 * fr_slot]
    mov w17, fr_slot
    br x16
    .cfi_endproc
    .set fr_slot, fr_slot + 1
.endm

#endif

    .text
    .hidden fr_mpi_stubs_begin
    .globl fr_mpi_stubs_begin
fr_mpi_stubs_begin:
    .set fr_slot, 0
#define FR_ROW(name, class, signature, flags) fr_stub name; fr_stub P##name;
#define FR_LATER(name, class, signature, flags) fr_later name; fr_stub P##name;
#include "real/functions.def"
#undef FR_ROW

    .section .rodata
    .p2align 2
    .hidden fr_mpi_stub_offsets
    .globl fr_mpi_stub_offsets
fr_mpi_stub_offsets:
#define FR_ROW(name, class, signature, flags) .long .Lstub_P##name - fr_mpi_stubs_begin;
#include "real/functions.def"
#undef FR_ROW

    .section .data.rel.local, "aw"
    .p2align 6
    .hidden fr_mpi_slots
    .globl fr_mpi_slots
fr_mpi_slots:
    .rept fr_slot
    .quad fr_stub_unresolved
    .endr
    .size fr_mpi_slots, . - fr_mpi_slots

    .text
    .hidden fr_stub_enter
    .globl fr_stub_enter
    .hidden fr_stub_missing
    .globl fr_stub_missing

#if defined(__x86_64__)

// First call of the process: fills the slots, then jumps through the slot again. Vector registers and
// al are saved for variadic functions.
    .type fr_stub_unresolved, @function
fr_stub_unresolved:
    .cfi_startproc
    pushq %rbp
    .cfi_def_cfa_offset 16
    .cfi_offset %rbp, -16
    movq %rsp, %rbp
    .cfi_def_cfa_register %rbp
    subq $192, %rsp
    movq %rdi, 0(%rsp)
    movq %rsi, 8(%rsp)
    movq %rdx, 16(%rsp)
    movq %rcx, 24(%rsp)
    movq %r8, 32(%rsp)
    movq %r9, 40(%rsp)
    movq %rax, 48(%rsp)
    movq %r11, 56(%rsp)
    movups %xmm0, 64(%rsp)
    movups %xmm1, 80(%rsp)
    movups %xmm2, 96(%rsp)
    movups %xmm3, 112(%rsp)
    movups %xmm4, 128(%rsp)
    movups %xmm5, 144(%rsp)
    movups %xmm6, 160(%rsp)
    movups %xmm7, 176(%rsp)
    call fr_mpi_resolve
    movups 64(%rsp), %xmm0
    movups 80(%rsp), %xmm1
    movups 96(%rsp), %xmm2
    movups 112(%rsp), %xmm3
    movups 128(%rsp), %xmm4
    movups 144(%rsp), %xmm5
    movups 160(%rsp), %xmm6
    movups 176(%rsp), %xmm7
    movq 0(%rsp), %rdi
    movq 8(%rsp), %rsi
    movq 16(%rsp), %rdx
    movq 24(%rsp), %rcx
    movq 32(%rsp), %r8
    movq 40(%rsp), %r9
    movq 48(%rsp), %rax
    movq 56(%rsp), %r11
    leave
    .cfi_def_cfa %rsp, 8
    leaq fr_mpi_slots(%rip), %r10
    jmp *(%r10,%r11,8)
    .cfi_endproc
    .size fr_stub_unresolved, . - fr_stub_unresolved

// Shows the arguments to fr_mpi_enter, which returns an address to jump to in rax, or 0 and the
// call's result in rdx.
    .type fr_stub_enter, @function
    .p2align 6
fr_stub_enter:
    .cfi_startproc
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
    call fr_mpi_enter
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
    .cfi_endproc
    .size fr_stub_enter, . - fr_stub_enter

    .type fr_stub_missing, @function
fr_stub_missing:
    .cfi_startproc
    movl %r11d, %edi
    jmp fr_mpi_missing
    .cfi_endproc
    .size fr_stub_missing, . - fr_stub_missing

#elif defined(__aarch64__)

    .type fr_stub_unresolved, %function
fr_stub_unresolved:
    .cfi_startproc
    stp x29, x30, [sp, #-224]!
    .cfi_def_cfa_offset 224
    .cfi_offset 29, -224
    .cfi_offset 30, -216
    mov x29, sp
    stp x0, x1, [sp, #16]
    stp x2, x3, [sp, #32]
    stp x4, x5, [sp, #48]
    stp x6, x7, [sp, #64]
    str x17, [sp, #80]
    stp q0, q1, [sp, #96]
    stp q2, q3, [sp, #128]
    stp q4, q5, [sp, #160]
    stp q6, q7, [sp, #192]
    bl fr_mpi_resolve
    ldp q0, q1, [sp, #96]
    ldp q2, q3, [sp, #128]
    ldp q4, q5, [sp, #160]
    ldp q6, q7, [sp, #192]
    ldr x17, [sp, #80]
    ldp x6, x7, [sp, #64]
    ldp x4, x5, [sp, #48]
    ldp x2, x3, [sp, #32]
    ldp x0, x1, [sp, #16]
    ldp x29, x30, [sp], #224
    .cfi_def_cfa_offset 0
    adrp x16, fr_mpi_slots
    add x16, x16, :lo12:fr_mpi_slots
    ldr x16, [x16, w17, uxtw #3]
    br x16
    .cfi_endproc
    .size fr_stub_unresolved, . - fr_stub_unresolved

    .type fr_stub_enter, %function
    .p2align 6
fr_stub_enter:
    .cfi_startproc
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
    bl fr_mpi_enter
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
    .cfi_endproc
    .size fr_stub_enter, . - fr_stub_enter

    .type fr_stub_missing, %function
fr_stub_missing:
    .cfi_startproc
    mov w0, w17
    b fr_mpi_missing
    .cfi_endproc
    .size fr_stub_missing, . - fr_stub_missing

#endif

    .section .note.GNU-stack, "", %progbits
