// SPDX-License-Identifier: BSD-3-Clause
// The settings: one table of environment variables, from which values, warnings and the manual page
// come. The environment is read here and nowhere else. Nothing in it ever stops the job.
#include "config.h"

#include "fabrail/core.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

extern char **environ;

#define PREFIX "FABRAIL_"
enum { PREFIX_LENGTH = sizeof(PREFIX) - 1 };

enum type {
    BOOL,
    TRISTATE,
    CHOICE, // one of `values`, stored as its index
    LIST,   // some of `values`, stored as the bits of their indices
    BYTES,
    TEXT
};

struct row {
    const char *name;
    enum type type;
    size_t offset; // in struct fr_settings
    const char *default_text;
    const char *values; // words, or a range and perhaps "auto" before it, as the manual has them
    const char *help;   // sentences for the manual page, in roff
    bool alike;         // all ranks of a job must have it alike
};

_Static_assert(sizeof(enum fr_log_level) == sizeof(unsigned), "choices are stored as unsigned");
_Static_assert(FR_RAILS_MAX == 16, "the range of RAIL_MAX");

#define AT(member) offsetof(struct fr_settings, member)
#define ANY_BYTES  "0 to 16T"

static const struct row rows[] = {
#include "settings.def"
};

// Returns the index of a word among `words`, which ", " parts, or -1.
static int find_word(const char *words, const char *word, size_t length)
{
    for (int index = 0;; index++) {
        size_t size = strcspn(words, ",");
        if (size == length && strncasecmp(words, word, length) == 0)
            return index;
        if (words[size] == '\0')
            return -1;
        words += size + 2;
    }
}

static bool parse_bool(const char *text, bool *value)
{
    int index = find_word("yes, no, 1, 0, true, false, on, off, y, n", text, strlen(text));
    if (index >= 0)
        *value = index % 2 == 0;
    return index >= 0;
}

static bool parse_list(const char *values, const char *text, unsigned *bits)
{
    for (;;) {
        size_t length = strcspn(text, ",");
        int index = find_word(values, text, length);
        if (index < 0)
            return false;
        *bits |= 1u << index;
        if (text[length] == '\0')
            return true;
        text += length + 1;
    }
}

static bool parse_unsigned(const struct row *row, const char *text, unsigned *value)
{
    bool yes;
    if (row->type == LIST)
        return parse_list(row->values, text, value);
    if (row->type == TRISTATE && parse_bool(text, &yes)) {
        *value = yes ? FR_YES : FR_NO;
        return true;
    }
    int index = find_word(row->values, text, strlen(text));
    *value = (unsigned)index;
    return index >= 0;
}

static bool parse_size(const char *values, const char *text, size_t *bytes)
{
    static const char automatic[] = "auto, ";
    char low[FR_BYTES_TEXT];
    size_t least = 0, most = 0;
    if (strncmp(values, automatic, sizeof(automatic) - 1) == 0) {
        values += sizeof(automatic) - 1;
        if (strcasecmp(text, "auto") == 0) {
            *bytes = FR_BYTES_AUTO;
            return true;
        }
    }
    snprintf(low, sizeof(low), "%.*s", (int)strcspn(values, " "), values);
    return fr_core_bytes_parse(low, &least) &&
           fr_core_bytes_parse(strrchr(values, ' ') + 1, &most) &&
           fr_core_bytes_parse(text, bytes) && *bytes >= least && *bytes <= most;
}

// Stores `text` as the value of `row`. Leaves the setting alone and returns false if it is no
// value.
static bool apply(const struct row *row, const char *text, struct fr_settings *settings)
{
    void *member = (char *)settings + row->offset;
    unsigned value = 0;
    size_t bytes = 0;

    switch (row->type) {
    case TEXT:
        *(const char **)member = text;
        return true;
    case BYTES:
        if (!parse_size(row->values, text, &bytes))
            return false;
        *(size_t *)member = bytes;
        return true;
    case BOOL:
        return parse_bool(text, member);
    default:
        if (!parse_unsigned(row, text, &value))
            return false;
        memcpy(member, &value, sizeof(value));
        return true;
    }
}

struct complaints {
    fr_core_complain_fn complain;
    void *cookie;
    unsigned count;
};

// Returns the unit of numbers that are no bytes, which their help begins with.
static const char *unit_of(const struct row *row)
{
    static const char seconds[] = "Seconds ";
    return strncmp(row->help, seconds, sizeof(seconds) - 1) == 0 ? " seconds" : "";
}

static void complain_value(struct complaints *complaints, const struct row *row, const char *value)
{
    char text[400];
    snprintf(text, sizeof(text), "%s has no value \"%.64s\"; it takes %s%s; using the default %s",
             row->name, value, row->values,
             row->type == LIST ? " (one or more, with commas)" : unit_of(row), row->default_text);
    complaints->count++;
    if (complaints->complain != NULL)
        complaints->complain(complaints->cookie, text);
}

