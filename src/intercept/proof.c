// SPDX-License-Identifier: BSD-3-Clause
// Proves that what the application receives comes to Fabrail. A library that wraps a function may
// have taken the real one's address before Fabrail was there, which no table shows. So each such
// wrapper is called once, with a message from nobody. The call has to come back here on its way
// down. A receive that did not would take an RTS for data.
//
// This is done at the end of MPI_Init. A tool that wraps MPI_Init itself may not be ready then. It
// is called in the first call of the same thread that is not made from inside of the tool's
// MPI_Init, which the return addresses on the stack tell.
#include "config.h"

#include "fabrail/core/object.h"
#include "intercept/intercept_int.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

// A wrapper may probe for a message before it receives it, or wait for what it has begun to
// receive. Then some function that receives has to come all the same.
enum kind { KIND_NONE, KIND_RECEIVE, KIND_COMPLETION, KIND_PROBE };

static enum kind kind_of(enum fr_fn fn)
{
    enum fr_class class = fr_abi_rows[fn].class;
    if (class >= FR_CLASS_WAIT && class <= FR_CLASS_TESTSOME)
        return KIND_COMPLETION;
    if (fr_intercept_receives(fn))
        return KIND_RECEIVE;
    return class == FR_CLASS_PROBE ? KIND_PROBE : KIND_NONE;
}

// Returns whether a wrapper of a function is tried. MPICH 4.0 crashes in MPI_Isendrecv with nobody.
static bool is_tried(enum fr_fn fn)
{
    enum fr_class class = fr_abi_rows[fn].class;
    bool exchanges = class == FR_CLASS_SENDRECV || class == FR_CLASS_REPLACE;
    return fr_abi_has(fn) && kind_of(fn) != KIND_NONE &&
           !(exchanges && fr_abi_rows[fn].request >= 0);
}

static FR_TLS enum kind wanted;
static FR_TLS bool has_come;

void fr_intercept_prove(enum fr_fn fn)
{
    if (FR_UNLIKELY(wanted != KIND_NONE) && kind_of(fn) == wanted)
        has_come = true;
}

// Returns what a call of a function comes to first if that is another library's, else NULL.
static void *wrapper_of(enum fr_fn fn)
{
    void *first = fr_core_dlsym(RTLD_DEFAULT, fr_abi_rows[fn].name);
    return first && !fr_core_is_in_fabrail(first) ? first : fr_abi_profiler(fn);
}

// Memory that the arguments of a call point to.
struct memory {
    _Alignas(64) char buffer[64];
    _Alignas(64) char status[256];
    fr_word request, message;
    int number[4];
};

static fr_word argument(char letter, struct memory *memory)
{
    switch (letter) {
    case 's':
    case 'r':
    case 'b':
        return FR_PTR(memory->buffer);
    case 't':
        return fr_abi_mpi.BYTE;
    case 'P':
        return (fr_word)fr_abi_mpi.PROC_NULL;
    case 'c':
        return fr_abi_mpi.COMM_WORLD;
    case 'm':
        return FR_PTR(&memory->message);
    case 'q':
    case 'Q':
        return FR_PTR(&memory->request);
    case 'k':
        return 1;
    case 'u':
    case 'U':
        return FR_PTR(memory->status);
    case 'F':
    case 'i':
    case 'I':
        return FR_PTR(memory->number);
    default: // the tag, and no elements
        return 0;
    }
}

// Completes a request that the wrapper knows, by the function that the application would call for
// it.
static void finish(enum fr_fn fn, struct memory *memory)
{
    enum fr_fn by =
        fr_abi_rows[fn].flags & FR_ROW_PERSISTENT ? FR_FN_MPI_Request_free : FR_FN_MPI_Wait;
    void *wrapper = wrapper_of(by);
    const fr_word args[] = {FR_PTR(&memory->request), FR_PTR(memory->status)};
    if (fr_abi_handle_load(&memory->request, 0) == fr_abi_mpi.REQUEST_NULL)
        return;
    if (wrapper)
        fr_abi_call_at(by, wrapper, args);
    else
        fr_abi_call(by, args);
}

static bool comes_back(enum fr_fn fn, void *wrapper)
{
    struct memory memory = {.number = {0}};
    fr_word args[FR_MAX_ARGS];
    for (unsigned i = 0; i < fr_abi_rows[fn].arg_count; i++)
        args[i] = argument(fr_abi_rows[fn].signature[i], &memory);
    fr_abi_handle_store(&memory.request, 0, fr_abi_mpi.REQUEST_NULL);
    fr_abi_handle_store(&memory.message, 0, fr_abi_mpi.MESSAGE_NO_PROC);
    has_come = false;
    wanted = kind_of(fn);
    fr_abi_call_at(fn, wrapper, args);
    bool came = has_come;
    wanted = KIND_NONE;
    finish(fn, &memory);
    if (!came) {
        Dl_info info;
        fr_warn(
            "%s calls the MPI library's %s past Fabrail, so this process receives no GPU memory "
            "by NVLink or rails",
            dladdr(wrapper, &info) && info.dli_fname ? info.dli_fname : "another library",
            fr_abi_rows[fn].name);
    }
    return came;
}

