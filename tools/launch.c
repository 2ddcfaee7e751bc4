// SPDX-License-Identifier: BSD-3-Clause
// Launchers: finding them, telling their family, and finding the library and the programs that go
// with the command.
#include "config.h"

#include "launch.h"

#include "command.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { VERSION_SECONDS = 20 };

static const char *const family_names[FR_LAUNCH_COUNT] = {
    [FR_LAUNCH_UNKNOWN] = "unknown", [FR_LAUNCH_OPENMPI] = "openmpi", [FR_LAUNCH_MPICH] = "mpich",
    [FR_LAUNCH_SLURM] = "slurm",     [FR_LAUNCH_ENV] = "env",
};

enum fr_launch_family fr_launch_family_named(const char *name)
{
    for (int family = FR_LAUNCH_UNKNOWN + 1; family < FR_LAUNCH_COUNT; family++) {
        if (strcmp(family_names[family], name) == 0)
            return (enum fr_launch_family)family;
    }
    return FR_LAUNCH_UNKNOWN;
}

const char *fr_launch_family_name(enum fr_launch_family family)
{
    return family_names[family];
}

static bool is_program(const char *path)
{
    struct stat facts;
    return stat(path, &facts) == 0 && S_ISREG(facts.st_mode) && access(path, X_OK) == 0;
}

bool fr_launch_find_file(const char *name, char path[FR_FILE_NAME_BYTES])
{
    if (strchr(name, '/') != NULL) {
        int length = snprintf(path, FR_FILE_NAME_BYTES, "%s", name);
        return length < FR_FILE_NAME_BYTES && is_program(path);
    }
    const char *folders = getenv("PATH");
    if (folders == NULL || *name == '\0')
        return false;
    while (true) {
        size_t length = strcspn(folders, ":");
        int used = snprintf(path, FR_FILE_NAME_BYTES, "%.*s/%s", (int)(length ? length : 1),
                            length ? folders : ".", name);
        if (used < FR_FILE_NAME_BYTES && is_program(path))
            return true;
        if (folders[length] == '\0')
            return false;
        folders += length + 1;
    }
}

bool fr_launch_complain(const char *what, const char *name)
{
    struct stat facts;
    bool is_here = stat(name, &facts) == 0, is_path = strchr(name, '/') != NULL;
    if (is_here && S_ISDIR(facts.st_mode) && is_path)
        return fr_tool_complain("the %s %s is a folder", what, name);
    if (is_here && is_path)
        return fr_tool_complain("the %s %s may not be run: chmod +x allows it", what, name);
    if (is_here && S_ISREG(facts.st_mode))
        return fr_tool_complain("there is no %s %s on the path; the one in this folder is ./%s",
                                what, name, name);
    return fr_tool_complain("there is no %s %s", what, name);
}

// Words that --version of one family alone says, and the name of the family.
static const struct {
    const char *text;
    enum fr_launch_family family;
    const char *name;
} marks[] = {
    {"Open MPI", FR_LAUNCH_OPENMPI, "Open MPI"},
    {"OpenRTE", FR_LAUNCH_OPENMPI, "Open MPI"},
    {"Spectrum MPI", FR_LAUNCH_OPENMPI, "Spectrum MPI"},
    {"PRRTE", FR_LAUNCH_OPENMPI, "PRRTE"},
    {"prterun", FR_LAUNCH_OPENMPI, "PRRTE"},
    {"Intel(R) MPI", FR_LAUNCH_MPICH, "Intel MPI"},
    {"MVAPICH", FR_LAUNCH_MPICH, "MVAPICH"},
    {"HYDRA", FR_LAUNCH_MPICH, "MPICH"}, // which has the version of its MPICH
    {"Hydra", FR_LAUNCH_MPICH, "MPICH"},
    {"MPICH", FR_LAUNCH_MPICH, "MPICH"},
    {"slurm", FR_LAUNCH_SLURM, "Slurm"}, // others name it among what they can start by
};

// The first number with a point in it is the version.
static void note_version(const char *output, const char *name, struct fr_launcher *launcher)
{
    static const char digits[] = "0123456789";
    for (const char *at = strpbrk(output, digits); at != NULL; at = strpbrk(at, digits)) {
        size_t whole = strspn(at, digits);
        if (at[whole] == '.' && strchr(digits, at[whole + 1]) != NULL && at[whole + 1] != '\0') {
            snprintf(launcher->version, sizeof(launcher->version), "%s %.*s", name,
                     (int)strcspn(at, " \t\r\n,"), at);
            return;
        }
        at += whole;
    }
    snprintf(launcher->version, sizeof(launcher->version), "%s", name);
}

static void note_failure(char *output, struct fr_launcher *launcher)
{
    size_t bytes = strlen(output);
    while (bytes > 0 && output[bytes - 1] == '\n')
        output[--bytes] = '\0';
    const char *line = strrchr(output, '\n');
    snprintf(launcher->failure, sizeof(launcher->failure), "%s", line ? line + 1 : output);
}

