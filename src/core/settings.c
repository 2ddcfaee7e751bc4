// SPDX-License-Identifier: BSD-3-Clause
// The settings: one table of environment variables, from which values, warnings and the manual page
// come. The environment is read here and nowhere else. Nothing in it ever stops the job.
#include "config.h"

#include "fabrail/core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

extern char **environ;

#define PREFIX "FABRAIL_"

enum row_type {
    ROW_BOOL,
    ROW_TRISTATE,
    ROW_CHOICE,
    ROW_LIST,
    ROW_BYTES,
    ROW_AUTO_BYTES,
    ROW_STRING
};

// One value of a choice, or one member of a list. A list is the bits of its members.
struct choice {
    const char *name; // NULL ends an array of choices
    unsigned value;
};

struct row {
    const char *name; // without the prefix
    enum row_type type;
    size_t offset; // in struct fr_settings
    const char *default_text;
    const struct choice *choices;
    size_t min_bytes;
    size_t max_bytes;
    const char *help; // sentences for the manual page, in roff
    bool alike;       // all ranks of a job must have it alike
};

// Members of choices are stored through `unsigned`, booleans of any spelling through `bool`.
_Static_assert(sizeof(enum fr_log_level) == sizeof(unsigned), "choices are stored as unsigned");
_Static_assert(sizeof(enum fr_fabric_use) == sizeof(unsigned), "choices are stored as unsigned");
_Static_assert(sizeof(enum fr_rail_flush) == sizeof(unsigned), "choices are stored as unsigned");
_Static_assert(sizeof(enum fr_rail_verb) == sizeof(unsigned), "choices are stored as unsigned");
_Static_assert(sizeof(enum fr_rail_use) == sizeof(unsigned), "choices are stored as unsigned");
_Static_assert(sizeof(enum fr_progress_use) == sizeof(unsigned), "choices are stored as unsigned");
_Static_assert(sizeof(enum fr_sync_use) == sizeof(unsigned), "choices are stored as unsigned");
_Static_assert(sizeof(enum fr_tristate) == sizeof(unsigned), "choices are stored as unsigned");

static const struct choice bool_choices[] = {
    {"yes", true}, {"no", false},  {"1", true}, {"0", false}, {"true", true}, {"false", false},
    {"on", true},  {"off", false}, {"y", true}, {"n", false}, {NULL, 0},
};

static const struct choice log_choices[] = {
    {"error", FR_LOG_ERROR}, {"warn", FR_LOG_WARN},   {"info", FR_LOG_INFO},
    {"debug", FR_LOG_DEBUG}, {"trace", FR_LOG_TRACE}, {NULL, 0},
};

static const struct choice path_choices[] = {
    {"pass", FR_PATH_BIT_PASS},
    {"host", FR_PATH_BIT_HOST},
    {"fabric", FR_PATH_BIT_FABRIC},
    {"peer", FR_PATH_BIT_PEER},
    {NULL, 0},
};

static const struct choice fabric_choices[] = {
    {"auto", FR_FABRIC_AUTO},
    {"force", FR_FABRIC_FORCE},
    {"off", FR_FABRIC_OFF},
    {NULL, 0},
};

static const struct choice rail_choices[] = {
    {"auto", FR_RAIL_AUTO},
    {"force", FR_RAIL_FORCE},
    {"off", FR_RAIL_OFF},
    {NULL, 0},
};

static const struct choice verb_choices[] = {
    {"auto", FR_RAIL_VERB_AUTO},
    {"read", FR_RAIL_VERB_READ},
    {"write", FR_RAIL_VERB_WRITE},
    {NULL, 0},
};

static const struct choice progress_choices[] = {
    {"auto", FR_PROGRESS_AUTO},
    {"manual", FR_PROGRESS_MANUAL},
    {"thread", FR_PROGRESS_THREAD},
    {NULL, 0},
};

static const struct choice sync_choices[] = {
    {"off", FR_SYNC_OFF},
    {"check", FR_SYNC_CHECK},
    {"auto", FR_SYNC_AUTO},
    {NULL, 0},
};