static size_t min_of(size_t a, size_t b)
{
    return a < b ? a : b;
}

enum { DISTANCE_CHARS = 48 };

// Returns the number of edits (insert, delete, replace one character) that turn `a` into `b`. Looks
// at no more than DISTANCE_CHARS characters of each.
static size_t edit_distance(const char *a, size_t a_length, const char *b)
{
    size_t b_length = min_of(strlen(b), DISTANCE_CHARS);
    size_t line[DISTANCE_CHARS + 1];
    a_length = min_of(a_length, DISTANCE_CHARS);
    for (size_t j = 0; j <= b_length; j++)
        line[j] = j;
    for (size_t i = 1; i <= a_length; i++) {
        size_t diagonal = line[0];
        line[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = line[j];
            line[j] = min_of(replaced, min_of(line[j], line[j - 1]) + 1);
        }
    }
    return line[b_length];
}

static void complain_name(struct complaints *complaints, const char *name, size_t length)
{
    const char *nearest = rows[0].name;
    size_t nearest_distance = SIZE_MAX;
    for (size_t r = 0; r < FR_ARRAY_LENGTH(rows); r++) {
        size_t distance = edit_distance(name, length, rows[r].name);
        if (distance < nearest_distance) {
            nearest_distance = distance;
            nearest = rows[r].name;
        }
    }
    char text[256];
    snprintf(text, sizeof(text), "%.*s is not a setting and has no effect; the nearest is %s",
             (int)min_of(length, 64), name, nearest);
    complaints->count++;
    if (complaints->complain != NULL)
        complaints->complain(complaints->cookie, text);
}

bool fr_core_settings_of_site(const char *name, size_t length)
{
    static const char *const words[] = {"ROOT", "DIR",     "HOME", "PREFIX",  "BASE", "VERSION",
                                        "LIB",  "LIBRARY", "INC",  "INCLUDE", "BIN",  "MAN",
                                        "DOC",  "SRC",     "PKG",  "MODULE",  "ARCH"};
    const char *last = name + length;
    while (last > name && last[-1] != '_')
        last--;
    size_t left = length - (size_t)(last - name);
    for (size_t i = 0; i < FR_ARRAY_LENGTH(words); i++) {
        if (strlen(words[i]) == left && memcmp(words[i], last, left) == 0)
            return true;
    }
    return false;
}

// Returns the row that the variable `entry` ("NAME=value") sets, NULL for none.
static const struct row *find_row(const char *entry, size_t name_length)
{
    for (size_t r = 0; r < FR_ARRAY_LENGTH(rows); r++) {
        if (strlen(rows[r].name) == name_length && memcmp(rows[r].name, entry, name_length) == 0)
            return &rows[r];
    }
    return NULL;
}

// Returns whether `entry` of an environment sets a variable of Fabrail's, and the name's length.
static bool is_own(const char *entry, size_t *length)
{
    *length = strcspn(entry, "=");
    return strncmp(entry, PREFIX, PREFIX_LENGTH) == 0 && entry[*length] == '=';
}

// Stores the values that an environment sets, and puts bad ones into `bad_values`. Where a name
// stands twice the first counts, as for getenv. An empty value counts as none, except for texts.
static void apply_environment(char *const *environment, struct fr_settings *settings,
                              const char *bad_values[FR_ARRAY_LENGTH(rows)])
{
    bool seen[FR_ARRAY_LENGTH(rows)] = {0};
    for (; *environment != NULL; environment++) {
        size_t length = 0;
        const struct row *row =
            is_own(*environment, &length) ? find_row(*environment, length) : NULL;
        if (row == NULL || seen[row - rows])
            continue;
        const char *value = *environment + length + 1;
        seen[row - rows] = true;
        if ((*value != '\0' || row->type == TEXT) && !apply(row, value, settings))
            bad_values[row - rows] = value;
    }
}

unsigned fr_core_settings_parse(char *const *environment, struct fr_settings *settings,
                                fr_core_complain_fn complain, void *cookie)
{
    // All values come first, then the complaints, so that `complain` can look at settings such as
    // the log level.
    static char *const empty[] = {NULL};
    const char *bad_values[FR_ARRAY_LENGTH(rows)] = {0};
    struct complaints complaints = {complain, cookie, 0};
    if (environment == NULL) // after clearenv
        environment = empty;

    memset(settings, 0, sizeof(*settings));
    for (size_t r = 0; r < FR_ARRAY_LENGTH(rows); r++)
        (void)apply(&rows[r], rows[r].default_text, settings);
    apply_environment(environment, settings, bad_values);

    for (size_t r = 0; r < FR_ARRAY_LENGTH(rows); r++) {
        if (bad_values[r] != NULL)
            complain_value(&complaints, &rows[r], bad_values[r]);
    }
    for (; *environment != NULL; environment++) {
        size_t length = 0;
        if (is_own(*environment, &length) && find_row(*environment, length) == NULL &&
            !fr_core_settings_of_site(*environment, length))
            complain_name(&complaints, *environment, length);
    }
    return complaints.count;
}

