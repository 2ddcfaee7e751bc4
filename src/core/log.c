// SPDX-License-Identifier: BSD-3-Clause
// The log. A line is composed on the stack and leaves in one write. So lines of several threads and
// ranks that share a terminal do not mix. Logging also works wherever Fabrail is called from: under
// a lock of malloc, in a thread's signal handler, before main.
#include "config.h"

#include "fabrail/core.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

_Atomic enum fr_log_level fr_core_log_level = FR_LOG_WARN;

static _Atomic int log_rank = -1;

enum { LINE_BYTES = 1024 };

void fr_core_log_set_rank(int rank)
{
    atomic_store_explicit(&log_rank, rank, memory_order_relaxed);
}

static size_t compose_prefix(enum fr_log_level level, char *line)
{
    static const char *const names[] = {"error", "warn", "info", "debug", "trace"};
    const char *name = (size_t)level < FR_ARRAY_LENGTH(names) ? names[level] : "log";
    int rank = atomic_load_explicit(&log_rank, memory_order_relaxed);
    int used = rank < 0 ? snprintf(line, LINE_BYTES, "fabrail: %s: ", name)
                        : snprintf(line, LINE_BYTES, "fabrail[%d]: %s: ", rank, name);
    return (size_t)used;
}

// Keeps a line one line: texts can hold what users wrote in variables and file names.
static void replace_control_characters(char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c < 0x20 || c == 0x7f)
            text[i] = '?';
    }
}

static void write_line(const char *line, size_t length)
{
    // A second write happens only after one that was cut short or interrupted. A line that stderr
    // refuses (closed, full and nonblocking) is lost, since there is nowhere to complain.
    while (length > 0) {
        ssize_t written = write(STDERR_FILENO, line, length);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return;
        line += written;
        length -= (size_t)written;
    }
}

struct record {
    _Atomic bool whole;
    enum fr_log_level level;
    char text[256];
};
static struct record records[FR_LOG_RECORDED];

static void record(enum fr_log_level level, const char *text, size_t length)
{
    static _Atomic unsigned used;
    if (atomic_load_explicit(&used, memory_order_relaxed) >= FR_LOG_RECORDED)
        return;
    unsigned index = atomic_fetch_add_explicit(&used, 1, memory_order_relaxed);
    if (index >= FR_LOG_RECORDED)
        return;
    size_t room = sizeof(records[index].text) - 1;
    memcpy(records[index].text, text, length < room ? length : room);
    records[index].level = level;
    atomic_store_explicit(&records[index].whole, true, memory_order_release);
}

const char *fr_core_log_recorded(unsigned index, enum fr_log_level *level)
{
    if (index >= FR_LOG_RECORDED ||
        !atomic_load_explicit(&records[index].whole, memory_order_acquire))
        return NULL;
    *level = records[index].level;
    return records[index].text;
}

void fr_core_log_write(enum fr_log_level level, const char *format, ...)
{
    int saved_errno = errno;
    char line[LINE_BYTES];
    size_t length = compose_prefix(level, line);
    size_t room = sizeof(line) - length - 1; // the newline replaces the terminator

    va_list arguments;
    va_start(arguments, format);
    errno = saved_errno; // for %m
    int wanted = vsnprintf(line + length, room + 1, format, arguments);
    va_end(arguments);

    size_t text_length = wanted < 0 ? 0 : (size_t)wanted;
    if (text_length > room) {
        text_length = room;
        memcpy(line + length + room - 3, "...", 3);
    }
    replace_control_characters(line + length, text_length);
    if (level <= FR_LOG_WARN)
        record(level, line + length, text_length);
    length += text_length;
    line[length++] = '\n';
    write_line(line, length);
    errno = saved_errno;
}