static const struct choice flush_choices[] = {
    {"auto", FR_RAIL_FLUSH_AUTO},
    {"none", FR_RAIL_FLUSH_NONE},
    {"cuda", FR_RAIL_FLUSH_CUDA},
    {"read", FR_RAIL_FLUSH_READ},
    {"write-read", FR_RAIL_FLUSH_WRITE_READ},
    {NULL, 0},
};

#define MIB           ((size_t)1 << 20)
#define TIB           ((size_t)1 << 40)
#define AT(member)    .offset = offsetof(struct fr_settings, member)
#define RANGE(lo, hi) .min_bytes = (lo), .max_bytes = (hi)

static const struct row rows[] = {
    {"DISABLE", ROW_BOOL, AT(disable), .default_text = "no",
     .help = "Switches Fabrail off for the job: every MPI call goes straight to the MPI library."},
    {"LOG", ROW_CHOICE, AT(log), .default_text = "warn", .choices = log_choices,
     .help =
         "What is written to standard error: this level and all before it.\n"
         "Level trace shows nothing more than debug unless Fabrail was configured with tracing."},
    {"PATHS", ROW_LIST, AT(paths), .default_text = "pass,host,fabric,peer", .choices = path_choices,
     .help =
         "Ways that a message may take, separated by commas: the real MPI gets the pointer of\n"
         "the application as it is (pass), the message is staged through host memory (host) or\n"
         "through fabric-allocated device memory (fabric), or Fabrail moves it itself over NVLink\n"
         "(peer). Set it alike for all ranks of a job.",
     .alike = true},
    {"MPI_GPU_AWARE", ROW_TRISTATE, AT(mpi_gpu_aware), .default_text = "auto",
     .help = "Whether the MPI library takes pointers to device memory.\n"
             "With auto, the library itself is asked."},
    {"STAGING_MAX", ROW_BYTES, AT(staging_max_bytes), .default_text = "4G", RANGE(MIB, 16 * TIB),
     .help = "Bound on host memory for staging, for each process. Messages that wait for their\n"
             "receivers stay in their buffers beyond it. What has to be staged all the same is in\n"
             "ordinary memory then, which is not page-locked, so that its copies are slower."},
    {"STAGING_KEEP", ROW_BYTES, AT(staging_keep_bytes), .default_text = "4G", RANGE(0, 16 * TIB),
     .help = "Staging memory that stays cached while no message uses it."},
    {"FABRIC", ROW_CHOICE, AT(fabric), .default_text = "auto", .choices = fabric_choices,
     .help =
         "Whether a GPU-aware MPI library is given device buffers through a fabric-allocated\n"
         "workspace: where the communicator has multi-node NVLink (auto), on every\n"
         "communicator (force), or never (off). Any other MPI library's messages go through it\n"
         "to GPUs that multi-node NVLink reaches, unless it is off.\n"
         "Set it alike for all ranks of a job.",
     .alike = true},
    {"WORKSPACE_MAX", ROW_BYTES, AT(workspace_max_bytes), .default_text = "4G", RANGE(0, 16 * TIB),
     .help =
         "Bound on the device memory of that workspace, for each process and device. A message\n"
         "that does not fit is given to the MPI library as it is."},
    {"MAPPED_MAX", ROW_BYTES, AT(mapped_max_bytes), .default_text = "256G", RANGE(0, 16 * TIB),
     .help =
         "Bound on the device memory of other processes that a process has mapped at a time.\n"
         "Beyond it, what was used least recently is unmapped; messages whose memory does not fit\n"
         "at all take a slower way. With 0 nothing is mapped."},
    {"CLIQUE_MIN", ROW_BYTES, AT(clique_min_bytes), .default_text = "16K", RANGE(0, 16 * TIB),
     .help = "Size from which on a message to a GPU that only multi-node NVLink reaches goes that "
             "way.\n"
             "It is copied twice, which takes longer than staging where there is little to copy."},
    {"SHARED_GPU_MIN", ROW_BYTES, AT(shared_gpu_min_bytes), .default_text = "1M",
     RANGE(0, 16 * TIB),
     .help = "Size from which on a message between two ranks on one GPU is copied within it.\n"
             "Without MPS they take turns on a GPU, which shorter copies to host memory and back\n"
             "wait for less."},
    {"PEER_SMS", ROW_BYTES, AT(peer_sms), .default_text = "32", RANGE(1, 1024),
     .help = "Multiprocessors of a GPU that one exchange over NVLink may take."},
    {"PEER_CE_MIN", ROW_AUTO_BYTES, AT(peer_ce_min_bytes), .default_text = "auto",
     RANGE(0, 16 * TIB),
     .help = "Size of a message over NVLink, or of the largest in a collective, beyond which copy\n"
             "engines move the bytes in place of multiprocessors.\n"
             "With auto it is what the tuning file says of this kind of machine, else 4M for a\n"
             "collective and 0 for a single message."},
    {"BCAST_SPLIT_MIN", ROW_AUTO_BYTES, AT(bcast_split_min_bytes), .default_text = "auto",
     RANGE(0, 16 * TIB),
     .help =
         "Size from which on a broadcast over NVLink among three ranks goes in two steps: the "
         "root\n"
         "gives each a slice, which they then give to one another. Among four it is from 3/8 of\n"
         "this on, among eight from a tenth.\n"
         "With auto it is what the tuning file says of this kind of machine, else 8M.\n"
         "Set it alike for all ranks of a job, or broadcasts that they would do differently are\n"
         "staged."},
    {"REDUCE_SHARE_MIN", ROW_AUTO_BYTES, AT(reduce_share_min_bytes), .default_text = "auto",
     RANGE(0, 16 * TIB),
     .help = "Size from which on the ranks share the work of a reduction over NVLink; one rank\n"
             "alone does what is smaller.\n"
             "With auto it is what the tuning file says of this kind of machine, else 4K.\n"
             "Set it alike for all ranks of a job, or reductions that they would do differently\n"
             "are staged."},
    {"PIPELINE_MIN", ROW_BYTES, AT(pipeline_min_bytes), .default_text = "1M", RANGE(0, 16 * TIB),
     .help =
         "Size from which on a message between ranks that cannot map each other's memory goes in\n"
         "chunks through page-locked memory, so that copies overlap with the network.\n"
         "With 0 no message does. It takes the path peer to be allowed in all ranks."},
    {"TUNING", ROW_STRING, AT(tuning), .default_text = "auto",
     .help = "Name of the tuning file, which\n.BR fabrail (1)\nwrites; nothing for none.\n"
             "With auto it is fabrail/tuning in $XDG_CONFIG_HOME or ~/.config, and where that has\n"
             "nothing on this kind of machine, in the folder of the system's settings."},
    {"RAIL", ROW_CHOICE, AT(rail), .default_text = "auto", .choices = rail_choices,
     .help =
         "Whether messages between hosts go over rails, all NICs of a process at once: where the\n"
         "MPI library is not GPU-aware and there are at least two, not driven by sockets on a "
         "host\n"
         "that has better (auto); over any, and as if no MPI library were GPU-aware (force); or\n"
         "never (off).\n"
         "It takes the path peer to be allowed. Set it alike for all ranks of a job."},
    {"RAIL_MIN", ROW_AUTO_BYTES, AT(rail_min_bytes), .default_text = "auto", RANGE(0, 16 * TIB),
     .help = "Size from which on a message to another host goes over rails.\n"
             "With auto it is what the tuning file says of this kind of machine, else 256K."},
    {"RAIL_VERB", ROW_CHOICE, AT(rail_verb), .default_text = "auto", .choices = verb_choices,
     .help = "Whether a message that goes over rails is read by its receiver (read) or, where the\n"
             "sender can, written by that to the receiver's workspace (write). With auto it is\n"
             "written where the provider says that it makes reads of messages, and writes not,\n"
             "which EFA alone tells. The receiver chooses; a sender with read writes nothing."},
    {"RAIL_HOST", ROW_BOOL, AT(rail_host), .default_text = "no",
     .help = "Whether messages of host memory go over rails, too, also where there is no GPU. It\n"
             "takes an MPI library that is not GPU-aware, or FABRAIL_RAIL=force.\n"
             "Set it alike for all ranks of a job.",
     .alike = true},
    {"PROGRESS", ROW_CHOICE, AT(progress), .default_text = "auto", .choices = progress_choices,
     .help =
         "Who moves rails whose NIC wants a CPU for that: calls of MPI and, while other ranks "
         "read\n"
         "from this one, a thread (auto); no thread (manual), so that NICs that want a CPU are "
         "not\n"
         "used, since a rank that blocks in the MPI library would hold up the others; or a thread\n"
         "always (thread). With thread, nonblocking reductions also go on while the program\n"
         "computes."},
    {"RAIL_MAX", ROW_BYTES, AT(rail_max), .default_text = "16", RANGE(1, FR_RAILS_MAX),
     .help = "NICs that a process may use at once, of those that are nearest to its GPU."},
    {"RAIL_NICS", ROW_STRING, AT(rail_nics), .default_text = "",
     .help =
         "Names of the NICs to use, as libfabric calls their domains, separated by commas; after\n"
         "a leading ^ those not to use. A name may hold the wildcards of the shell. Empty stands\n"
         "for all, but for the loopback."},
    {"RAIL_PROVIDER", ROW_STRING, AT(rail_provider), .default_text = "auto",
     .help = "libfabric's name of the provider whose NICs are used, such as efa, cxi or\n"
             "verbs;ofi_rxm. With auto it is the fastest that has one."},
    {"RAIL_FLUSH", ROW_CHOICE, AT(rail_flush), .default_text = "auto", .choices = flush_choices,
     .help = "How data that NICs wrote to a GPU's memory are made visible to the GPU: not at all\n"
             "(none), by the driver's call (cuda), by a read of that memory over each NIC used\n"
             "(read), or by a write and a read (write-read). With auto it is the first of none,\n"
             "cuda and read that the GPU allows."},
    {"RAIL_HMEM", ROW_BOOL, AT(rail_hmem), .default_text = "yes",
     .help = "Whether NICs that can reach the memory of GPUs read and write it, in place of\n"
             "page-locked host memory to which it is copied."},
    {"RAIL_CACHE", ROW_BYTES, AT(rail_cache_bytes), .default_text = "16G", RANGE(0, 16 * TIB),
     .help = "Memory that stays registered with the NICs while no message uses it, for each\n"
             "process. Memory that its owner frees is let go at once."},
    {"TIMEOUT", ROW_BYTES, AT(timeout_s), .default_text = "0", RANGE(0, 1 << 30),
     .help =
         "Seconds that a rank waits for others in an exchange over NVLink before the call fails.\n"
         "With 0 it waits without end, and says so every ten seconds; but for MPI_Init, which "
         "under\n"
         "a launcher that does not tell which ranks run Fabrail waits for the others for a "
         "minute,\n"
         "and for a rank that was asked to send a message another way, and does not: ten "
         "minutes."},
    {"SYNC", ROW_CHOICE, AT(sync), .default_text = "off", .choices = sync_choices,
     .help = "What is done where a program hands MPI a buffer that a GPU may still be writing:\n"
             "nothing (off); wait for the GPU, and report buffers that change meanwhile or that\n"
             "the program changes before a nonblocking send is complete (check); or wait for the\n"
             "GPU before each call with device buffers, so that the program gets right results\n"
             "(auto). Both make the program slower."},
    {"SYNC_WAIT", ROW_BYTES, AT(sync_wait_s), .default_text = "10", RANGE(1, 1 << 30),
     .help = "Seconds that FABRAIL_SYNC waits for work on a GPU. A stream whose work takes longer\n"
             "is named once, and not waited for until that work has ended."},
    {"REPORT", ROW_STRING, AT(report), .default_text = "",
     .help =
         "Where MPI_Finalize writes a report of what was done with which messages: nothing for no\n"
         "report, text for standard error, else the name of a file. Text is what the first eight\n"
         "ranks did, and the verdict of the job in fifteen lines of rank 0: what the time in MPI\n"
         "went to, which ranks came late, and what to do. With %r in a file's name, that becomes\n"
         "the rank in the file of each rank, and job in a summary of them; without, one file "
         "holds\n"
         "the whole job. A rank that is aborted or killed by a signal writes what there is."},
    {"TRACE", ROW_STRING, AT(trace), .default_text = "",
     .help = "Name of a file for the last operations of a rank with their times, in the format of\n"
             "Chrome's trace viewer and of Perfetto; nothing for none. %r in it becomes the rank,\n"
             "which else is put behind the name.\n"
             "fabrail report --trace=OUT makes one file of those of several ranks."},
};

