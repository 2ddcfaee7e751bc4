// SPDX-License-Identifier: BSD-3-Clause
// Processes that the application starts. From release 5 on, Open MPI gives them neither the
// variables of mpirun's -x nor the parents' own, so they would lack Fabrail. They get the preload
// and the settings here, by the info key for variables. Other MPIs, and Open MPI 4, hand the
// variables on themselves.
#include "config.h"

#include "intercept/intercept_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

enum { MOST_VARIABLES = 1024 }; // bytes, as far as the MPI takes as many

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

// Adds a line where there is room for it.
static bool add_line(const char *line, char *text, size_t room)
{
    size_t used = strlen(text);
    if (strchr(line, '\n') != NULL || used + 1 + strlen(line) >= room)
        return false;
    snprintf(text + used, room - used, used > 0 ? "\n%s" : "%s", line);
    return true;
}

// Returns whether a setting is for children. Files of a job are not: its children would write over
// them.
static bool is_for_children(const char *entry)
{
    return begins(entry, "FABRAIL_") && !begins(entry, "FABRAIL_TRACE=") &&
           (!begins(entry, "FABRAIL_REPORT=") || strcmp(entry, "FABRAIL_REPORT=text") == 0);
}

// Adds the preload, and settings behind it. Returns false where there is no preload to hand on.
static bool add_variables(char *text, size_t room)
{
    bool preloads = false;
    for (char **entry = environ; entry != NULL && *entry != NULL && !preloads; entry++) {
        if (!begins(*entry, "LD_PRELOAD="))
            continue;
        preloads = add_line(*entry, text, room);
        if (!preloads)
            fr_warn_once("processes that MPI_Comm_spawn starts run without Fabrail: LD_PRELOAD is "
                         "too long for an info value");
    }
    for (char **entry = environ; preloads && *entry != NULL; entry++) {
        if (is_for_children(*entry) && !add_line(*entry, text, room))
            fr_warn_once("processes that MPI_Comm_spawn starts do not have %.*s: the settings are "
                         "too long for an info value",
                         (int)strcspn(*entry, "="), *entry);
    }
    return preloads;
}

static void read_key(fr_word info, const char *key, char *text, int room)
{
    int found = 0;
    text[0] = '\0';
    FR_MPI(Info_get_string, info, FR_PTR(key), FR_PTR(&room), FR_PTR(text), FR_PTR(&found));
    if (!found)
        text[0] = '\0';
}

// Returns the info of a command with the variables added, or the same info where the application
// sets the preload itself.
static fr_word with_variables(fr_word info)
{
    char text[MOST_VARIABLES] = "", older[MOST_VARIABLES] = "", made[sizeof(fr_word)];
    size_t room =
        fr_abi_mpi.MAX_INFO_VAL < MOST_VARIABLES ? (size_t)fr_abi_mpi.MAX_INFO_VAL : MOST_VARIABLES;
    bool is_null = info == fr_abi_mpi.INFO_NULL;
    if (!is_null) {
        read_key(info, "PMIX_ENVAR", text, sizeof(text));
        read_key(info, "env", older, sizeof(older));
    }
    if (strstr(text, "LD_PRELOAD=") != NULL || strstr(older, "LD_PRELOAD=") != NULL ||
        !add_variables(text, room))
        return info;
    int rc = is_null ? FR_MPI(Info_create, FR_PTR(made)) : FR_MPI(Info_dup, info, FR_PTR(made));
    if (rc != fr_abi_mpi.SUCCESS)
        return info;
    fr_word own = fr_abi_handle_load(made, 0);
    FR_MPI(Info_set, own, FR_PTR("PMIX_ENVAR"), FR_PTR(text));
    return own;
}

static void free_info(fr_word own, fr_word info)
{
    char handle[sizeof(fr_word)];
    fr_abi_handle_store(handle, 0, own);
    if (own != info)
        FR_MPI(Info_free, FR_PTR(handle));
}

static bool is_root(fr_word comm, int root)
{
    int rank = -1;
    return comm != fr_abi_mpi.COMM_NULL &&
           FR_MPI(Comm_rank, comm, FR_PTR(&rank)) == fr_abi_mpi.SUCCESS && rank == root;
}

// MPI looks at the infos at the root alone. There is one for each command.
bool fr_intercept_call_spawn(enum fr_fn fn, fr_word *args, int *result)
{
    bool many = fn == FR_FN_MPI_Comm_spawn_multiple; // its arguments begin with their number
    fr_word *info = &args[3 + many];
    if (!fr_abi_is_open_mpi() || !fr_abi_has(FR_FN_MPI_Info_get_string) ||
        !is_root(fr_abi_handle(args[5 + many]), (int)args[4 + many]))
        return false;
    size_t count = many ? (size_t)(int)args[0] : 1;
    const void *given = many ? (const void *)*info : info;
    fr_word *own = given != NULL ? calloc(count, sizeof(*own)) : NULL;
    if (own == NULL)
        return false;
    fr_word asked = *info;
    for (size_t i = 0; i < count; i++)
        fr_abi_handle_store(own, i, with_variables(fr_abi_handle_load(given, i)));
    *info = many ? FR_PTR(own) : fr_abi_handle_load(own, 0);
    *result = fr_abi_call(fn, args);
    *info = asked;
    for (size_t i = 0; i < count; i++)
        free_info(fr_abi_handle_load(own, i), fr_abi_handle_load(given, i));
    free(own);
    return true;
}
