// SPDX-License-Identifier: BSD-3-Clause
// Device memory where it can be neither staged nor passed on: each call must return an error of the
// right class, through the error handler of its communicator or window, called once, with one line
// on stderr that names the function; and MPI works on afterwards. One rank. Speaks TAP.
//
//   refusal keep   windows and attached buffers, which MPI keeps
//   refusal pass   messages, under FABRAIL_PATHS=pass
#include "../programs/memory.h"

#include <mpi.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BYTES = 4096 };

static struct memory device;
static MPI_Win window; // dynamic where the MPI has a way to make one
static MPI_Comm comm;  // a duplicate, so that its handler is nobody else's
static int handler_calls;
static int handler_code;
static char handler_whose;
static int result_number;
static int failures;

__attribute__((format(printf, 2, 3))) static void result(int ok, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf("%s %d - ", ok ? "ok" : "not ok", ++result_number);
    vprintf(format, arguments);
    printf("\n");
    fflush(stdout);
    va_end(arguments);
    failures += !ok;
}

static void note(char whose, int code)
{
    handler_calls++;
    handler_code = code;
    handler_whose = whose;
}

static void note_comm(MPI_Comm *on, int *code, ...)
{
    (void)on;
    note('c', *code);
}

static void note_world(MPI_Comm *on, int *code, ...)
{
    (void)on;
    note('g', *code);
}

static void note_self(MPI_Comm *on, int *code, ...)
{
    (void)on;
    note('s', *code);
}

static void note_window(MPI_Win *on, int *code, ...)
{
    (void)on;
    note('w', *code);
}

// The capture of what a call writes to stderr.
static int real_stderr = -1;
static int captured[2];

static void capture_begin(void)
{
    fflush(stderr);
    real_stderr = dup(STDERR_FILENO);
    if (real_stderr < 0 || pipe(captured) || dup2(captured[1], STDERR_FILENO) < 0) {
        perror("capture");
        exit(1);
    }
    close(captured[1]);
}

static void capture_end(char *text, size_t bytes)
{
    size_t used = 0;
    ssize_t got;
    fflush(stderr);
    dup2(real_stderr, STDERR_FILENO);
    close(real_stderr);
    while (used < bytes - 1 && (got = read(captured[0], text + used, bytes - 1 - used)) > 0)
        used += (size_t)got;
    text[used] = '\0';
    close(captured[0]);
}

static int count_of(const char *text, const char *part)
{
    int count = 0;
    for (const char *at = text; (at = strstr(at, part)); at += strlen(part))
        count++;
    return count;
}

static int refused_win_create(void)
{
    MPI_Win made = MPI_WIN_NULL;
    return MPI_Win_create(device.address, BYTES, 1, MPI_INFO_NULL, comm, &made);
}

static int refused_win_attach(void)
{
    return MPI_Win_attach(window, device.address, BYTES);
}

static int refused_buffer_attach(void)
{
    return MPI_Buffer_attach(device.address, BYTES);
}

static int refused_send(void)
{
    return MPI_Send(device.address, BYTES, MPI_BYTE, 0, 1, comm);
}

static int refused_recv(void)
{
    return MPI_Recv(device.address, BYTES, MPI_BYTE, 0, 1, comm, MPI_STATUS_IGNORE);
}

static int refused_isend(void)
{
    MPI_Request request = MPI_REQUEST_NULL;
    return MPI_Isend(device.address, BYTES, MPI_BYTE, 0, 1, comm, &request);
}

static int refused_alltoall(void)
{
    static char host[BYTES];
    return MPI_Alltoall(host, BYTES, MPI_BYTE, device.address, BYTES, MPI_BYTE, comm);
}

struct attempt {
    const char *function;
    int (*call)(void);
    int class;
    char whose; // handler: of the communicator, the window, or whom MPI takes for neither (0)
};
static const struct attempt keeping[] = {
    {"MPI_Win_create", refused_win_create, MPI_ERR_BASE, 'c'},
    {"MPI_Win_attach", refused_win_attach, MPI_ERR_BASE, 'w'},
};
static const struct attempt passing[] = {
    {"MPI_Buffer_attach", refused_buffer_attach, MPI_ERR_BUFFER, 0},
    {"MPI_Send", refused_send, MPI_ERR_BUFFER, 'c'},
    {"MPI_Recv", refused_recv, MPI_ERR_BUFFER, 'c'},
    {"MPI_Isend", refused_isend, MPI_ERR_BUFFER, 'c'},
    {"MPI_Alltoall", refused_alltoall, MPI_ERR_BUFFER, 'c'},
};

// Returns whose handler MPI calls for an error of its own where there is neither communicator nor
// window.
static char whose_without_object(void)
{
    int size = 0;
    MPI_Type_size(MPI_DATATYPE_NULL, &size);
    return handler_whose;
}

