// SPDX-License-Identifier: BSD-3-Clause
// Kinds of memory by info (MPI 4.1): which kinds a program may hand to MPI, and its promise to hand
// only some of them to a communicator.
//
// All kinds that are served are told, whichever were asked for. So no request has to be kept, and
// old MPIs answer as new ones do. A promise of host memory alone spares the question to the driver
// whose memory a buffer is. It holds for the buffers of this process; other ranks may still send
// from device memory.
#include "config.h"

#include "fabrail/job.h"
#include "intercept/entry.h"

#include <string.h>
#include <strings.h>

enum { MOST_BYTES = 1024 }; // of a value

static const char provided_key[] = "mpi_memory_alloc_kinds";
static const char asserted_key[] = "mpi_assert_memory_alloc_kinds";

// The kinds that a program is told of where Fabrail serves devices. Those that begin with mpi come
// from MPI_Alloc_mem and from windows, which every MPI has.
static const char *const kinds[] = {
    "system", "mpi",         "mpi:alloc_mem", "mpi:win_allocate", "mpi:win_allocate_shared",
    "cuda",   "cuda:device", "cuda:host",     "cuda:managed",
};

// Reads the value of a key. Returns false where the info has none.
static bool read_key(fr_word info, const char *key, char text[MOST_BYTES])
{
    int found = 0;
    text[0] = '\0';
    return FR_MPI(Info_get, info, FR_PTR(key), MOST_BYTES - 1, FR_PTR(text), FR_PTR(&found)) ==
               fr_abi_mpi.SUCCESS &&
           found;
}

// Returns the next element of a list, without the spaces around it, and sets *length. Returns NULL
// at the end.
static const char *next_element(const char **list, char separator, size_t *length)
{
    const char *first = *list, *end;
    if (!first)
        return NULL;
    end = strchrnul(first, separator);
    *list = *end ? end + 1 : NULL;
    while (*first == ' ' && first < end)
        first++;
    while (end > first && end[-1] == ' ')
        end--;
    *length = (size_t)(end - first);
    return first;
}

static bool is_listed(const char *list, const char *kind)
{
    size_t length;
    for (const char *element; (element = next_element(&list, ',', &length));) {
        if (length == strlen(kind) && strncasecmp(element, kind, length) == 0)
            return true;
    }
    return false;
}

// Returns whether a kind with at most one restrictor is served.
static bool is_served(const char *kind, size_t length)
{
    for (size_t i = 0; i < FR_ARRAY_LENGTH(kinds); i++) {
        if (strlen(kinds[i]) == length && strncasecmp(kinds[i], kind, length) == 0)
            return true;
    }
    return false;
}

// Returns whether a restrictor, alone or among others like it, makes a kind host memory. That of
// MPI_Win_allocate may be a device's (FABRAIL_WIN_ALLOCATE).
static bool is_of_host(const char *restrictor, size_t length)
{
    static const char *const known[] = {"alloc_mem", "win_allocate_shared", "host"};
    for (size_t i = 0; i < FR_ARRAY_LENGTH(known); i++) {
        if (strlen(known[i]) == length && strncasecmp(known[i], restrictor, length) == 0)
            return true;
    }
    return false;
}

// Returns whether a kind is served with all of its restrictors, each of which follows a colon. Sets
// *on_device if some of its memory may be a device's.
static bool is_served_whole(const char *element, size_t length, bool *on_device)
{
    char text[MOST_BYTES], one[MOST_BYTES];
    memcpy(text, element, length);
    text[length] = '\0';
    size_t name = strcspn(text, ":"), part;
    const char *rest = text[name] ? text + name + 1 : NULL;
    if (!is_served(text, name))
        return false;
    bool of_host =
        rest != NULL || (name == strlen("system") && strncasecmp(text, "system", name) == 0);
    memcpy(one, text, name);
    one[name] = ':';
    for (const char *at; (at = next_element(&rest, ':', &part));) {
        memcpy(one + name + 1, at, part);
        if (!is_served(one, name + 1 + part))
            return false;
        of_host = of_host && is_of_host(at, part);
    }
    *on_device = *on_device || !of_host;
    return true;
}

// Adds what Fabrail serves to a list, as far as there is room.
static void add_served(char list[MOST_BYTES])
{
    size_t room =
        fr_abi_mpi.MAX_INFO_VAL < MOST_BYTES ? (size_t)fr_abi_mpi.MAX_INFO_VAL : (size_t)MOST_BYTES;
    for (size_t i = 0; i < FR_ARRAY_LENGTH(kinds); i++) {
        size_t length = strlen(list);
        if (is_listed(list, kinds[i]) || length + strlen(kinds[i]) + 2 > room)
            continue;
        if (length)
            list[length++] = ',';
        strcpy(list + length, kinds[i]);
    }
}

bool fr_intercept_call_get_info(enum fr_fn fn, fr_word *args, int *result)
{
    char text[MOST_BYTES];
    *result = fr_abi_call(fn, args);
    if (*result != fr_abi_mpi.SUCCESS || !args[1] || !fr_intercept_serves_cuda())
        return true;
    fr_word info = fr_abi_handle_load((const void *)args[1], 0);
    (void)read_key(info, provided_key, text);
    add_served(text);
    FR_MPI(Info_set, info, FR_PTR(provided_key), FR_PTR(text));
    if (fn == FR_FN_MPI_Comm_get_info &&
        fr_job_comm_promise(fr_abi_handle(args[0]), text, sizeof(text)))
        FR_MPI(Info_set, info, FR_PTR(asserted_key), FR_PTR(text));
    return true;
}

void fr_intercept_note_promise(fr_word comm, fr_word info)
{
    char text[MOST_BYTES];
    const char *list = text;
    size_t length;
    bool on_device = false;
    if (comm == fr_abi_mpi.COMM_NULL || info == fr_abi_mpi.INFO_NULL ||
        !fr_intercept_serves_cuda() || !read_key(info, asserted_key, text))
        return;
    bool kept = true;
    for (const char *element; kept && (element = next_element(&list, ',', &length));)
        kept = is_served_whole(element, length, &on_device);
    // One that is not understood is ignored. The older one no longer holds.
    fr_job_comm_note_promise(comm, kept ? text : NULL, !on_device);
}

bool fr_intercept_call_comm_info(enum fr_fn fn, fr_word *args, int *result)
{
    const struct fr_abi_row *row = &fr_abi_rows[fn];
    *result = fr_abi_call(fn, args);
    if (*result != fr_abi_mpi.SUCCESS)
        return true;
    fr_word comm = row->comm_made < 0 ? fr_abi_handle(args[row->comm])
                   : args[row->comm_made]
                       ? fr_abi_handle_load((const void *)args[row->comm_made], 0)
                       : fr_abi_mpi.COMM_NULL;
    fr_intercept_note_promise(comm, fr_abi_handle(args[row->info]));
    return true;
}
