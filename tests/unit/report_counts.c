// SPDX-License-Identifier: BSD-3-Clause
// Counters of threads that come and go: what they add up to, which calls are timed, and what
// happens when there are more rows than room. Also the text that files are made of.
#include "config.h"

#include "report/report_int.h"

#include "check.h"
#include "report/out.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { THREADS = 4, ROUNDS = 3, CALLS = 5000 };

static struct fr_report_sum find(enum fr_fn fn, unsigned path, const char *scheme)
{
    unsigned count;
    fr_report_sum_up();
    const struct fr_report_sum *sums = fr_report_sums(&count);
    for (unsigned i = 0; i < count; i++) {
        bool same = scheme && sums[i].scheme ? strcmp(scheme, sums[i].scheme) == 0
                                             : scheme == sums[i].scheme;
        if (sums[i].fn == fn && sums[i].path == path && same)
            return sums[i];
    }
    return (struct fr_report_sum){.fn = fn};
}

static struct fr_report_buffer buffer_of(enum fr_policy_path path, const char *scheme)
{
    return (struct fr_report_buffer){.fn = FR_FN_MPI_Recv,
                                     .path = path,
                                     .scheme = scheme,
                                     .kind = FR_KIND_MALLOC,
                                     .out_bytes = 3,
                                     .reason = "a reason"};
}

static void *receive(void *scheme)
{
    const struct fr_report_buffer staged = buffer_of(FR_PATH_HOST, NULL),
                                  pulled = buffer_of(FR_PATH_PEER, scheme);
    for (int i = 0; i < CALLS; i++) {
        fr_report_call_begin(FR_FN_MPI_Recv, 1, NULL);
        fr_report_buffer(i % 2 ? &pulled : &staged);
        fr_report_call_end();
    }
    return NULL;
}

static unsigned count_slabs(void)
{
    unsigned count = 0;
    for (const struct fr_slab *slab = fr_report_slabs(); slab; slab = slab->next)
        count++;
    return count;
}

static void test_threads(void)
{
    // One text at several addresses is one scheme.
    static char schemes[THREADS][8];
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t threads[THREADS];
        for (int i = 0; i < THREADS; i++) {
            snprintf(schemes[i], sizeof(schemes[i]), "get");
            pthread_create(&threads[i], NULL, receive, schemes[i]);
        }
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
    }
    const uint64_t half = THREADS * ROUNDS * CALLS / 2;
    struct fr_report_sum host = find(FR_FN_MPI_Recv, FR_PATH_HOST, NULL),
                         peer = find(FR_FN_MPI_Recv, FR_PATH_PEER, "get");
    CHECK(host.buffers == half && host.bytes == 3 * half && host.calls == half);
    CHECK(peer.buffers == half && peer.bytes == 3 * half && peer.calls == half);
    CHECK(host.timed_calls > 0 && host.timed_calls < half, "%ju", (uintmax_t)host.timed_calls);
    CHECK(peer.reason && strcmp(peer.reason, "a reason") == 0);
    CHECK(count_slabs() <= THREADS, "%u slabs", count_slabs());
}

// A buffer that an earlier call has posted is counted, and the call that completes it counts for
// the same path. A call that has nothing to do with it does not.
static void test_posted(void)
{
    struct fr_report_buffer posted = buffer_of(FR_PATH_PEER, "get"),
                            own = buffer_of(FR_PATH_HOST, NULL);
    posted.posted = true;
    posted.fn = FR_FN_MPI_Irecv;
    own.fn = FR_FN_MPI_Isend;
    static const enum fr_fn fns[] = {FR_FN_MPI_Irecv, FR_FN_MPI_Isend, FR_FN_MPI_Wait};
    for (size_t i = 0; i < FR_ARRAY_LENGTH(fns); i++) {
        fr_report_call_begin(fns[i], 1, NULL);
        if (fns[i] == own.fn)
            fr_report_buffer(&own);
        fr_report_buffer(&posted);
        fr_report_call_end();
    }
    struct fr_report_sum receives = find(FR_FN_MPI_Irecv, FR_PATH_PEER, "get");
    CHECK(receives.buffers == 3 && receives.calls == 0, "%ju", (uintmax_t)receives.calls);
    CHECK(find(FR_FN_MPI_Irecv, FR_NO_PATH, NULL).calls == 1);
    CHECK(find(FR_FN_MPI_Isend, FR_PATH_HOST, NULL).calls == 1);
    CHECK(find(FR_FN_MPI_Wait, FR_PATH_PEER, "get").calls == 1);
}

