// SPDX-License-Identifier: BSD-3-Clause
// dlsym, for programs that take the addresses of MPI's functions from a handle of its library. A name
// that may be one of those is shown to fr_mpi_lookup with the handle and the caller's address; what it
// knows nothing of, and all else, goes on to the next dlsym by a jump: the C library tells by the
// return address who asks, and so what comes next after him.

#if defined(__x86_64__)

.macro keep_args
    pushq %rdi
    .cfi_adjust_cfa_offset 8
    pushq %rsi
    .cfi_adjust_cfa_offset 8
    subq $8, %rsp
    .cfi_adjust_cfa_offset 8
.endm
.macro restore_args
    addq $8, %rsp
    .cfi_adjust_cfa_offset -8
    popq %rsi
    .cfi_adjust_cfa_offset -8
    popq %rdi
    .cfi_adjust_cfa_offset -8
.endm

    .text
    .globl dlsym
    .type dlsym, @function
    .p2align 4
dlsym:
    .cfi_startproc
    endbr64
    testq %rsi, %rsi
    jz 2f
    cmpb $'M', (%rsi)
    je 1f
    cmpb $'P', (%rsi)
    je 1f
2:  movq fr_lookup_next(%rip), %r11
    testq %r11, %r11
    jz 3f
    jmp *%r11
1:  keep_args
    movq 24(%rsp), %rdx
    call fr_mpi_lookup
    restore_args
    testq %rax, %rax
    jz 2b
    ret
3:  keep_args
    call fr_mpi_lookup_next
    restore_args
    movq %rax, fr_lookup_next(%rip)
    jmp *%rax
    .cfi_endproc
    .size dlsym, . - dlsym

#elif defined(__aarch64__)

.macro keep_args
    stp x29, x30, [sp, #-32]!
    .cfi_def_cfa_offset 32
    .cfi_offset 29, -32
    .cfi_offset 30, -24
    mov x29, sp
    stp x0, x1, [sp, #16]
.endm
.macro restore_args
    ldp x0, x1, [sp, #16]
    ldp x29, x30, [sp], #32
    .cfi_def_cfa_offset 0
.endm

    .text
    .globl dlsym
    .type dlsym, %function
    .p2align 4
dlsym:
    .cfi_startproc
    hint #34 // bti c
    cbz x1, 2f
    ldrb w16, [x1]
    cmp w16, #'M'
    b.eq 1f
    cmp w16, #'P'
    b.eq 1f
2:  adrp x16, fr_lookup_next
    ldr x16, [x16, :lo12:fr_lookup_next]
    cbz x16, 3f
    br x16
1:  keep_args
    mov x2, x30
    bl fr_mpi_lookup
    mov x16, x0
    restore_args
    cbz x16, 2b
    mov x0, x16
    ret
3:  keep_args
    bl fr_mpi_lookup_next
    mov x16, x0
    restore_args
    adrp x17, fr_lookup_next
    str x16, [x17, :lo12:fr_lookup_next]
    br x16
    .cfi_endproc
    .size dlsym, . - dlsym

#endif

    .local fr_lookup_next
    .comm fr_lookup_next, 8, 8 // written with the same address by whoever comes first

    .section .note.GNU-stack, "", %progbits
