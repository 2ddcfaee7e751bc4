// SPDX-License-Identifier: BSD-3-Clause
// How calls come to the module: stubs, the tables that lead to them, and fast handlers.
#ifndef FR_INTERCEPT_STUB_H
#define FR_INTERCEPT_STUB_H

#include "fabrail/abi.h"
#include "fabrail/job.h"

// Where the stubs jump to (src/abi/stubs.S). Written once, when the MPI library is found. At first
// all are fr_stub_unresolved, and those of functions that this MPI library lacks remain so.
extern FR_OWN void *fr_intercept_slots[2 * FR_FN_STUB_COUNT];
void fr_stub_enter(void);
void fr_stub_unresolved(void);

// Stand in for fr_stub_enter where functions on windows are FR_PLAIN_WINDOW, and accesses
// FR_PLAIN_ACCESS (src/intercept/window_entry.S). They mostly go straight on to the real function.
void fr_intercept_enter_window(void);
void fr_intercept_enter_access(void);
extern FR_OWN void *fr_intercept_reals[2 * FR_FN_STUB_COUNT]; // the real functions, as the slots

// The answer to a stub: an address to jump to with the caller's arguments, or a result.
struct fr_intercept_verdict {
    void *jump;
    fr_word result;
};

// Returns `stub` if the MPI library of the process defines `name`. Else returns NULL, which the
// dynamic loader takes for an absent symbol. Called by the stubs alone.
void *fr_intercept_present(const char *name, void *stub);

// The function that a dlsym goes on to, and the handle to give it.
struct fr_intercept_lookup {
    void *handle;
    uintptr_t next;
};

// Returns how a dlsym of `name` goes on. Called by the exported dlsym alone (src/abi/lookup.S).
struct fr_intercept_lookup fr_intercept_lookup(void *handle, const char *name);

// Returns whether the stub of a function leads anywhere: the MPI library has it, or Fabrail answers
// it itself in every MPI.
bool fr_intercept_answers(enum fr_fn fn);

// Returns whether a function is one of Fortran's that this library exports. Costs a few compares.
bool fr_intercept_is_fortran_name(const char *name);

// Makes all who look for functions of the MPI library find Fabrail's stubs. Called once fr_abi_find
// has found the library. Thread-safe and idempotent. Returns false where not all of the loader's
// tables can be written.
bool fr_intercept_redirect(void);

// Points addresses at the stubs that objects loaded since the last call have bound. Returns true
// where an MPI library is loaded and fr_intercept_redirect is still to be called.
bool fr_intercept_look_at_new_objects(void);

// The stubs of PMPI_x. The offset of a row's stub is its distance in bytes from the first one.
extern FR_OWN const char fr_intercept_stubs_begin[];
extern FR_OWN const uint32_t fr_intercept_stub_offsets[];

// Returns whether receives of this process, and calls that complete them, come to Fabrail, as its
// functions are bound. Functions that another library wraps are called as a proof. Called at the
// end of MPI_Init.
enum fr_job_takes fr_intercept_proof(void);
void fr_intercept_prove(enum fr_fn fn); // says that a call has come

// Says whether a proof is still to be given, after FR_JOB_TAKES_LATER.
extern FR_OWN atomic_bool fr_intercept_is_to_prove;

// Returns whether this call can give the proof that is still to be given: a tool's MPI_Init has
// returned.
bool fr_intercept_may_prove(void);

// Gives the proof that was still to be given. Called once, in a handler.
void fr_intercept_prove_late(void);

// Decides what a call of the stub in `slot` does. Called by the stubs alone.
struct fr_intercept_verdict fr_intercept_dispatch(unsigned slot, const fr_word *registers,
                                                  const fr_word *stack);

// Decides the first call of the process, and each call of a function that this MPI library lacks.
// Fills the slots once. Other threads that come here meanwhile wait for that.
struct fr_intercept_verdict
fr_intercept_dispatch_unresolved(unsigned slot, const fr_word *registers, const fr_word *stack);

#if defined(__x86_64__)
enum { FR_REGISTER_ARGS = 6 };
#else
enum { FR_REGISTER_ARGS = 8 };
#endif

// Returns argument `arg` of a call, as its stub has found it.
static inline fr_word fr_intercept_arg(const fr_word *registers, const fr_word *stack, unsigned arg)
{
    return arg < FR_REGISTER_ARGS ? registers[arg] : stack[arg - FR_REGISTER_ARGS];
}

// Address of the stack frame from which this thread entered a handler, 0 outside of any.
extern FR_OWN FR_TLS uintptr_t fr_intercept_handler_frame;

// Returns the address that the application's call returns to. Called in a handler.
uintptr_t fr_intercept_call_site(void);

// Fast handlers (host_fastpath.c, receive.c, dispatch.c) do what most calls need that have to be
// looked at, and nothing else. They leave a call that may need more to fr_intercept_dispatch_fully.
// `real` is the real function.
typedef struct fr_intercept_verdict
fr_intercept_fastpath(unsigned slot, void *real, const fr_word *registers, const fr_word *stack);
extern FR_OWN fr_intercept_fastpath *const fr_intercept_fastpaths[]; // by function; NULL for none
fr_intercept_fastpath fr_intercept_fastpath_window, fr_intercept_fastpath_recv,
    fr_intercept_fastpath_irecv, fr_intercept_fastpath_sendrecv;
struct fr_intercept_verdict fr_intercept_dispatch_fully(unsigned slot, const fr_word *registers,
                                                        const fr_word *stack);

// Begins the rest of a call for which a fast handler finds more to do after the real function has
// returned.
void fr_intercept_dispatch_late(const fr_word *registers);

// Ends what fr_intercept_dispatch_late has begun.
void fr_intercept_exit_late(void);

// The look of the attendant (fr_request_attendant_allow).
bool fr_intercept_attend(void);

// Acts on messages about windows, within a call of MPI that waits (fr_abi_hook).
bool fr_intercept_serve_within(void);

#endif