enum fr_status fr_launch_identify(const char *name, struct fr_launcher *launcher)
{
    struct fr_child_result result;
    memset(launcher, 0, sizeof(*launcher));
    if (!fr_launch_find_file(name, launcher->path))
        return FR_ERR_NOT_FOUND;
    char *const argv[] = {launcher->path, (char *)(uintptr_t) "--version", NULL};
    fr_child_run(argv, NULL, VERSION_SECONDS, &result);
    for (size_t i = 0; i < FR_ARRAY_LENGTH(marks) && result.output != NULL; i++) {
        const char *mark = strstr(result.output, marks[i].text);
        if (mark == NULL)
            continue;
        launcher->family = marks[i].family;
        note_version(mark, marks[i].name, launcher);
        break;
    }
    if (launcher->family == FR_LAUNCH_UNKNOWN && result.output != NULL && result.status != 0)
        note_failure(result.output, launcher);
    free(result.output);
    return launcher->family != FR_LAUNCH_UNKNOWN ? FR_OK : FR_ERR_UNSUPPORTED;
}

bool fr_launch_refuse(const struct fr_launcher *launcher, const char *name, const char *advice)
{
    if (!launcher->failure[0])
        return fr_tool_complain("%s is no launcher of Open MPI, the MPICH family or Slurm%s", name,
                                advice);
    return fr_tool_complain("%s --version fails, \"%s\", so its kind of launcher is unknown%s",
                            name, launcher->failure, advice);
}

bool fr_launch_identify_for(const char *name, enum fr_launch_family programs,
                            struct fr_launcher *launcher)
{
    enum fr_status status = fr_launch_identify(name, launcher);
    if (status == FR_ERR_NOT_FOUND)
        return fr_launch_complain("MPI launcher", name);
    if (status != FR_OK)
        return fr_launch_refuse(launcher, name, "");
    return launcher->family != FR_LAUNCH_SLURM || programs != FR_LAUNCH_UNKNOWN ||
           fr_tool_complain("%s starts programs of any MPI; name the family by --family", name);
}

// The folder of the running program, without what links are on the way.
static bool own_folder(char folder[FR_FILE_NAME_BYTES])
{
    ssize_t length = readlink("/proc/self/exe", folder, FR_FILE_NAME_BYTES - 1);
    if (length <= 0)
        return false;
    folder[length] = '\0';
    char *slash = strrchr(folder, '/');
    if (slash == NULL)
        return false;
    *slash = '\0';
    return true;
}

bool fr_launch_find_library(char path[FR_FILE_NAME_BYTES])
{
    static const char *const places[] = {"../.libs", FR_LIBDIR_BESIDE, "../lib"};
    char folder[FR_FILE_NAME_BYTES], guess[FR_FILE_NAME_BYTES + 64], resolved[PATH_MAX];
    bool known = own_folder(folder);
    for (size_t i = 0; known && i < FR_ARRAY_LENGTH(places); i++) {
        snprintf(guess, sizeof(guess), "%s/%s/libfabrail.so", folder, places[i]);
        if (realpath(guess, resolved) != NULL) {
            snprintf(path, FR_FILE_NAME_BYTES, "%s", resolved);
            return true;
        }
    }
    snprintf(path, FR_FILE_NAME_BYTES, "%s/libfabrail.so", FR_LIBDIR);
    return access(path, R_OK) == 0;
}

bool fr_launch_find_programs(char folder[FR_FILE_NAME_BYTES])
{
    static const char *const places[] = {"../tests/bench", FR_LIBEXECDIR_BESIDE "/fabrail",
                                         FR_LIBEXECDIR "/fabrail"};
    char own[FR_FILE_NAME_BYTES], file[2 * FR_FILE_NAME_BYTES];
    if (!own_folder(own))
        own[0] = '\0';
    for (size_t i = 0; i < FR_ARRAY_LENGTH(places); i++) {
        bool is_whole = places[i][0] == '/'; // outside of the prefix
        snprintf(folder, FR_FILE_NAME_BYTES, "%.3000s%s%s", is_whole ? "" : own,
                 is_whole ? "" : "/", places[i]);
        snprintf(file, sizeof(file), "%s/limit", folder);
        if (access(file, X_OK) == 0)
            return true;
    }
    return false;
}

// The name that configure gives an MPI of release 5 has that number behind it.
bool fr_launch_find_benchmark(const char *folder, const char *name,
                              const struct fr_launcher *launcher, enum fr_launch_family family,
                              char *path, size_t room)
{
    static const char *const openmpi[] = {"openmpi", "openmpi5", "openmpi"};
    static const char *const mpich[] = {"mpich", "mpich5", "mpich"};
    const char *version = strpbrk(launcher->version, "0123456789");
    if (family == FR_LAUNCH_UNKNOWN)
        family = launcher->family;
    const char *const *flavours = family == FR_LAUNCH_OPENMPI ? openmpi : mpich;
    bool is_newer = family == launcher->family && version != NULL && atoi(version) >= 5;
    for (int i = 0; i < 2; i++) {
        snprintf(path, room, "%s/%s-%s", folder, name, flavours[i + is_newer]);
        if (access(path, X_OK) == 0)
            return true;
    }
    return false;
}
