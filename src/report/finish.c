// SPDX-License-Identifier: BSD-3-Clause
// When the report is written: at MPI_Finalize, at MPI_Abort, when a signal kills the process, or
// when it exits without any of these.
//
// All else that happens then stays as it was. After a signal comes its default action, or the
// handler that the MPI library has set in MPI_Init. A signal for which the application had a
// handler before is not watched. A handler that the application sets later replaces this module's.
#include "config.h"

#include "fabrail/core/time.h"
#include "fabrail/job.h"
#include "report/out.h"
#include "report/report_int.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

enum { OUT_BYTES = 1 << 16, SIGNAL_STACK_BYTES = 1 << 16 };
enum { UNWRITTEN, WRITING, WRITTEN };

static const int watched[] = {SIGSEGV, SIGBUS,  SIGFPE, SIGILL, SIGABRT, SIGSYS,
                              SIGXCPU, SIGTERM, SIGINT, SIGHUP, SIGQUIT};
static struct {
    bool free; // nobody had a handler before MPI_Init
    bool ours;
    struct sigaction before; // the default action, or the MPI library's
} dispositions[FR_ARRAY_LENGTH(watched)];

static struct fr_report_job job = {.fabric_memory = "unknown"};
static _Atomic int state;
static FR_TLS bool writing_here;
static bool in_signal;
static pid_t owner;
static _Atomic int sessions; // that are open

void fr_report_complain(const char *setting, const char *name, const char *what)
{
    int error = errno;
    if (in_signal) // the C library must not be asked for a text of the error there
        fr_warn("%s: %s %s: errno %d", setting, name, what, error);
    else
        fr_warn("%s: %s %s: %s", setting, name, what, strerror(error));
}

static void write_report(const struct fr_report_end *end)
{
    static char buffer[OUT_BYTES], name[PATH_MAX];
    struct fr_report_out out;
    const char *target = fr_report_target;
    if (!target[0])
        return;
    if (strcmp(target, "text") == 0) {
        fr_report_write_text(&job);
        return;
    }
    if (!fr_report_expand(target, fr_report_rank(), name, sizeof(name))) {
        errno = ENAMETOOLONG;
        fr_report_complain("FABRAIL_REPORT", "its file", "cannot be written");
    } else if (!fr_report_out_open(&out, name, buffer, sizeof(buffer))) {
        fr_report_complain("FABRAIL_REPORT", name, "cannot be written");
    } else {
        fr_report_write_json(&out, end, &job);
        if (!fr_report_out_close(&out, name))
            fr_report_complain("FABRAIL_REPORT", name, "was not written completely");
    }
}

// Waits while another thread writes, so that the process does not die before it is done. Waits no
// longer than a file takes.
static void wait_for_writer(void)
{
    enum { LOOKS = 200, NAP_NS = 5000000 };
    for (int i = 0; i < LOOKS && state == WRITING && !writing_here; i++)
        fr_time_sleep(NAP_NS);
}

// Writes report and trace once, however the process ends. May run in a signal handler. Does nothing
// in a forked process.
static void finish(const struct fr_report_end *end)
{
    int expected = UNWRITTEN;
    if (!fr_report_on || getpid() != owner)
        return;
    if (!atomic_compare_exchange_strong(&state, &expected, WRITING)) {
        wait_for_writer();
        return;
    }
    writing_here = true;
    fr_report_sum_up();
    fr_report_sites_name(in_signal);
    write_report(end);
    fr_report_trace_write();
    writing_here = false;
    state = WRITTEN;
}

static bool is_fault(int number, const siginfo_t *info)
{
    return info->si_code > 0 && (number == SIGSEGV || number == SIGBUS || number == SIGFPE ||
                                 number == SIGILL || number == SIGSYS);
}

static void on_signal(int number, siginfo_t *info, void *context)
{
    int saved_errno = errno;
    (void)context;
    in_signal = true;
    finish(&(struct fr_report_end){.how = "signal", .signal = number});
    for (size_t i = 0; i < FR_ARRAY_LENGTH(watched); i++) {
        if (watched[i] == number)
            sigaction(number, &dispositions[i].before, NULL);
    }
    // A fault happens again by itself, with its true context, once this handler has returned.
    if (!is_fault(number, info))
        raise(number);
    errno = saved_errno;
}