static bool find_choice(const struct choice *choices, const char *text, size_t length,
                        unsigned *value)
{
    for (; choices->name != NULL; choices++) {
        if (strlen(choices->name) == length && strncasecmp(choices->name, text, length) == 0) {
            *value = choices->value;
            return true;
        }
    }
    return false;
}

static bool parse_list(const struct choice *choices, const char *text, unsigned *bits)
{
    unsigned sum = 0;
    for (;;) {
        size_t length = strcspn(text, ",");
        unsigned bit = 0;
        if (!find_choice(choices, text, length, &bit))
            return false;
        sum |= bit;
        if (text[length] == '\0')
            break;
        text += length + 1;
    }
    *bits = sum;
    return true;
}

static bool parse_unsigned(const struct row *row, const char *text, unsigned *value)
{
    size_t length = strlen(text);
    if (row->type == ROW_LIST)
        return parse_list(row->choices, text, value);
    if (row->type == ROW_CHOICE)
        return find_choice(row->choices, text, length, value);
    if (strcasecmp(text, "auto") == 0) {
        *value = FR_AUTO;
        return true;
    }
    if (!find_choice(bool_choices, text, length, value))
        return false;
    *value = *value ? FR_YES : FR_NO;
    return true;
}

static bool parse_size(const struct row *row, const char *text, size_t *bytes)
{
    if (row->type == ROW_AUTO_BYTES && strcasecmp(text, "auto") == 0) {
        *bytes = FR_BYTES_AUTO;
        return true;
    }
    return fr_core_bytes_parse(text, bytes) && *bytes >= row->min_bytes && *bytes <= row->max_bytes;
}