static struct fr_settings process_settings;
static pthread_once_t process_once = PTHREAD_ONCE_INIT;
const struct fr_settings *_Atomic fr_core_settings_ready;

static void complain_to_log(void *cookie, const char *text)
{
    const struct fr_settings *settings = cookie;
    fr_core_log_level = settings->log;
    if (!settings->disable && fr_core_job_process() == 0) // switched off means silent as well
        fr_warn("%s", text);
}

static void keep_text(const struct row *row)
{
    const char **member = (const char **)((char *)&process_settings + row->offset);
    const char *copy = strdup(*member);
    if (copy == NULL)
        fr_warn("no memory for the value of %s, which is taken to be empty", row->name);
    *member = copy != NULL ? copy : "";
}

// The text that the environment gave each row, NULL for nothing that is understood.
static const char *given[FR_ARRAY_LENGTH(rows)];

static void keep_given(void)
{
    struct fr_settings scratch = {.log = FR_LOG_WARN};
    for (size_t r = 0; r < FR_ARRAY_LENGTH(rows); r++) {
        const char *value = getenv(rows[r].name);
        bool is_empty = value != NULL && *value == '\0' && rows[r].type != TEXT;
        if (value != NULL && !is_empty && apply(&rows[r], value, &scratch))
            given[r] = strdup(value);
    }
}

bool fr_core_setting_at(size_t index, struct fr_core_setting *setting)
{
    if (index >= FR_ARRAY_LENGTH(rows))
        return false;
    (void)fr_core_settings();
    const struct row *row = &rows[index];
    *setting = (struct fr_core_setting){
        .name = row->name,
        .value = given[index] != NULL ? given[index] : row->default_text,
        .default_text = row->default_text,
        .values = row->values,
        .help = row->help,
        .is_given = given[index] != NULL,
    };
    return true;
}

static FR_TLS bool is_reading;

static void read_process_settings(void)
{
    is_reading = true;
    (void)fr_core_settings_parse(environ, &process_settings, complain_to_log, &process_settings);
    fr_core_log_level = process_settings.log;
    // The application may change its environment later, so strings are copied.
    for (size_t r = 0; r < FR_ARRAY_LENGTH(rows); r++) {
        if (rows[r].type == TEXT)
            keep_text(&rows[r]);
    }
    keep_given();
    atomic_store_explicit(&fr_core_settings_ready, &process_settings, memory_order_release);
    is_reading = false;
}

bool fr_core_settings_are_read_here(void)
{
    return is_reading;
}

const struct fr_settings *fr_core_settings_read(void)
{
    pthread_once(&process_once, read_process_settings);
    return &process_settings;
}

bool fr_core_may_sync(void)
{
    const struct fr_settings *settings =
        atomic_load_explicit(&fr_core_settings_ready, memory_order_acquire);
    if (settings != NULL)
        return settings->sync != FR_SYNC_OFF;
    const char *value = getenv(PREFIX "SYNC");
    return value != NULL && *value != '\0' && strcmp(value, "off") != 0;
}

// Writes the value of a switch, a choice or a list. No other rows have to be alike.
static size_t write_value(const struct row *row, const void *member, char *text, size_t room)
{
    unsigned bits = 0;
    size_t used = 0;
    memcpy(&bits, member, row->type == BOOL ? sizeof(bool) : sizeof(bits));
    if (row->type == BOOL)
        bits = bits ? 0 : 1; // the index in "yes, no"
    if (row->type != LIST)
        bits = 1u << bits;
    for (const char *word = row->values; bits != 0 && used < room; bits >>= 1) {
        int length = (int)strcspn(word, ",");
        if (bits & 1)
            used +=
                (size_t)snprintf(text + used, room - used, used ? ",%.*s" : "%.*s", length, word);
        word += length + 2;
    }
    return min_of(used, room);
}

const char *fr_core_settings_alike(const struct fr_settings *settings, char text[FR_ALIKE_BYTES])
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t r = 0; r < FR_ARRAY_LENGTH(rows); r++) {
        if (!rows[r].alike)
            continue;
        used += (size_t)snprintf(text + used, FR_ALIKE_BYTES - used, "%s%s=", used ? ";" : "",
                                 rows[r].name);
        used += write_value(&rows[r], (const char *)settings + rows[r].offset, text + used,
                            FR_ALIKE_BYTES - used);
    }
    return text;
}
