// SPDX-License-Identifier: BSD-3-Clause
// Writing of the tuning file. Hosts of several clusters can share it, and run the command at once:
// the new file is made under a name that only one of them can create, from what the file holds at
// that time, and then takes the place of the old one.
#include "config.h"

#include "tune.h"

#include "command.h"
#include "fabrail/core/files.h"
#include "fabrail/core/time.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WAITS = 100, WAIT_NS = 100 * 1000 * 1000 };

static const char preface[] =
    "# Sizes at which Fabrail goes from one way of moving bytes to another: a "
    "section for\n# each kind of machine, written by fabrail tune.\n";
// The beginnings of comments of measurements.
static const char of_gpus[] = "# fabrail tune ", of_rails[] = "# fabrail tune --rails";

// The text of the file, empty for none yet. The caller frees it.
struct old_file {
    char *text;
    size_t bytes;
    struct fr_policy_tuning_file parsed;
};

static bool read_old(const char *path, const char *machine, struct old_file *old)
{
    memset(old, 0, sizeof(*old));
    enum fr_status status = fr_core_file_read(path, FR_TUNING_MAX_BYTES, &old->text, &old->bytes);
    if (status == FR_ERR_NOT_FOUND)
        return true;
    if (status != FR_OK)
        return fr_tool_complain("%s cannot be read: %s", path, strerror(errno));
    status = fr_policy_tuning_read(old->text, old->bytes, machine, &old->parsed);
    if (status != FR_ERR_INVALID)
        return true;
    free(old->text);
    return fr_tool_complain("%s is left as it is, for line %u is broken: %s", path,
                            old->parsed.fault_line, old->parsed.fault);
}

bool fr_tune_file_check(const char *path, const char *machine)
{
    struct old_file old;
    if (!read_old(path, machine, &old))
        return false;
    free(old.text);
    return true;
}

bool fr_tune_file_make_folders(const char *path)
{
    char folder[FR_FILE_NAME_BYTES];
    snprintf(folder, sizeof(folder), "%s", path);
    for (char *slash = strchr(folder + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(folder, 0700) != 0 && errno != EEXIST && errno != EROFS && errno != EACCES)
            return fr_tool_complain("%s cannot be made: %s", folder, strerror(errno));
        *slash = '/';
    }
    return true;
}

// Creates the new file, which nobody else then can.
static int create(const char *path)
{
    for (int i = 0; i < WAITS; i++) {
        int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file >= 0)
            return file;
        if (errno != EEXIST) {
            fr_tool_complain("%s cannot be made: %s", path, strerror(errno));
            return -1;
        }
        fr_time_sleep(WAIT_NS);
    }
    fr_tool_complain("%s is there: another fabrail tune is writing, or has been ended while it "
                     "was; in that case remove it",
                     path);
    return -1;
}

static bool begins(const char *line, size_t bytes, const char *with)
{
    return bytes >= strlen(with) && memcmp(line, with, strlen(with)) == 0;
}

// Returns whether a line of the old section gives way: its heading, the same sizes, and their
// comment.
static bool is_replaced(const struct fr_tune_section *section, const char *line, size_t bytes)
{
    enum fr_policy_size size = fr_policy_tuning_line(line, bytes);
    size_t blanks = 0;
    while (blanks < bytes && (line[blanks] == ' ' || line[blanks] == '\t'))
        blanks++;
    if (blanks < bytes && line[blanks] == '[')
        return true;
    if (begins(line, bytes, of_gpus))
        return begins(line, bytes, of_rails) == section->of_rails;
    return size < FR_SIZE_COUNT && section->tuning.bytes[size] != FR_BYTES_AUTO;
}

static void put_section(FILE *stream, const struct old_file *old,
                        const struct fr_tune_section *section)
{
    fprintf(stream, "[%s]\n%s%s\n", section->machine, section->of_rails ? of_rails : of_gpus,
            section->comment);
    for (int i = 0; i < FR_SIZE_COUNT; i++) {
        if (section->tuning.bytes[i] != FR_BYTES_AUTO)
            fprintf(stream, "%s = %zu\n", fr_policy_tuning_name((enum fr_policy_size)i),
                    section->tuning.bytes[i]);
    }
    size_t end = old->parsed.found ? old->parsed.end : 0;
    for (size_t at = old->parsed.begin, next; at < end; at = next) {
        const char *newline = memchr(old->text + at, '\n', end - at);
        next = newline != NULL ? (size_t)(newline + 1 - old->text) : end;
        size_t bytes = next - at - (newline != NULL);
        if (!is_replaced(section, old->text + at, bytes))
            fprintf(stream, "%.*s\n", (int)bytes, old->text + at);
    }
}

static void put_all(FILE *stream, const struct old_file *old, const struct fr_tune_section *section)
{
    size_t begin = old->parsed.found ? old->parsed.begin : old->bytes;
    size_t end = old->parsed.found ? old->parsed.end : old->bytes;
    if (old->bytes == 0)
        fputs(preface, stream);
    if (begin > 0 && fwrite(old->text, 1, begin, stream) == begin && old->text[begin - 1] != '\n')
        fputc('\n', stream);
    if (!old->parsed.found)
        fputc('\n', stream); // a blank line between sections
    put_section(stream, old, section);
    if (old->bytes > end)
        fwrite(old->text + end, 1, old->bytes - end, stream);
}

// Writes the new file and closes it. The old one's permissions go on.
static bool write_new(int file, const char *path, const struct old_file *old,
                      const struct fr_tune_section *section)
{
    struct stat facts;
    if (stat(path, &facts) == 0)
        (void)!fchmod(file, facts.st_mode & 0777);
    FILE *stream = fdopen(file, "w");
    if (stream == NULL) {
        close(file);
        return false;
    }
    put_all(stream, old, section);
    bool written = fflush(stream) == 0 && !ferror(stream) && fsync(file) == 0;
    return fclose(stream) == 0 && written;
}

// With the name of the new file held.
static bool replace(int file, const char *path, const char *new_path,
                    const struct fr_tune_section *section)
{
    struct old_file old;
    if (!read_old(path, section->machine, &old)) {
        close(file);
        return false;
    }
    bool done = write_new(file, path, &old, section) && rename(new_path, path) == 0;
    free(old.text);
    return done || fr_tool_complain("%s cannot be written: %s", path, strerror(errno));
}

bool fr_tune_file_show(const char *path, const struct fr_tune_section *section)
{
    struct old_file old;
    if (!read_old(path, section->machine, &old))
        return false;
    put_section(stdout, &old, section);
    free(old.text);
    return true;
}

bool fr_tune_file_write(const char *path, const struct fr_tune_section *section)
{
    char resolved[PATH_MAX], new_path[PATH_MAX + 8];
    if (realpath(path, resolved) != NULL) // behind a link, the file itself
        path = resolved;
    if (snprintf(new_path, sizeof(new_path), "%s.new", path) >= (int)sizeof(new_path))
        return fr_tool_complain("%s is too long", path);
    int file = create(new_path);
    if (file < 0)
        return false;
    bool done = replace(file, path, new_path, section);
    if (!done)
        unlink(new_path);
    return done;
}