// Stores `text` as the value of `row`. Leaves the setting alone and returns false if it is no
// value.
static bool apply(const struct row *row, const char *text, struct fr_settings *settings)
{
    void *member = (char *)settings + row->offset;
    unsigned value = 0;
    size_t bytes = 0;

    switch (row->type) {
    case ROW_STRING:
        *(const char **)member = text;
        return true;
    case ROW_BYTES:
    case ROW_AUTO_BYTES:
        if (!parse_size(row, text, &bytes))
            return false;
        *(size_t *)member = bytes;
        return true;
    case ROW_BOOL:
        if (!find_choice(bool_choices, text, strlen(text), &value))
            return false;
        *(bool *)member = value;
        return true;
    default:
        if (!parse_unsigned(row, text, &value))
            return false;
        memcpy(member, &value, sizeof(value));
        return true;
    }
}

// Writes what `row` takes, such as "yes, no" or "1M to 16T".
static void describe_values(const struct row *row, char *text, size_t room)
{
    char low[FR_BYTES_TEXT], high[FR_BYTES_TEXT];
    size_t used = 0;

    switch (row->type) {
    case ROW_BOOL:
        snprintf(text, room, "yes, no");
        return;
    case ROW_TRISTATE:
        snprintf(text, room, "auto, yes, no");
        return;
    case ROW_BYTES:
    case ROW_AUTO_BYTES:
        snprintf(text, room, "%s%s to %s", row->type == ROW_AUTO_BYTES ? "auto, " : "",
                 fr_core_bytes_text(row->min_bytes, low), fr_core_bytes_text(row->max_bytes, high));
        return;
    case ROW_STRING:
        snprintf(text, room, "any text");
        return;
    case ROW_LIST:
    case ROW_CHOICE:
        text[0] = '\0';
        for (const struct choice *c = row->choices; c->name != NULL && used < room; c++)
            used += (size_t)snprintf(text + used, room - used, used ? ", %s" : "%s", c->name);
        return;
    }
}

