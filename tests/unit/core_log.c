// SPDX-License-Identifier: BSD-3-Clause
// The log: the form of a line, its limits, one write a line from many threads, and errno kept. Also
// the texts of core and the hash table without memory.
#include "config.h"

#include "fabrail/core.h"

#include "check.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

// The test's own standard error, for its failures, while the log goes to a pipe.
static int log_pipe[2];
static int kept_stderr;

static bool divert(void)
{
    kept_stderr = dup(STDERR_FILENO);
    return kept_stderr >= 0 && pipe(log_pipe) == 0 && dup2(log_pipe[1], STDERR_FILENO) >= 0;
}

static void restore(void)
{
    dup2(kept_stderr, STDERR_FILENO);
    close(kept_stderr);
    close(log_pipe[1]);
}

// Reads what the log has written since; at most a pipe's atomic write, so one read gets a line.
static const char *logged(void)
{
    static char text[65536];
    char mark = '\1';
    if (write(log_pipe[1], &mark, 1) != 1)
        return "";
    size_t length = 0;
    while (length < sizeof(text) - 1) {
        ssize_t got = read(log_pipe[0], text + length, sizeof(text) - 1 - length);
        if (got <= 0)
            break;
        length += (size_t)got;
        if (text[length - 1] == mark) {
            length--;
            break;
        }
    }
    text[length] = '\0';
    return text;
}

static const char *lines[8];

static void write_samples(void)
{
    static char texts[8][2048];
    char longer[3000];
    memset(longer, 'x', sizeof(longer));
    longer[sizeof(longer) - 1] = '\0';
    unsigned n = 0;

#define SAMPLE(call)                                                                               \
    do {                                                                                           \
        call;                                                                                      \
        snprintf(texts[n], sizeof(texts[n]), "%s", logged());                                      \
        lines[n] = texts[n];                                                                       \
        n++;                                                                                       \
    } while (0)
    SAMPLE(fr_warn("text %d", 7));
    fr_core_log_set_rank(3);
    SAMPLE(fr_error("text"));
    SAMPLE(fr_info("not at this level"));
    SAMPLE(fr_warn("a\nb\033c"));
    SAMPLE(fr_warn("%s", longer));
    SAMPLE(for (int i = 0; i < 3; i++) fr_warn_once("once"));
    fr_core_log_set_rank(-1);
    errno = ENOENT;
    SAMPLE(fr_warn("%m"));
    fr_core_log_level = FR_LOG_DEBUG;
    SAMPLE(fr_debug("now"));
    fr_core_log_level = FR_LOG_WARN;
}

static void test_lines(void)
{
    if (!divert()) {
        CHECK(false, "no pipe");
        return;
    }
    errno = 0;
    write_samples();
    int kept_errno = errno;
    restore();

    CHECK(strcmp(lines[0], "fabrail: warn: text 7\n") == 0, "%s", lines[0]);
    CHECK(strcmp(lines[1], "fabrail[3]: error: text\n") == 0, "%s", lines[1]);
    CHECK(strcmp(lines[2], "") == 0, "%s", lines[2]);
    CHECK(strcmp(lines[3], "fabrail[3]: warn: a?b?c\n") == 0, "%s", lines[3]);
    CHECK(strlen(lines[4]) == 1024, "%zu", strlen(lines[4]));
    CHECK(strcmp(lines[4] + 1024 - 6, "xx...\n") == 0, "%s", lines[4] + 1000);
    CHECK(strcmp(lines[5], "fabrail[3]: warn: once\n") == 0, "%s", lines[5]);
    CHECK(strcmp(lines[6], "fabrail: warn: No such file or directory\n") == 0, "%s", lines[6]);
    CHECK(strcmp(lines[7], "fabrail: debug: now\n") == 0, "%s", lines[7]);
    CHECK(kept_errno == ENOENT, "%d", kept_errno);
}

enum { THREADS = 4, LINES = 60 };

static void *write_many(void *cookie)
{
    for (int i = 0; i < LINES; i++)
        fr_warn("%s %03d %0150d", (const char *)cookie, i, i);
    return NULL;
}

static void test_threads(void)
{
    static char names[THREADS][2] = {"a", "b", "c", "d"};
    pthread_t threads[THREADS];
    if (!divert()) {
        CHECK(false, "no pipe");
        return;
    }
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, write_many, names[i]);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    const char *text = logged();
    restore();

    int next[THREADS] = {0};
    int lines_seen = 0;
    for (const char *line = text; *line != '\0'; lines_seen++) {
        char name = 0;
        int first = -1, second = -2;
        int fields = sscanf(line, "fabrail: warn: %c %d %d\n", &name, &first, &second);
        int thread = name - 'a';
        CHECK(fields == 3 && first == second, "%.80s", line);
        if (fields == 3 && thread >= 0 && thread < THREADS)
            CHECK(next[thread]++ == first, "%.80s", line);
        const char *end = strchr(line, '\n');
        if (end == NULL)
            break;
        line = end + 1;
    }
    CHECK(lines_seen == THREADS * LINES, "%d lines", lines_seen);
}

static void test_texts(void)
{
    char text[FR_BYTES_TEXT];
    CHECK(strcmp(fr_core_bytes_text(0, text), "0") == 0);
    CHECK(strcmp(fr_core_bytes_text(1023, text), "1023") == 0);
    CHECK(strcmp(fr_core_bytes_text(1024, text), "1K") == 0);
    CHECK(strcmp(fr_core_bytes_text(1025, text), "1025") == 0);
    CHECK(strcmp(fr_core_bytes_text((size_t)3 << 29, text), "1536M") == 0);
    CHECK(strcmp(fr_core_bytes_text((size_t)1 << 63, text), "8E") == 0);
    CHECK(strcmp(fr_core_bytes_text(SIZE_MAX, text), "18446744073709551615") == 0);
    for (int status = FR_OK; status <= FR_ERR_EPOCH; status++)
        CHECK(strcmp(fr_core_status_text((enum fr_status)status), "unknown status") != 0);
    CHECK(strcmp(fr_core_status_text((enum fr_status)(FR_ERR_EPOCH + 1)), "unknown status") == 0);
}

int main(void)
{
    test_lines();
    test_threads();
    test_texts();
    return check_result();
}