// Only some of many short calls are timed. Their time is not asserted.
static void test_sampled_time(void)
{
    for (int i = 0; i < 4 * CALLS; i++) {
        fr_report_call_begin(FR_FN_MPI_Ssend, 1, NULL);
        fr_core_meter_end(FR_METER_MPI, fr_core_meter_begin());
        fr_report_call_end();
    }
    struct fr_report_sum sum = find(FR_FN_MPI_Ssend, FR_NO_PATH, NULL);
    CHECK(sum.calls == 4 * CALLS && sum.timed_calls > 0 && sum.timed_calls < sum.calls / 4);
    CHECK(sum.ns > 0 && sum.mpi_ns > 0 && sum.mpi_ns <= sum.ns && sum.copies_ns == 0);
}

// A span that an error handler left by longjmp ends with the next call.
static void test_left_span(void)
{
    fr_report_call_begin(FR_FN_MPI_Issend, 1, NULL);
    (void)fr_core_meter_begin();
    fr_report_call_begin(FR_FN_MPI_Issend, 1, NULL);
    CHECK(fr_core_meter_begin() != 0);
    fr_report_call_end();
    CHECK(fr_core_meter_begin() == 0, "the meter runs outside of calls");
    CHECK(find(FR_FN_MPI_Issend, FR_NO_PATH, NULL).calls == 1);
}

static void *count_rows(void *unused)
{
    static char schemes[2 * FR_ROWS][8];
    for (unsigned i = 0; i < FR_ARRAY_LENGTH(schemes); i++) {
        snprintf(schemes[i], sizeof(schemes[i]), "s%u", i);
        struct fr_report_buffer buffer = buffer_of(FR_PATH_PASS, schemes[i]);
        buffer.fn = FR_FN_MPI_Bcast;
        fr_report_buffer(&buffer);
    }
    return unused;
}

// More rows than there is room for lose counts by function, and say so; the sizes have them all.
static void test_full(void)
{
    pthread_t thread;
    uint64_t lost = 0, sized = 0;
    pthread_create(&thread, NULL, count_rows, NULL);
    pthread_join(thread, NULL);
    for (const struct fr_slab *slab = fr_report_slabs(); slab; slab = slab->next) {
        lost += fr_count_get(&slab->lost);
        sized += fr_count_get(&slab->sizes[FR_PATH_PASS][1].buffers);
    }
    CHECK(lost >= FR_ROWS && lost < 2 * FR_ROWS, "%ju", (uintmax_t)lost);
    CHECK(sized == 2 * FR_ROWS, "%ju", (uintmax_t)sized);
}

// Threads of Fabrail's move bytes outside of calls, which no call site has.
static void test_outside(void)
{
    enum { BYTES = 5 };
    static const struct fr_report_buffer buffer = {
        .fn = FR_FN_MPI_Bsend, .path = FR_PATH_RAIL, .in_bytes = BYTES};
    const struct fr_core_site *found;
    unsigned count;
    uint64_t bytes = 0;
    fr_report_buffer(&buffer);
    fr_report_sum_up();
    const struct fr_report_site *sites = fr_report_sites(&found, &count);
    for (unsigned i = 0; i < count; i++)
        bytes += sites[i].site == 0 ? sites[i].bytes[FR_PATH_RAIL] : 0;
    CHECK(bytes == BYTES, "%ju", (uintmax_t)bytes);
}

// More call sites than there is room for: what they have moved is counted in one row.
static void test_places(void)
{
    enum { SITES = 4 * FR_SITES, BYTES = 3 };
    static const struct fr_report_buffer buffer = {
        .fn = FR_FN_MPI_Bsend, .path = FR_PATH_FABRIC, .in_bytes = BYTES};
    const struct fr_core_site *found;
    unsigned count, others = 0;
    uint64_t calls = 0, bytes = 0;
    for (unsigned i = 0; i < 2 * SITES; i++) {
        fr_report_call_begin(FR_FN_MPI_Bsend, 4096 + 16 * (i % SITES), NULL);
        fr_report_buffer(&buffer);
        fr_report_call_end();
    }
    fr_report_sum_up();
    const struct fr_report_site *sites = fr_report_sites(&found, &count);
    for (unsigned i = 0; i < count; i++) {
        calls += sites[i].bytes[FR_PATH_FABRIC] ? sites[i].calls : 0;
        bytes += sites[i].bytes[FR_PATH_FABRIC];
        others += sites[i].site == 0;
        CHECK(i == 0 || sites[i].ns <= sites[i - 1].ns, "the slowest comes first");
        CHECK(sites[i].bytes[FR_PATH_FABRIC] <= 2 * BYTES || sites[i].site == 0);
    }
    CHECK(count > FR_SITES / 2 && count <= FR_SITES && others == 1, "%u, %u", count, others);
    CHECK(calls == 2 * SITES && bytes == 2 * SITES * BYTES, "%ju", (uintmax_t)calls);
}

