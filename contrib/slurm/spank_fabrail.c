// SPDX-License-Identifier: BSD-3-Clause
// A plugin for Slurm: srun, sbatch and salloc get the option --fabrail, which preloads Fabrail into
// the tasks of a step, and takes settings:
//
//     srun --fabrail ./program
//     srun --fabrail=sync=check,report=text ./program
//
// A line of plugstack.conf loads it, with the library where that is not the configured one, and
// with `default=yes` where all steps are to have it but those with --fabrail=off, which also takes
// it out of a preload that the step inherits from its batch script:
//
//     optional /usr/lib/fabrail/spank_fabrail.so library=/opt/fabrail/lib/libfabrail.so
//
// A preload that a task has stays, behind Fabrail. Slurm runs task prologs after this: one that
// exports LD_PRELOAD replaces it. Nothing here ever fails a step.
#include <slurm/spank.h>

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MOST_BYTES = 4096 };

extern const char plugin_name[], plugin_type[];
extern const unsigned int plugin_version, spank_plugin_version;
SPANK_PLUGIN(fabrail, 1)

#ifndef FR_LIBRARY
#define FR_LIBRARY "libfabrail.so" // the dynamic linker looks for it
#endif
static const char *library = FR_LIBRARY;
static char settings[MOST_BYTES]; // of the option
static int asked, by_default, refused;

// Notes the option, where it is given and, in tasks, as Slurm hands it on.
static int take_option(int value, const char *text, int remote)
{
    (void)value;
    (void)remote;
    asked = text == NULL || strcmp(text, "off") != 0;
    refused = !asked;
    by_default = 0;
    if (text != NULL && asked)
        snprintf(settings, sizeof(settings), "%s", text);
    return ESPANK_SUCCESS;
}

static struct spank_option option = {
    .name = (char *)"fabrail",
    .arginfo = (char *)"NAME=VALUE,...",
    .usage = (char *)"let the tasks pass GPU pointers to any MPI; \"off\": do not",
    .has_arg = 2,
    .val = 0,
    .cb = take_option,
};

int slurm_spank_init(spank_t spank, int count, char **arguments)
{
    for (int i = 0; i < count; i++) {
        if (strncmp(arguments[i], "library=", 8) == 0)
            library = arguments[i] + 8;
        else if (strcmp(arguments[i], "default=yes") == 0)
            by_default = 1;
        else if (strcmp(arguments[i], "default=no") != 0)
            slurm_error("fabrail: \"%s\" in plugstack.conf is neither library=FILE nor "
                        "default=yes or no",
                        arguments[i]);
    }
    if (spank_option_register(spank, &option) != ESPANK_SUCCESS)
        slurm_error("fabrail: the option --fabrail cannot be registered");
    return ESPANK_SUCCESS;
}

// Sets FABRAIL_NAME of the task to the value of one "name=value".
static void set_one(spank_t spank, const char *text)
{
    char name[128] = "FABRAIL_";
    size_t length = strcspn(text, "="), at = strlen(name);
    if (text[length] != '=' || length == 0 || length >= sizeof(name) - at) {
        slurm_error("fabrail: \"%s\" of --fabrail is not NAME=VALUE", text);
        return;
    }
    for (size_t i = 0; i < length; i++)
        name[at + i] = (char)toupper((unsigned char)text[i]);
    name[at + length] = '\0';
    if (spank_setenv(spank, name, text + length + 1, 1) != ESPANK_SUCCESS)
        slurm_error("fabrail: %s cannot be set", name);
}

// Sets all of them. A part without an equals sign goes on with the value before, which is a list
// itself.
static void set_all(spank_t spank)
{
    char one[MOST_BYTES] = "";
    for (char *next = settings; next != NULL && *next != '\0';) {
        char *part = strsep(&next, ",");
        size_t length = strlen(one);
        if (length > 0 && strchr(part, '=') == NULL) {
            snprintf(one + length, sizeof(one) - length, ",%s", part);
            continue;
        }
        if (length > 0)
            set_one(spank, one);
        snprintf(one, sizeof(one), "%s", part);
    }
    if (one[0] != '\0')
        set_one(spank, one);
}

// Takes the library out of the task's preload.
static void take_out(spank_t spank)
{
    char older[MOST_BYTES], preload[MOST_BYTES] = "";
    size_t used = 0;
    if (spank_getenv(spank, "LD_PRELOAD", older, sizeof(older)) != ESPANK_SUCCESS)
        return;
    for (char *next = older; next != NULL;) {
        char *part = strsep(&next, ": ");
        if (*part != '\0' && strcmp(part, library) != 0)
            used += (size_t)snprintf(preload + used, sizeof(preload) - used, "%s%s",
                                     used > 0 ? ":" : "", part);
    }
    if (used == 0)
        spank_unsetenv(spank, "LD_PRELOAD");
    else
        spank_setenv(spank, "LD_PRELOAD", preload, 1);
}

// Called in each task, before its prologs and the program.
int slurm_spank_task_init(spank_t spank, int count, char **arguments)
{
    char preload[MOST_BYTES], older[MOST_BYTES] = "";
    (void)count;
    (void)arguments;
    if (refused)
        take_out(spank);
    if (!asked && !by_default)
        return ESPANK_SUCCESS;
    if (access(library, R_OK) != 0) {
        slurm_error("fabrail: %s cannot be read on this node; the task runs without Fabrail",
                    library);
        return ESPANK_SUCCESS;
    }
    int has_older = spank_getenv(spank, "LD_PRELOAD", older, sizeof(older)) == ESPANK_SUCCESS &&
                    older[0] != '\0';
    int length = snprintf(preload, sizeof(preload), "%s%s%s", library, has_older ? ":" : "",
                          has_older ? older : "");
    if (length >= (int)sizeof(preload) ||
        spank_setenv(spank, "LD_PRELOAD", preload, 1) != ESPANK_SUCCESS)
        slurm_error("fabrail: LD_PRELOAD cannot be set; the task runs without Fabrail");
    else
        set_all(spank);
    return ESPANK_SUCCESS;
}
