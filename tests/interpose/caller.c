// SPDX-License-Identifier: BSD-3-Clause
// Calls every function that has a stub in a process where the library of fakempi.c is the MPI, and
// verifies every argument and result. Speaks TAP.
//
//   caller init|buffers|threads   what the first MPI call of the process is, or several at once
#include "fakempi.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

double MPI_Wtime(void);
double PMPI_Wtime(void);
int MPI_Pcontrol(const int level, ...);
int PMPI_Pcontrol(const int level, ...);
intptr_t MPI_Aint_add(intptr_t base, intptr_t displacement);

enum { ARENA_BYTES = 64 << 10, SPACING = 4000 };

// Arguments point in here, so that whoever looks behind one finds zeros, and every one has bits set
// in its upper half.
static _Alignas(64) unsigned char arena[ARENA_BYTES];
static unsigned char *mapped; // neither stack, heap nor static memory: has to be asked about

typedef int function(FAKE_PARAMETERS);
static const struct row {
    const char *name;
    const char *class;
    const char *signature;
} rows[] = {
#define FR_ROW(name, class, signature, flags) {#name, #class, signature},
#include "fabrail/abi/functions.def"
#undef FR_ROW
};

static int number;
static int failures;

static void result(int ok, const char *text)
{
    printf("%s %d - %s\n", ok ? "ok" : "not ok", ++number, text);
    fflush(stdout);
    failures += !ok;
}

static word argument(const struct row *row, int position, int buffers_are_mapped)
{
    int has_letter = (size_t)position < strlen(row->signature);
    if (buffers_are_mapped && has_letter && strchr("srb", row->signature[position]))
        return (word)(mapped + SPACING * position);
    return (word)(arena + SPACING * position);
}

// Returns 0 when the call came through as it was made.
static int call_wrong(int index, const char *prefix, int buffers_are_mapped)
{
    const struct row *row = &rows[index];
    char name[96];
    word a[FAKE_ARGS];
    snprintf(name, sizeof(name), "%s%s", prefix, row->name);
    function *call = (function *)dlsym(RTLD_DEFAULT, name);
    if (!call) {
        printf("# %s is absent\n", name);
        return 1;
    }
    for (int i = 0; i < FAKE_ARGS; i++)
        a[i] = argument(row, i, buffers_are_mapped);
    memset(&fake_last, 0, sizeof(fake_last));
    int rc = call(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12],
                  a[13]);
    // Init, Finalize, those of sessions and functions with infos are called with the arguments that
    // they have, all others are jumped to.
    int through = strcmp(row->class, "INIT") == 0 || strcmp(row->class, "SESSION_INIT") == 0 ||
                  strcmp(row->class, "FINALIZE") == 0 ||
                  strcmp(row->class, "SESSION_FINALIZE") == 0 ||
                  strchr(row->signature, 'e') != NULL;
    size_t count = through ? strlen(row->signature) : FAKE_ARGS;
    int wrong = rc != FAKE_RESULT + index || fake_last.function != index ||
                memcmp(fake_last.args, a, count * sizeof(word)) != 0;
    if (wrong)
        printf("# %s returned %d, came to function %d\n", name, rc, fake_last.function);
    return wrong;
}

static pthread_barrier_t start;

// Arguments are not compared, since all threads write the one record.
static void *call_at_once(void *index)
{
    int i = *(int *)index;
    function *call = (function *)dlsym(RTLD_DEFAULT, rows[i].name);
    word a[FAKE_ARGS];
    for (int position = 0; position < FAKE_ARGS; position++)
        a[position] = argument(&rows[i], position, 1);
    pthread_barrier_wait(&start);
    int rc = call(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12],
                  a[13]);
    return rc == FAKE_RESULT + i ? index : NULL;
}

static int call_in_threads(void)
{
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    int functions[THREADS] = {FAKE_MPI_Isendrecv_c, FAKE_MPI_Send, FAKE_MPI_Bcast, FAKE_MPI_Reduce};
    int right = pthread_barrier_init(&start, NULL, THREADS) == 0;
    for (int i = 0; i < THREADS; i++)
        right &= pthread_create(&threads[i], NULL, call_at_once, &functions[i]) == 0;
    for (int i = 0; i < THREADS; i++) {
        void *done = NULL;
        right &= pthread_join(threads[i], &done) == 0 && done == &functions[i];
    }
    return right;
}