static void check(const struct attempt *attempt, const char *handler, int expected_calls)
{
    char text[8192], mark[128];
    int class = MPI_SUCCESS;
    char whose = attempt->whose ? attempt->whose : whose_without_object();
    handler_calls = 0;
    handler_whose = 0;
    capture_begin();
    int code = attempt->call();
    capture_end(text, sizeof(text));
    snprintf(mark, sizeof(mark), "error: %s: device memory ", attempt->function);
    if (code != MPI_SUCCESS)
        MPI_Error_class(code, &class);
    int lines = count_of(text, "fabrail");
    int ok = class == attempt->class && handler_calls == expected_calls &&
             (!expected_calls || (handler_code == code && handler_whose == whose)) && lines == 1 &&
             count_of(text, mark) == 1;
    result(ok, "%s is refused, errors %s", attempt->function, handler);
    if (!ok)
        printf("# class %d, expected %d; handler called %d times with %d, code %d; stderr: %s\n",
               class, attempt->class, handler_calls, handler_code, code, text);
}

static void set_handlers(const MPI_Errhandler handlers[4])
{
    MPI_Comm_set_errhandler(comm, handlers[0]);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handlers[1]);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, handlers[2]);
    MPI_Win_set_errhandler(window, handlers[3]);
}

static void check_all(const struct attempt *attempts, size_t count)
{
    const MPI_Errhandler fatal[] = {MPI_ERRORS_ARE_FATAL, MPI_ERRORS_ARE_FATAL,
                                    MPI_ERRORS_ARE_FATAL, MPI_ERRORS_ARE_FATAL};
    const MPI_Errhandler returning[] = {MPI_ERRORS_RETURN, MPI_ERRORS_RETURN, MPI_ERRORS_RETURN,
                                        MPI_ERRORS_RETURN};
    MPI_Errhandler own[4];
    set_handlers(returning);
    for (size_t i = 0; i < count; i++)
        check(&attempts[i], "return", 0);
    MPI_Comm_create_errhandler(note_comm, &own[0]);
    MPI_Comm_create_errhandler(note_world, &own[1]);
    MPI_Comm_create_errhandler(note_self, &own[2]);
    MPI_Win_create_errhandler(note_window, &own[3]);
    set_handlers(own);
    for (size_t i = 0; i < count; i++)
        check(&attempts[i], "call a handler", 1);
    set_handlers(fatal);
    for (int i = 0; i < 4; i++)
        MPI_Errhandler_free(&own[i]);
}

// Makes the same calls with host memory, which are served.
static void check_host(void)
{
    static char given[BYTES], got[BYTES];
    void *attached = NULL, *base = NULL;
    int size = 0;
    MPI_Win made;
    memset(given, 0x5a, sizeof(given));
    MPI_Sendrecv(given, BYTES, MPI_BYTE, 0, 2, got, BYTES, MPI_BYTE, 0, 2, comm, MPI_STATUS_IGNORE);
    result(memcmp(given, got, BYTES) == 0, "messages of host memory work afterwards");
    MPI_Win_allocate(BYTES, 1, MPI_INFO_NULL, comm, &base, &made);
    MPI_Win_free(&made);
    MPI_Buffer_attach(given, BYTES);
    MPI_Buffer_detach(&attached, &size);
    result(attached == given && size == BYTES,
           "windows and buffers of host memory work afterwards");
}

// Some builds have no dynamic windows within one host. A refusal needs only the window's handler.
static void make_window(void)
{
    void *base = NULL;
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    int code = MPI_Win_create_dynamic(MPI_INFO_NULL, comm, &window);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_ARE_FATAL);
    if (code != MPI_SUCCESS)
        MPI_Win_allocate(BYTES, 1, MPI_INFO_NULL, comm, &base, &window);
}

int main(int argc, char **argv)
{
    int passes = argc > 1 && strcmp(argv[1], "pass") == 0;
    MPI_Init(&argc, &argv);
    memory_start(0);
    const char *missing = memory_missing(MEMORY_DEVICE);
    if (missing) {
        printf("1..0 # SKIP %s\n", missing);
        MPI_Finalize();
        return 0;
    }
    device = memory_new(MEMORY_DEVICE, BYTES);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    make_window();
    if (passes)
        check_all(passing, sizeof(passing) / sizeof(passing[0]));
    else
        check_all(keeping, sizeof(keeping) / sizeof(keeping[0]));
    check_host();
    MPI_Win_free(&window);
    MPI_Comm_free(&comm);
    memory_free(&device);
    memory_stop();
    MPI_Finalize();
    printf("1..%d\n", result_number);
    return failures != 0;
}