// Returns whether the receives of all other libraries come back.
static bool all_come_back(void)
{
    bool all = true;
    for (enum fr_fn fn = 0; fn < FR_FN_STUB_COUNT && all; fn++) {
        void *wrapper = is_tried(fn) ? wrapper_of(fn) : NULL;
        all = !wrapper || comes_back(fn, wrapper);
    }
    return all;
}

static bool any_wrapped(void)
{
    for (enum fr_fn fn = 0; fn < FR_FN_STUB_COUNT; fn++) {
        if (is_tried(fn) && wrapper_of(fn))
            return true;
    }
    return false;
}

enum { MOST_FRAMES = 512 };
struct walk {
    void *frames[MOST_FRAMES]; // return addresses, the innermost first
    int count;
};

// The call of a tool's MPI_Init, as seen from inside of it.
static struct {
    pthread_t thread;
    void *caller;    // where the outermost tool's MPI_Init returns to; NULL if none is under way
    void *outermost; // of the thread's return addresses
} start;

// The walk is the C library's, since Fabrail is linked with no unwinder.
static __attribute__((noinline)) bool walk_stack(struct walk *walk)
{
    int (*backtrace)(void **, int) =
        (int (*)(void **, int))fr_core_dlsym(RTLD_DEFAULT, "backtrace");
    walk->count = backtrace ? backtrace(walk->frames, MOST_FRAMES) : 0;
    return walk->count > 0;
}

static bool is_in_symbol(const struct fr_core_object *object, const char *name, uintptr_t address)
{
    const ElfW(Sym) *symbol = fr_core_object_symbol(object, name);
    return symbol && address - (object->base + symbol->st_value) < symbol->st_size;
}

struct question {
    uintptr_t address;
    bool is_executable; // the first object of the walk
    bool is_init;
};

// The names under which a tool that is linked into a program may wrap MPI_Init.
static const char *const init_names[] = {"MPI_Init",         "MPI_Init_thread",  "mpi_init",
                                         "mpi_init_",        "mpi_init__",       "mpi_init_thread",
                                         "mpi_init_thread_", "mpi_init_thread__"};

static int look_into(struct dl_phdr_info *info, size_t size, void *data)
{
    struct question *question = data;
    struct fr_core_object object;
    bool is_executable = question->is_executable;
    (void)size;
    question->is_executable = false;
    if (!fr_core_object_contains(info, question->address))
        return 0;
    if (!fr_core_object_of(info, &object) || fr_core_object_is_fabrail(&object) ||
        fr_core_object_contains(info, (uintptr_t)fr_abi_address(FR_FN_MPI_Init)))
        return 1;
    bool wraps = fr_core_object_symbol(&object, "MPI_Init") != NULL ||
                 fr_core_object_symbol(&object, "MPI_Init_thread") != NULL;
    question->is_init = wraps && !is_executable;
    for (size_t i = 0; i < FR_ARRAY_LENGTH(init_names) && wraps && !question->is_init; i++)
        question->is_init = is_in_symbol(&object, init_names[i], question->address);
    return 1;
}

// Returns whether a return address lies in a tool that wraps MPI_Init, or in that function of a
// program.
static bool is_in_init(const void *address)
{
    struct question question = {.address = (uintptr_t)address - 1, .is_executable = true};
    fr_core_iterate_objects(look_into, &question);
    return question.is_init;
}

// Notes from where a tool's MPI_Init was called. Returns false where the stack cannot be walked.
static bool note_start(void)
{
    struct walk walk;
    if (!walk_stack(&walk))
        return false;
    int frame = walk.count - 1;
    start.thread = pthread_self();
    start.outermost = walk.frames[frame];
    while (frame > 0 && !is_in_init(walk.frames[frame - 1]))
        frame--;
    start.caller = frame > 0 ? walk.frames[frame] : NULL;
    return true;
}

// Returns whether the tool's MPI_Init has surely returned. A walk that does not reach the thread's
// outermost frame tells nothing.
static bool has_started(void)
{
    struct walk walk;
    if (!pthread_equal(pthread_self(), start.thread) || !walk_stack(&walk) ||
        walk.frames[walk.count - 1] != start.outermost)
        return false;
    for (int i = 0; i < walk.count && start.caller; i++) {
        if (walk.frames[i] == start.caller)
            return false;
    }
    return true;
}

enum fr_job_takes fr_intercept_proof(void)
{
    if (!any_wrapped())
        return FR_JOB_TAKES_RTS;
    if (!wrapper_of(FR_FN_MPI_Init) && !wrapper_of(FR_FN_MPI_Init_thread))
        return all_come_back() ? FR_JOB_TAKES_RTS : FR_JOB_TAKES_NONE;
    return note_start() ? FR_JOB_TAKES_LATER : FR_JOB_TAKES_NONE;
}

atomic_bool fr_intercept_is_to_prove;

// A thread that calls from the same place again and again, as interpreters do, looks ever less
// often.
bool fr_intercept_may_prove(void)
{
    static _Atomic unsigned calls;
    unsigned call = atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed) + 1;
    return (call & (call - 1)) == 0 && has_started();
}

void fr_intercept_prove_late(void)
{
    atomic_store(&fr_intercept_is_to_prove, false);
    if (all_come_back())
        fr_rndv_take_rts();
}