// Gives handlers a stack of their own, since a stack that has overflowed holds none.
static void give_stack(void)
{
    static char memory[SIGNAL_STACK_BYTES];
    const stack_t stack = {.ss_sp = memory, .ss_size = sizeof(memory)};
    stack_t before;
    if (sigaltstack(NULL, &before) == 0 && (before.ss_flags & SS_DISABLE))
        sigaltstack(&stack, NULL);
}

// Returns whether an action is UCX's. MPI libraries load UCX, which then sets handlers that say
// where a fault is.
static bool is_of_ucx(const struct sigaction *action)
{
    Dl_info info;
    void *handler =
        action->sa_flags & SA_SIGINFO ? (void *)action->sa_sigaction : (void *)action->sa_handler;
    if (!dladdr(handler, &info) || !info.dli_fname)
        return false;
    const char *slash = strrchr(info.dli_fname, '/');
    return strncmp(slash ? slash + 1 : info.dli_fname, "libucs.so", sizeof("libucs.so") - 1) == 0;
}

static bool is_default(const struct sigaction *action)
{
    return !(action->sa_flags & SA_SIGINFO) && action->sa_handler == SIG_DFL;
}

void fr_report_before_init(void)
{
    struct sigaction now;
    for (size_t i = 0; i < FR_ARRAY_LENGTH(watched) && fr_report_on; i++) {
        dispositions[i].free =
            sigaction(watched[i], NULL, &now) == 0 && (is_default(&now) || is_of_ucx(&now));
    }
}

static void remove_of(const char *target, int rank)
{
    char name[PATH_MAX];
    if (target[0] && fr_report_expand(target, rank, name, sizeof(name)))
        fr_report_out_remove(name);
}

// Removes files of an earlier job under this job's names, since they would be taken for this job's.
static void remove_old(void)
{
    remove_of(fr_report_trace_target, fr_job_rank());
    if (strcmp(fr_report_target, "text") == 0)
        return;
    remove_of(fr_report_target, fr_job_rank());
    if (fr_job_rank() == 0)
        remove_of(fr_report_target, FR_REPORT_JOB);
}

void fr_report_after_init(const struct fr_report_job *facts)
{
    struct sigaction ours = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    if (!fr_report_on)
        return;
    job = *facts;
    owner = getpid();
    fr_report_look_around();
    remove_old();
    give_stack();
    sigfillset(&ours.sa_mask);
    for (size_t i = 0; i < FR_ARRAY_LENGTH(watched); i++) {
        if (dispositions[i].free && !dispositions[i].ours &&
            sigaction(watched[i], NULL, &dispositions[i].before) == 0 &&
            dispositions[i].before.sa_handler != SIG_IGN)
            dispositions[i].ours = sigaction(watched[i], &ours, NULL) == 0;
    }
}

// Gives the signals back: after MPI_Finalize the process is the application's alone.
static void unwatch(void)
{
    struct sigaction now;
    for (size_t i = 0; i < FR_ARRAY_LENGTH(watched); i++) {
        if (dispositions[i].ours && sigaction(watched[i], NULL, &now) == 0 &&
            (now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_signal)
            sigaction(watched[i], &dispositions[i].before, NULL);
        dispositions[i].ours = false;
    }
}

void fr_report_write(const struct fr_report_job *facts)
{
    job = *facts;
    if (!owner) // MPI was started in a way that no stub saw
        owner = getpid();
    finish(&(struct fr_report_end){.how = "finalize"});
    unwatch();
    fr_report_gather();
    bool prints = strcmp(fr_report_target, "text") == 0;
    const char *line;
    for (unsigned i = 0; prints && (line = fr_report_verdict_line(i)); i++)
        fr_core_log_write(FR_LOG_INFO, "report: %s", line);
}

void fr_report_write_abort(void)
{
    finish(&(struct fr_report_end){.how = "abort"});
}

void fr_report_session_begin(void)
{
    atomic_fetch_add(&sessions, 1);
    if (!fr_report_on || owner)
        return;
    owner = getpid();
    fr_report_look_around();
}

void fr_report_session_end(const struct fr_report_job *facts)
{
    if (atomic_fetch_sub(&sessions, 1) == 1)
        job = *facts;
}

// A program of sessions alone may open another one after the last. So its report is written here.
__attribute__((destructor)) static void at_exit(void)
{
    const bool is_over = fr_job_rank() < 0 && sessions == 0;
    if (owner && state == UNWRITTEN)
        finish(&(struct fr_report_end){.how = is_over ? "finalize" : "exit"});
}
