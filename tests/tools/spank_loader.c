// SPDX-License-Identifier: BSD-3-Clause
// Stands in for Slurm before its plugin (contrib/slurm/spank_fabrail.c): loads it with arguments of
// plugstack.conf, hands on the option if there is one, and prints what becomes of the environment.
//
//     spank_loader PLUGIN [--fabrail[=VALUE]] [NAME=VALUE of the task]... -- ARGUMENT...
#include <slurm/spank.h>

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORTED __attribute__((visibility("default")))

static struct spank_option *registered;

EXPORTED spank_err_t spank_option_register(spank_t spank, struct spank_option *option)
{
    (void)spank;
    registered = option;
    return ESPANK_SUCCESS;
}

EXPORTED spank_err_t spank_getenv(spank_t spank, const char *name, char *value, int room)
{
    (void)spank;
    const char *found = getenv(name);
    if (found == NULL)
        return ESPANK_ENV_NOEXIST;
    snprintf(value, (size_t)room, "%s", found);
    return ESPANK_SUCCESS;
}

EXPORTED spank_err_t spank_setenv(spank_t spank, const char *name, const char *value, int replace)
{
    (void)spank;
    setenv(name, value, replace);
    printf("%s=%s\n", name, value);
    return ESPANK_SUCCESS;
}

EXPORTED spank_err_t spank_unsetenv(spank_t spank, const char *name)
{
    (void)spank;
    unsetenv(name);
    printf("no %s\n", name);
    return ESPANK_SUCCESS;
}

EXPORTED void slurm_error(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    printf("error: ");
    vprintf(format, list);
    printf("\n");
    va_end(list);
}

typedef int hook(spank_t spank, int count, char **arguments);

int main(int argc, char **argv)
{
    const char *given = NULL;
    int at = 2;
    void *plugin = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (plugin == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    const char *name = dlsym(plugin, "plugin_name"), *type = dlsym(plugin, "plugin_type");
    hook *init = (hook *)dlsym(plugin, "slurm_spank_init");
    hook *task = (hook *)dlsym(plugin, "slurm_spank_task_init");
    if (name == NULL || type == NULL || strcmp(type, "spank") != 0 || init == NULL || task == NULL)
        return 1;
    for (; at < argc && strcmp(argv[at], "--") != 0; at++) {
        if (argv[at][0] == '-')
            given = argv[at];
        else
            putenv(argv[at]);
    }
    int count = argc - at - 1;
    if (init(NULL, count > 0 ? count : 0, argv + at + 1) != 0 || registered == NULL)
        return 1;
    if (given != NULL) {
        const char *value = strchr(given, '=');
        registered->cb(registered->val, value != NULL ? value + 1 : NULL, 1);
    }
    return task(NULL, count > 0 ? count : 0, argv + at + 1);
}
