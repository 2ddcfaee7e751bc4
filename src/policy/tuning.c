// SPDX-License-Identifier: BSD-3-Clause
// The text of the tuning file, and the choice among the known values of a size.
#include "config.h"

#include "fabrail/policy/tuning.h"

#include <string.h>

#define MIB ((size_t)1 << 20)

// Names in the tuning file, and defaults. These are from an H200, where copy engines fetched single
// messages faster at each size.
//
// The last two are from published figures. The CPU reads 1 KiB in 2.8 us by GDRCopy's README, and
// in 5.5 us by UCX's model (1.4 us and 250 MB/s). It writes 8 KiB in 0.8 and 1.6 us, and reads a
// word back in 1.7 us at most. The driver's shortest copies were measured at 6.6 and 5.7 us.
static const struct {
    const char *name;
    size_t default_bytes;
} sizes[FR_SIZE_COUNT] = {
    [FR_SIZE_EXCHANGE_CE] = {"exchange_ce_min", 4 * MIB},
    [FR_SIZE_SPREAD_CE] = {"spread_ce_min", 4 * MIB},
    [FR_SIZE_GATHER_CE] = {"gather_ce_min", 4 * MIB},
    [FR_SIZE_MESSAGE_CE] = {"message_ce_min", 0},
    [FR_SIZE_COPY_CE] = {"copy_ce_min", 4 * MIB},
    [FR_SIZE_BCAST_SPLIT] = {"bcast_split_min", 8 * MIB},
    [FR_SIZE_REDUCE_SHARE] = {"reduce_share_min", 4096},
    [FR_SIZE_PACK_FIRST] = {"pack_first_min", 2 * MIB},
    [FR_SIZE_RAIL] = {"rail_min", MIB / 4},
    [FR_SIZE_COMBINE] = {"combine_min", MIB / 8},
    [FR_SIZE_CPU_READ] = {"cpu_read_max", 1024},
    [FR_SIZE_CPU_WRITE] = {"cpu_write_max", 8192},
};

const struct fr_policy_tuning fr_policy_untuned = {
    {[0 ... FR_SIZE_COUNT - 1] = FR_BYTES_AUTO},
};

const char *fr_policy_tuning_name(enum fr_policy_size size)
{
    return sizes[size].name;
}

struct fr_policy_crossover fr_policy_crossover(enum fr_policy_size size, size_t set_bytes,
                                               const struct fr_policy_tuning *measured)
{
    if (set_bytes != FR_BYTES_AUTO)
        return (struct fr_policy_crossover){set_bytes, "as set"};
    if (measured->bytes[size] != FR_BYTES_AUTO)
        return (struct fr_policy_crossover){measured->bytes[size], "as measured"};
    return (struct fr_policy_crossover){sizes[size].default_bytes, "by default"};
}

// Part of the text, without blanks at its ends.
struct span {
    const char *text;
    size_t bytes;
};

struct reader {
    struct fr_policy_tuning_file *file;
    const char *machine;
    bool in_section; // in a section of any machine
    bool in_own;
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static struct span trim(const char *text, size_t bytes)
{
    while (bytes > 0 && is_blank(*text)) {
        text++;
        bytes--;
    }
    while (bytes > 0 && is_blank(text[bytes - 1]))
        bytes--;
    return (struct span){text, bytes};
}

static bool equals(struct span span, const char *text)
{
    return strlen(text) == span.bytes && memcmp(span.text, text, span.bytes) == 0;
}

static enum fr_policy_size size_named(struct span name)
{
    int size = 0;
    while (size < FR_SIZE_COUNT && !equals(name, sizes[size].name))
        size++;
    return (enum fr_policy_size)size;
}

// The functions below return what is wrong, or NULL.

static const char *read_heading(struct reader *reader, struct span line)
{
    if (line.text[line.bytes - 1] != ']')
        return "the name of a section does not end in ]";
    struct span name = trim(line.text + 1, line.bytes - 2);
    if (name.bytes == 0)
        return "a section has no name";
    reader->in_section = true;
    reader->in_own = equals(name, reader->machine);
    if (reader->in_own && reader->file->found)
        return "this machine has two sections";
    reader->file->found = reader->file->found || reader->in_own;
    return NULL;
}

static const char *read_size(struct reader *reader, enum fr_policy_size size, struct span value)
{
    char text[FR_BYTES_TEXT + 8];
    size_t bytes = 0;
    if (value.bytes >= sizeof(text))
        return "a value is not a size";
    memcpy(text, value.text, value.bytes);
    text[value.bytes] = '\0';
    if (!fr_core_bytes_parse(text, &bytes) || bytes == FR_BYTES_AUTO)
        return "a value is not a size";
    if (!reader->in_own)
        return NULL;
    size_t *known = &reader->file->tuning.bytes[size];
    if (*known != FR_BYTES_AUTO)
        return "a value stands twice in the section of this machine";
    *known = bytes;
    return NULL;
}

static const char *read_value(struct reader *reader, struct span line)
{
    const char *equal = memchr(line.text, '=', line.bytes);
    if (equal == NULL)
        return "a line is neither a section nor a value";
    if (!reader->in_section)
        return "a value stands before the first section";
    struct span name = trim(line.text, (size_t)(equal - line.text));
    if (name.bytes == 0)
        return "a value has no name";
    struct span value = trim(equal + 1, line.bytes - (size_t)(equal + 1 - line.text));
    enum fr_policy_size size = size_named(name);
    return size < FR_SIZE_COUNT ? read_size(reader, size, value) : NULL;
}

enum fr_policy_size fr_policy_tuning_line(const char *text, size_t bytes)
{
    const char *equal = memchr(text, '=', bytes);
    return equal != NULL ? size_named(trim(text, (size_t)(equal - text))) : FR_SIZE_COUNT;
}

// Reads the line at [begin, end) of the text, its newline included.
static const char *read_line(struct reader *reader, const char *text, size_t begin, size_t end)
{
    struct fr_policy_tuning_file *file = reader->file;
    size_t bytes = end - begin;
    if (memchr(text + begin, '\0', bytes) != NULL)
        return "it is not text";
    if (text[end - 1] == '\n')
        bytes--;
    struct span line = trim(text + begin, bytes);
    if (line.bytes == 0 || *line.text == '#')
        return NULL;
    bool is_heading = *line.text == '[';
    const char *fault = is_heading ? read_heading(reader, line) : read_value(reader, line);
    if (fault == NULL && reader->in_own) {
        file->begin = is_heading ? begin : file->begin;
        file->end = end;
    }
    return fault;
}

enum fr_status fr_policy_tuning_read(const char *text, size_t bytes, const char *machine,
                                     struct fr_policy_tuning_file *file)
{
    struct reader reader = {.file = file, .machine = machine};
    memset(file, 0, sizeof(*file));
    file->tuning = fr_policy_untuned;
    unsigned line = 1;
    for (size_t begin = 0, end = 0; begin < bytes; begin = end, line++) {
        const char *newline = memchr(text + begin, '\n', bytes - begin);
        end = newline != NULL ? (size_t)(newline + 1 - text) : bytes;
        file->fault = read_line(&reader, text, begin, end);
        if (file->fault != NULL) {
            file->fault_line = line;
            file->found = false;
            file->tuning = fr_policy_untuned;
            return FR_ERR_INVALID;
        }
    }
    return file->found ? FR_OK : FR_ERR_NOT_FOUND;
}