static void check_all(const char *prefix, int buffers_are_mapped, const char *text)
{
    int wrong = 0, called = 0;
    for (int i = 0; i < FAKE_STUBS; i++) {
        if (strncmp(rows[i].class, "QUERY", 5) == 0 || // answered without a call
            (buffers_are_mapped && !strpbrk(rows[i].signature, "srb")))
            continue;
        wrong += call_wrong(i, prefix, buffers_are_mapped);
        called++;
    }
    printf("# %d functions, %d wrong\n", called, wrong);
    result(called > 100 && wrong == 0, text);
}

static void check_pcontrol(int control(const int, ...), const char *text)
{
    int right = 1;
    memset(&fake_last, 0, sizeof(fake_last));
    control(-7, 0.5, 10l, 1.5, 11l, 2.5, 12l, 3.5, 13l, 4.5, 14l, 5.5, 15l, 6.5, 7.5, 8.5);
    for (int i = 0; i < 9; i++)
        right &= fake_last.reals[i] == i + 0.5 && (i >= 6 || fake_last.whole[i] == 10 + i);
    result(right && fake_last.level == -7, text);
}

static void check_results(void)
{
    int (*query)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "MPIX_Query_cuda_support");
    result(MPI_Wtime() == 1234567.0625 && PMPI_Wtime() == 1234567.0625,
           "a result that is a double");
    intptr_t sum = MPI_Aint_add((intptr_t)0x123456789abcdef0, 15);
    result(sum == (intptr_t)0x123456789abcdeff, "a result of 64 bits");
    int answer = query ? query() : -1; // whether there is a driver: see aware.test
    result(answer == 0 || answer == 1, "a question that the library answers itself");
}

// As bindings of other languages take functions: where the library is asked for them, or what comes
// after the program. Behind the library there is no profiler, so its handle has the stub of PMPI_x
// under both names.
static void check_handle(void)
{
    void *handle = dlopen("libmpi_abi_fake.so", RTLD_LAZY | RTLD_NOLOAD);
    int wrong = 0;
    for (int i = 0; handle && i < FAKE_STUBS; i++) {
        char name[96] = "P";
        if (strncmp(rows[i].class, "QUERY", 5) == 0) // which this library does not have
            continue;
        strncat(name, rows[i].name, sizeof(name) - 2);
        void *stub = dlsym(RTLD_DEFAULT, name + 1), *below = dlsym(RTLD_DEFAULT, name);
        wrong += !stub || !below || dlsym(RTLD_NEXT, name + 1) != stub ||
                 dlsym(handle, name + 1) != below || dlsym(handle, name) != below;
    }
    result(handle && !wrong, "functions by a handle of the library");
    void *absent = dlsym(handle, "MPI_No_such_function");
    const char *error = dlerror();
    result(!absent && error && strstr(error, "MPI_No_such_function"),
           "a function that is not there");
    result(dlsym(handle, "fake_last") && dlsym(RTLD_DEFAULT, "printf") == (void *)printf,
           "names that are not MPI's");
}

int main(int argc, char **argv)
{
    const char *first = argc > 1 ? argv[1] : "";
    mapped = mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED)
        return 1;
    if (strcmp(first, "buffers") == 0)
        result(!call_wrong(FAKE_MPI_Isendrecv_c, "", 1), "stack arguments of the first call");
    else if (strcmp(first, "threads") == 0)
        result(call_in_threads(), "several first calls at once");
    else
        result(!call_wrong(FAKE_MPI_Init, "", 0), "MPI_Init as the first call");
    check_all("", 0, "arguments of MPI_ functions");
    check_all("P", 0, "arguments of PMPI_ functions");
    check_all("", 1, "arguments of MPI_ functions whose buffers were looked at");
    check_all("P", 1, "arguments of PMPI_ functions whose buffers were looked at");
    check_pcontrol(MPI_Pcontrol, "arguments of a variadic function");
    check_pcontrol(PMPI_Pcontrol, "arguments of a variadic PMPI_ function");
    check_results();
    check_handle();
    printf("1..%d\n", number);
    return failures != 0;
}