struct complaints {
    fr_core_complain_fn complain;
    void *cookie;
    unsigned count;
};

static void complain_value(struct complaints *complaints, const struct row *row, const char *value)
{
    char allowed[128], text[400];
    describe_values(row, allowed, sizeof(allowed));
    snprintf(text, sizeof(text),
             PREFIX "%s has no value \"%.64s\"; it takes %s%s; using the default %s", row->name,
             value, allowed, row->type == ROW_LIST ? " (one or more, with commas)" : "",
             row->default_text);
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
    snprintf(text, sizeof(text),
             PREFIX "%.*s is not a setting and has no effect; the nearest is " PREFIX "%s",
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

// Returns the row that the variable `entry` ("NAME=value", prefix cut off) sets, NULL for none.
static const struct row *find_row(const char *entry, size_t name_length)
{
    for (size_t r = 0; r < FR_ARRAY_LENGTH(rows); r++) {
        if (strlen(rows[r].name) == name_length && memcmp(rows[r].name, entry, name_length) == 0)
            return &rows[r];
    }
    return NULL;
}

// Returns the name, without the prefix, of the variable of Fabrail's that `entry` of an environment
// sets, and the name's length. Returns NULL if it is another variable.
static const char *own_name(const char *entry, size_t *length)
{
    if (strncmp(entry, PREFIX, sizeof(PREFIX) - 1) != 0)
        return NULL;
    const char *name = entry + sizeof(PREFIX) - 1;
    *length = strcspn(name, "=");
    return name[*length] == '=' ? name : NULL;
}

// Stores the values that an environment sets, and puts bad ones into `bad_values`. Where a name
// stands twice the first counts, as for getenv. An empty value counts as none, except for texts.
static void apply_environment(char *const *environment, struct fr_settings *settings,
                              const char *bad_values[FR_ARRAY_LENGTH(rows)])
{
    bool seen[FR_ARRAY_LENGTH(rows)] = {0};
    for (; *environment != NULL; environment++) {
        size_t length = 0;
        const char *name = own_name(*environment, &length);
        const struct row *row = name != NULL ? find_row(name, length) : NULL;
        if (row == NULL || seen[row - rows])
            continue;
        const char *value = name + length + 1;
        seen[row - rows] = true;
        if ((*value != '\0' || row->type == ROW_STRING) && !apply(row, value, settings))
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
        const char *name = own_name(*environment, &length);
        if (name != NULL && find_row(name, length) == NULL &&
            !fr_core_settings_of_site(name, length))
            complain_name(&complaints, name, length);
    }
    return complaints.count;
}

static struct fr_settings process_settings;
static pthread_once_t process_once = PTHREAD_ONCE_INIT;
static _Atomic(const struct fr_settings *) process_ready;

// All ranks have the same settings, so only the first complains of them, as far as the launcher
// lets ranks be told apart before MPI_Init.
static bool is_first_rank(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
                                        "SLURM_PROCID"};
    for (size_t i = 0; i < FR_ARRAY_LENGTH(names); i++) {
        const char *rank = getenv(names[i]);
        if (rank != NULL)
            return strcmp(rank, "0") == 0;
    }
    return true;
}

static void complain_to_log(void *cookie, const char *text)
{
    const struct fr_settings *settings = cookie;
    fr_core_log_level = settings->log;
    if (!settings->disable && is_first_rank()) // switched off means silent as well
        fr_warn("%s", text);
}

static void keep_text(const struct row *row)
{
    const char **member = (const char **)((char *)&process_settings + row->offset);
    const char *copy = strdup(*member);
    if (copy == NULL)
        fr_warn("no memory for the value of " PREFIX "%s, which is taken to be empty", row->name);
    *member = copy != NULL ? copy : "";
}

// What the environment gave, NULL for nothing that is understood.
static const char *given[FR_ARRAY_LENGTH(rows)];
static char names[FR_ARRAY_LENGTH(rows)][48];

static void keep_given(void)
{
    struct fr_settings scratch = {.log = FR_LOG_WARN};
    for (size_t r = 0; r < FR_ARRAY_LENGTH(rows); r++) {
        snprintf(names[r], sizeof(names[r]), PREFIX "%s", rows[r].name);
        const char *value = getenv(names[r]);
        bool is_empty = value != NULL && *value == '\0' && rows[r].type != ROW_STRING;
        if (value != NULL && !is_empty && apply(&rows[r], value, &scratch))
            given[r] = strdup(value);
    }
}

bool fr_core_setting_at(size_t index, struct fr_core_setting *setting)
{
    if (index >= FR_ARRAY_LENGTH(rows))
        return false;
    (void)fr_core_settings();
    *setting = (struct fr_core_setting){.name = names[index],
                                        .value = given[index] != NULL ? given[index]
                                                                      : rows[index].default_text,
                                        .default_text = rows[index].default_text,
                                        .is_given = given[index] != NULL};
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
        if (rows[r].type == ROW_STRING)
            keep_text(&rows[r]);
    }
    keep_given();
    atomic_store_explicit(&process_ready, &process_settings, memory_order_release);
    is_reading = false;
}