static void test_text(void)
{
    static const char wanted[] = "a \"x\\\"\\\\?? \xc3\xa9\xf0\x9f\x98\x80\" null "
                                 "18446744073709551615 -2147483648 true 1234.007";
    char small[16], text[256] = "", name[] = "/tmp/fabrail-report-XXXXXX";
    struct fr_report_out out = {.fd = mkstemp(name), .buffer = small, .room = sizeof(small)};
    int fd = open(name, O_RDONLY);
    unlink(name);
    fr_report_put(&out, "a %q %q %u %i %b %t", "x\"\\\n\xff \xc3\xa9\xf0\x9f\x98\x80", (char *)NULL,
                  UINT64_MAX, INT_MIN, 1, (uint64_t)1234007);
    fr_report_out_close(&out, "/nowhere/at/all"); // writes what is left
    CHECK(read(fd, text, sizeof(text) - 1) > 0 && strcmp(text, wanted) == 0, "%s", text);
    close(fd);
}

// Neither a device nor a link of that name gives way to a file.
static void test_special(void)
{
    char buffer[64], text[16] = "", fifo[] = "/tmp/fabrail-report-XXXXXX";
    struct fr_report_out out;
    struct stat found;
    close(mkstemp(fifo));
    fr_report_out_remove(fifo);
    CHECK(access(fifo, F_OK) != 0, "a file of an earlier job");
    CHECK(mkfifo(fifo, 0600) == 0);
    alarm(10);
    CHECK(!fr_report_out_open(&out, fifo, buffer, sizeof(buffer)) && errno == ENXIO, "no reader");
    int fd = open(fifo, O_RDONLY | O_NONBLOCK);
    fr_report_out_remove(fifo);
    CHECK(fr_report_out_open(&out, fifo, buffer, sizeof(buffer)));
    fr_report_put(&out, "text");
    CHECK(fr_report_out_close(&out, fifo));
    CHECK(lstat(fifo, &found) == 0 && S_ISFIFO(found.st_mode));
    CHECK(read(fd, text, sizeof(text) - 1) == 4 && strcmp(text, "text") == 0, "%s", text);
    alarm(0);
    close(fd);
    unlink(fifo);
}

// Whatever else fails between the error and the end.
static void test_first_error(void)
{
    char small[4];
    struct fr_report_out out;
    if (access("/dev/full", W_OK) != 0 ||
        !fr_report_out_open(&out, "/dev/full", small, sizeof(small)))
        return;
    fr_report_put(&out, "more than fits");
    errno = ENOENT;
    CHECK(!fr_report_out_close(&out, "/dev/full") && errno == ENOSPC, "errno %d", errno);
}

static void test_names(void)
{
    char name[64], small[8];
    CHECK(fr_report_expand("a%r/%r.json", 12, name, sizeof(name)) && !strcmp(name, "a12/12.json"));
    CHECK(fr_report_expand("a-%r", FR_REPORT_JOB, name, sizeof(name)) && !strcmp(name, "a-job"));
    CHECK(fr_report_expand("all.json", 3, name, sizeof(name)) && !strcmp(name, "all.json.rank3"));
    CHECK(fr_report_expand("all", FR_REPORT_JOB, name, sizeof(name)) && !strcmp(name, "all"));
    CHECK(!fr_report_expand("longer than it may be", 1, small, sizeof(small)));
}

int main(void)
{
    fr_abi_rows_fill();
    setenv("FABRAIL_REPORT", "/nowhere/at/all/%r.json", 1);
    const struct fr_report_buffer early = buffer_of(FR_PATH_HOST, NULL);
    fr_report_buffer(&early); // before anybody has asked for a report
    fr_report_call_begin(FR_FN_MPI_Recv, 1, NULL);
    fr_report_call_end();
    CHECK(!fr_report_on && !fr_report_slabs());
    fr_report_start();
    CHECK(fr_report_on);
    test_threads();
    test_posted();
    test_sampled_time();
    test_left_span();
    test_full();
    test_outside();
    test_places();
    test_text();
    test_special();
    test_first_error();
    test_names();
    return check_result();
}
