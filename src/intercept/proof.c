// SPDX-License-Identifier: BSD-3-Clause
// Proves at the end of MPI_Init that what the application receives comes to Fabrail. A library that
// wraps a function may have taken the real one's address before Fabrail was there, which no table
// shows. So each such wrapper is called once, with a message from nobody. The call has to come back
// here on its way down. A receive that did not would take an RTS for data.
#include "config.h"

#include "fabrail/core/object.h"
#include "intercept/intercept_int.h"

#include <dlfcn.h>
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

// Written by the thread that is in MPI_Init.
static enum kind wanted;
static bool has_come;

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

static bool is_ready(void *wrapper)
{
    static const enum fr_fn inits[] = {FR_FN_MPI_Init, FR_FN_MPI_Init_thread};
    const void *object = fr_abi_object_of(wrapper);
    for (size_t i = 0; i < FR_ARRAY_LENGTH(inits); i++) {
        void *init = wrapper_of(inits[i]);
        if (init && fr_abi_object_of(init) == object)
            return false;
    }
    return true;
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

bool fr_intercept_receives_come_back(void)
{
    bool all = true;
    for (enum fr_fn fn = 0; fn < FR_FN_STUB_COUNT && all; fn++) {
        void *wrapper = fr_abi_has(fn) && kind_of(fn) != KIND_NONE ? wrapper_of(fn) : NULL;
        all = !wrapper || !is_ready(wrapper) || comes_back(fn, wrapper);
    }
    return all;
}