bool fr_core_settings_are_read_here(void)
{
    return is_reading;
}

const struct fr_settings *fr_core_settings(void)
{
    const struct fr_settings *settings = atomic_load_explicit(&process_ready, memory_order_acquire);
    if (FR_UNLIKELY(settings == NULL)) {
        pthread_once(&process_once, read_process_settings);
        settings = &process_settings;
    }
    return settings;
}

bool fr_core_may_sync(void)
{
    const struct fr_settings *settings = atomic_load_explicit(&process_ready, memory_order_acquire);
    if (settings != NULL)
        return settings->sync != FR_SYNC_OFF;
    const char *value = getenv(PREFIX "SYNC");
    return value != NULL && *value != '\0' && strcmp(value, "off") != 0;
}

// Writes the value of a switch, a choice or a list. No other rows have to be alike.
static size_t write_value(const struct row *row, const void *member, char *text, size_t room)
{
    size_t used = 0;
    unsigned value = 0;
    if (row->type == ROW_BOOL)
        return min_of((size_t)snprintf(text, room, *(const bool *)member ? "yes" : "no"), room);
    memcpy(&value, member, sizeof(value));
    for (const struct choice *c = row->choices; c->name != NULL && used < room; c++) {
        bool is_set = row->type == ROW_LIST ? value & c->value : value == c->value;
        if (is_set)
            used += (size_t)snprintf(text + used, room - used, used ? ",%s" : "%s", c->name);
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
        used += (size_t)snprintf(text + used, FR_ALIKE_BYTES - used,
                                 "%s" PREFIX "%s=", used ? ";" : "", rows[r].name);
        used += write_value(&rows[r], (const char *)settings + rows[r].offset, text + used,
                            FR_ALIKE_BYTES - used);
    }
    return text;
}

void fr_core_settings_write_manual(void *stream)
{
    for (size_t r = 0; r < FR_ARRAY_LENGTH(rows); r++) {
        const struct row *row = &rows[r];
        char values[128];
        describe_values(row, values, sizeof(values));
        fprintf(stream, ".TP\n.B %s%s\n%s\n", PREFIX, row->name, row->help);
        if (row->type == ROW_STRING)
            fprintf(stream, ".br\nDefault: %s.\n",
                    *row->default_text ? row->default_text : "empty");
        else
            fprintf(stream, ".br\nValues: %s.\nDefault: %s.\n", values, row->default_text);
    }
}
