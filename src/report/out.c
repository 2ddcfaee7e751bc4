// SPDX-License-Identifier: BSD-3-Clause
// Text written to a file without stdio and malloc, since the process may be dying in either. The
// file gets its name when it is whole.
#include "config.h"

#include "report/report_int.h"

#include "report/out.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void flush(struct fr_report_out *out)
{
    size_t done = 0;
    while (done < out->used && !out->failed) {
        ssize_t written = write(out->fd, out->buffer + done, out->used - done);
        if (written < 0 && errno != EINTR)
            out->failed = errno;
        done += written > 0 ? (size_t)written : 0;
    }
    out->used = 0;
}

static void put_char(struct fr_report_out *out, char c)
{
    if (out->used == out->room)
        flush(out);
    out->buffer[out->used++] = c;
}

static void put_text(struct fr_report_out *out, const char *text)
{
    for (; *text; text++)
        put_char(out, *text);
}

static void put_number(struct fr_report_out *out, uint64_t number, unsigned digits)
{
    char text[24];
    size_t at = sizeof(text) - 1;
    text[at] = '\0';
    do {
        text[--at] = (char)('0' + number % 10);
        number /= 10;
        digits -= digits > 0;
    } while (number || digits);
    put_text(out, text + at);
}

static void put_quoted(struct fr_report_out *out, const char *text)
{
    put_char(out, '"');
    for (const unsigned char *at = (const unsigned char *)text; *at;) {
        unsigned length = fr_core_utf8_length((const char *)at);
        if (*at == '"' || *at == '\\')
            put_char(out, '\\');
        if (*at < 0x20 || length == 0)
            put_char(out, '?');
        for (unsigned i = 0; i < length && *at >= 0x20; i++)
            put_char(out, (char)at[i]);
        at += length ? length : 1;
    }
    put_char(out, '"');
}

static void put_int(struct fr_report_out *out, int number)
{
    if (number < 0)
        put_char(out, '-');
    put_number(out, number < 0 ? (uint64_t) - (int64_t)number : (uint64_t)number, 0);
}

static void put_microseconds(struct fr_report_out *out, uint64_t ns)
{
    put_number(out, ns / 1000, 0);
    put_char(out, '.');
    put_number(out, ns % 1000, 3);
}

void fr_report_put(struct fr_report_out *out, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    for (; *format; format++) {
        if (*format != '%') {
            put_char(out, *format);
            continue;
        }
        const char *text;
        switch (*++format) {
        case 's':
            put_text(out, va_arg(arguments, const char *));
            break;
        case 'q':
            text = va_arg(arguments, const char *);
            if (text)
                put_quoted(out, text);
            else
                put_text(out, "null");
            break;
        case 'u':
            put_number(out, va_arg(arguments, uint64_t), 0);
            break;
        case 't':
            put_microseconds(out, va_arg(arguments, uint64_t));
            break;
        case 'i':
            put_int(out, va_arg(arguments, int));
            break;
        case '[':
            put_char(out, '[');
            out->has_member = false;
            break;
        case ',':
            put_text(out, out->has_member ? ",\n    " : "\n    ");
            out->has_member = true;
            break;
        case ']':
            put_text(out, "\n  ]");
            break;
        default: // %b
            put_text(out, va_arg(arguments, int) ? "true" : "false");
        }
    }
    va_end(arguments);
}

// Writes the name of an unfinished file. Does without snprintf, for signal handlers.
static bool part_name(const char *name, char part[PATH_MAX])
{
    static const char suffix[] = ".part";
    size_t length = strlen(name);
    if (length + sizeof(suffix) > PATH_MAX) {
        errno = ENAMETOOLONG;
        return false;
    }
    memcpy(part, name, length);
    memcpy(part + length, suffix, sizeof(suffix));
    return true;
}

// Returns whether a name is that of a device or of a link to anything. Others use these, so no file
// may take their place.
static bool is_special(const char *name)
{
    struct stat found;
    return lstat(name, &found) == 0 && !S_ISREG(found.st_mode);
}

void fr_report_out_remove(const char *name)
{
    if (!is_special(name))
        unlink(name);
}

// Opens a device or the like. A pipe is opened only if it has a reader, who is then waited for. A
// file that /dev/stdout leads to is written to at its end.
static int open_special(const char *name)
{
    bool in_dev = strncmp(name, "/dev/", 5) == 0 || strncmp(name, "/proc/", 6) == 0;
    int flags = O_WRONLY | O_CREAT | O_CLOEXEC | (in_dev ? O_APPEND : O_TRUNC);
    int fd = open(name, flags | O_NONBLOCK, 0666);
    if (fd >= 0)
        (void)fcntl(fd, F_SETFL, flags & O_APPEND);
    return fd;
}

bool fr_report_out_open(struct fr_report_out *out, const char *name, char *buffer, size_t room)
{
    char part[PATH_MAX];
    *out = (struct fr_report_out){
        .fd = -1, .buffer = buffer, .room = room, .in_place = is_special(name)};
    if (!part_name(name, part))
        return false;
    out->fd = out->in_place ? open_special(name)
                            : open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    return out->fd >= 0;
}

bool fr_report_out_close(struct fr_report_out *out, const char *name)
{
    char part[PATH_MAX];
    flush(out);
    if (close(out->fd) && !out->failed)
        out->failed = errno;
    if (!out->in_place && part_name(name, part)) {
        if (!out->failed && rename(part, name))
            out->failed = errno;
        if (out->failed)
            unlink(part);
    }
    errno = out->failed;
    return !out->failed;
}

bool fr_report_expand(const char *pattern, int rank, char *name, size_t room)
{
    enum { LONGEST = 24 };
    struct fr_report_out out = {.fd = -1, .buffer = name, .room = room};
    bool marked = false;
    for (; *pattern && out.used + LONGEST < room; pattern++) {
        bool mark = pattern[0] == '%' && pattern[1] == 'r';
        if (!mark)
            put_char(&out, *pattern);
        else if (rank == FR_REPORT_JOB)
            put_text(&out, "job");
        else
            put_int(&out, rank);
        pattern += mark;
        marked = marked || mark;
    }
    if (!*pattern && !marked && rank != FR_REPORT_JOB && out.used + LONGEST < room)
        fr_report_put(&out, ".rank%i", rank);
    name[out.used] = '\0';
    return !*pattern;
}
