// SPDX-License-Identifier: BSD-3-Clause
// The entries of functions on windows while none of them is over device memory, in place of
// fr_stub_enter. They look whether anything in the process wants a look at the call, and mostly go
// straight on to the real function. Accesses moreover have their origin in ordinary memory
// (fr_device_is_ordinary). Few registers are free: arguments stay where the caller put them.

#include "fabrail/abi/function.def"

#if defined(__x86_64__)

// Goes on to fr_stub_enter if a count of so many bytes is not 0.
.macro fr_unless_zero count bytes
    .if \bytes == 4
    cmpl $0, \count(%rip)
    .else
    cmpq $0, \count(%rip)
    .endif
    jne fr_stub_enter
.endm

.macro fr_go_on
    leaq fr_intercept_reals(%rip), %rax
    jmp *(%rax, %r11, 8)
.endm

// Goes on to fr_stub_enter unless the first argument is an address in ordinary memory.
.macro fr_unless_ordinary
    cmpq fr_device_host_data(%rip), %rdi
    jb 1f
    cmpq fr_device_host_data + 8(%rip), %rdi
    jb 3f
1:  cmpq fr_device_host_heap(%rip), %rdi
    jb 2f
    movq fr_device_host_heap + 8(%rip), %rax
    cmpq (%rax), %rdi
    jb 3f
2:  movq fr_device_host_stack@gottpoff(%rip), %rax
    cmpq %fs:(%rax), %rdi
    jb fr_stub_enter
    cmpq %fs:8(%rax), %rdi
    jae fr_stub_enter
3:
.endm

#elif defined(__aarch64__)

    .text
fr_full: // in reach of a branch by condition
    b fr_stub_enter

.macro fr_unless_zero count bytes
    adrp x9, \count
    .if \bytes == 4
    ldr w10, [x9, :lo12:\count]
    .else
    ldr x10, [x9, :lo12:\count]
    .endif
    cbnz x10, fr_full // a load of four bytes zeros the others
.endm

.macro fr_go_on
    adrp x9, fr_intercept_reals
    add x9, x9, :lo12:fr_intercept_reals
    ldr x16, [x9, w17, uxtw #3]
    br x16
.endm

.macro fr_unless_ordinary
    adrp x9, fr_device_host_data
    add x9, x9, :lo12:fr_device_host_data
    ldp x10, x11, [x9]
    cmp x0, x10
    ccmp x0, x11, #2, hs
    b.lo 3f
    adrp x9, fr_device_host_heap
    add x9, x9, :lo12:fr_device_host_heap
    ldp x10, x11, [x9]
    cmp x0, x10
    b.lo 2f
    ldr x11, [x11]
    cmp x0, x11
    b.lo 3f
2:  mrs x9, tpidr_el0
    adrp x10, :gottprel:fr_device_host_stack
    ldr x10, [x10, :gottprel_lo12:fr_device_host_stack]
    add x9, x9, x10
    ldp x10, x11, [x9]
    cmp x0, x10
    ccmp x0, x11, #2, hs
    b.hs fr_full
3:
.endm

#endif

// Begins an entry. Goes on to fr_stub_enter where fr_intercept_fastpath_window would not go on, or
// for housekeeping.
.macro fr_entry name
    fr_hidden_function \name 6
    fr_unless_zero fr_rma_window_count 4
    fr_unless_zero fr_request_pending_count 8
    fr_unless_zero fr_request_posted_count 8
    fr_unless_zero fr_request_tracked_count 8
    fr_unless_zero fr_core_housekeeping_count 8
    fr_unless_zero fr_rndv_reasons 8
.endm

.macro fr_end name
    fr_go_on
    fr_function_end \name
.endm

    .text
fr_entry fr_intercept_enter_window
fr_end fr_intercept_enter_window

fr_entry fr_intercept_enter_access
    fr_unless_ordinary
fr_end fr_intercept_enter_access

    .section .note.GNU-stack, "", %progbits
