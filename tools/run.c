// SPDX-License-Identifier: BSD-3-Clause
// fabrail run: becomes the launcher of an MPI job whose ranks have the library preloaded and the
// settings in their environment. Since it becomes the launcher, signals, the terminal and the exit
// status are the launcher's own. Looks first for faults that would show later and less clearly.
#include "config.h"

#include "command.h"
#include "elf_file.h"
#include "launch.h"
#include "pairing.h"
#include "preload.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

extern char **environ;

enum { CODE_LAUNCHER = FR_TOOL_NO_LETTER, CODE_PRELOAD, CODE_LIBRARY };

const struct fr_tool_option fabrail_run_options[] = {
    {"set", 's', "NAME=VALUE", FR_TOOL_SETTINGS,
     "set FABRAIL_NAME for the ranks; any number of times"},
    {"report", 'r', "FILE", FR_TOOL_FILES,
     "report to FILE, %r being the rank, or \"text\" for standard error"},
    {"log", 'l', "LEVEL", "error warn info debug trace",
     "what the library writes to standard error"},
    {"paths", 'p', "LIST", NULL, "which paths may be used, with commas"},
    {"check", 'c', "WHAT", "sync",
     "report races: calls of MPI whose buffers a GPU still writes (FABRAIL_SYNC=check)"},
    {"dry-run", 'n', NULL, NULL, "print the command, and do not run it"},
    {"launcher", CODE_LAUNCHER, "KIND", "openmpi mpich slurm env",
     "do not ask the launcher what it is; env: it hands on its environment"},
    {"preload", CODE_PRELOAD, "FILE", FR_TOOL_FILES,
     "preload this one behind Fabrail, a sanitizer before it; any number"},
    {"library", CODE_LIBRARY, "FILE", FR_TOOL_FILES, "preload this build of Fabrail"},
    {NULL, 0, NULL, NULL, NULL},
};

struct options {
    char library[FR_FILE_NAME_BYTES];
    enum fr_launch_family family;
    struct fr_launcher launcher; // as it says of itself, where it was asked
    struct fr_words preloads;    // further ones
    struct fr_words settings;    // FABRAIL_NAME=VALUE
    bool dry_run;
    bool is_alone; // the command is the program, as a job of one rank
};

static void complain_of_setting(void *cookie, const char *text)
{
    const char *end = strstr(text, "; using the default"); // which this command does not
    const char *option = cookie;
    (void)fr_tool_misuse("--%s: %.*s", option, end != NULL ? (int)(end - text) : (int)strlen(text),
                         text);
}

// Adds a setting, given by an option, that the library would take.
static bool add_setting(struct options *options, const char *option, const char *name,
                        const char *value)
{
    char text[FR_FILE_NAME_BYTES + 64];
    struct fr_settings parsed;
    int length = snprintf(text, sizeof(text), "FABRAIL_%s=%s", name, value);
    if (length >= (int)sizeof(text))
        return fr_tool_complain("--%s: the value of FABRAIL_%.32s is too long", option, name);
    for (char *c = text; *c != '='; c++)
        *c = (char)toupper((unsigned char)*c);
    if (fr_core_settings_of_site(text, strcspn(text, "=")))
        return !fr_tool_misuse("--%s: FABRAIL_%s is not a setting", option, name);
    char *const environment[] = {text, NULL};
    if (fr_core_settings_parse(environment, &parsed, complain_of_setting,
                               (void *)(uintptr_t)option) != 0)
        return false;
    fr_words_add(&options->settings, "%s", text);
    return true;
}

static bool add_assignment(struct options *options, char *text)
{
    static const char prefix[] = "FABRAIL_";
    char name[64];
    size_t length = strcspn(text, "=");
    const char *begin = text;
    if (strncasecmp(text, prefix, sizeof(prefix) - 1) == 0)
        begin += sizeof(prefix) - 1;
    if (text[length] == '\0' || length >= sizeof(name) || begin >= text + length) {
        (void)fr_tool_refuse_value('s', "NAME=VALUE");
        return false;
    }
    snprintf(name, sizeof(name), "%.*s", (int)(text + length - begin), begin);
    return add_setting(options, "set", name, text + length + 1);
}

static bool take_option(struct options *options, int code)
{
    switch (code) {
    case 's':
        return add_assignment(options, optarg);
    case 'r':
        return add_setting(options, "report", "REPORT", optarg);
    case 'l':
        return add_setting(options, "log", "LOG", optarg);
    case 'p':
        return add_setting(options, "paths", "PATHS", optarg);
    case 'c':
        if (strcmp(optarg, "sync") != 0) {
            (void)fr_tool_refuse_value('c', "sync");
            return false;
        }
        return add_setting(options, "check", "SYNC", "check");
    case 'n':
        options->dry_run = true;
        return true;
    case CODE_PRELOAD:
        fr_words_add(&options->preloads, "%s", optarg);
        return true;
    case CODE_LIBRARY:
        snprintf(options->library, sizeof(options->library), "%s", optarg);
        return true;
    default:
        options->family = fr_launch_family_named(optarg);
        if (options->family == FR_LAUNCH_UNKNOWN)
            (void)fr_tool_refuse_value(code, "openmpi, mpich, slurm or env");
        return options->family != FR_LAUNCH_UNKNOWN;
    }
}

static bool choose_library(struct options *options)
{
    char resolved[PATH_MAX];
    bool is_named = options->library[0] != '\0';
    if (!is_named) {
        if (!fr_launch_find_library(options->library))
            return fr_tool_complain("%s is not there; name the library by --library",
                                    options->library);
    } else if (realpath(options->library, resolved) != NULL) { // ranks may start in other folders
        snprintf(options->library, sizeof(options->library), "%s", resolved);
    }
    return fr_preload_check(is_named ? "--library=" : "the library ", options->library);
}

static bool choose_preloads(struct options *options)
{
    char resolved[PATH_MAX];
    for (size_t i = 0; i < options->preloads.count; i++) {
        char **name = &options->preloads.list[i];
        if (!fr_preload_check_name("--preload=", *name))
            return false;
        char *path = realpath(*name, resolved) != NULL ? strdup(resolved) : NULL;
        if (path == NULL)
            continue;
        free(*name);
        *name = path; // ranks may start in other folders
    }
    return !options->preloads.failed || fr_tool_complain("no memory");
}

// Names another launcher that is on the path.
static bool complain_of_none(const char *name)
{
    static const char *const others[] = {"mpirun",         "mpiexec",       "srun",
                                         "mpirun.openmpi", "mpiexec.hydra", "mpiexec.mpich"};
    char path[FR_FILE_NAME_BYTES];
    for (size_t i = 0; i < FR_ARRAY_LENGTH(others); i++) {
        if (fr_launch_find_file(others[i], path))
            return fr_tool_complain("no MPI launcher %s is on the path; there is %s", name,
                                    others[i]);
    }
    return fr_tool_complain("no MPI launcher %s is on the path, nor any other", name);
}

static const char *base_of(const char *name)
{
    const char *slash = strrchr(name, '/');
    return slash != NULL ? slash + 1 : name;
}

// Slurm's other commands say the same of themselves as srun does.
static bool refuse_allocation(const char *name)
{
    const char *base = base_of(name);
    if (strcmp(base, "sbatch") != 0 && strcmp(base, "salloc") != 0)
        return true;
    return fr_tool_complain("%s starts no ranks; write fabrail run before the srun or mpirun that "
                            "does, in its script or behind it",
                            name);
}

// Returns whether a program gets rights that this user does not have. The loader preloads nothing
// into such a one (ld.so(8), secure-execution mode).
static bool gains_rights(const char *path)
{
    struct stat facts;
    struct statvfs system;
    if (stat(path, &facts) != 0 || statvfs(path, &system) != 0 || (system.f_flag & ST_NOSUID) ||
        prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1)
        return false;
    bool is_setuid = (facts.st_mode & S_ISUID) && facts.st_uid != getuid();
    bool is_setgid =
        (facts.st_mode & S_ISGID) && (facts.st_mode & S_IXGRP) && facts.st_gid != getgid();
    return is_setuid || is_setgid ||
           (getuid() != 0 && getxattr(path, "security.capability", NULL, 0) > 0);
}

// Says what is wrong with a program that is there and can be read.
static bool check_kind(const char *path, const char *library)
{
    struct fr_elf program, preload;
    if (!fr_elf_read(path, &program) || !program.is_elf || !fr_elf_read(library, &preload))
        return true; // a script, or nothing that can be told
    if (!fr_elf_matches(&program, &preload))
        return fr_tool_complain("%s is for %s, and the library for %s", path,
                                fr_elf_machine_name(&program), fr_elf_machine_name(&preload));
    if (gains_rights(path))
        return fr_tool_complain("%s is setuid or setgid, or has capabilities: nothing can be "
                                "preloaded into it",
                                path);
    return program.has_loader ||
           fr_tool_complain("%s is linked statically: nothing can be preloaded into it", path);
}

static bool is_named_as_launcher(const char *name)
{
    const char *base = base_of(name);
    size_t length = strlen(base);
    return strstr(base, "mpirun") != NULL || strstr(base, "mpiexec") != NULL ||
           (length >= 3 && strcmp(base + length - 3, "run") == 0);
}

// Returns whether a command is a program without a launcher, so far as that is seen without running
// it: a script that has the name of one, or what needs an MPI library.
static bool is_seen_to_be_program(const char *name, const char *path)
{
    struct fr_words needed = {.list = NULL};
    bool is_program = strchr(base_of(name), '.') != NULL;
    fr_elf_list_needed(path, &needed);
    for (size_t i = 0; i < needed.count && !is_program; i++)
        is_program = fr_pairing_family_of(needed.list[i]) != FR_PAIRING_NONE;
    fr_words_free(&needed);
    return is_program;
}

// Takes the command as a job of one rank: it gets the environment.
static bool run_alone(struct options *options, const char *path)
{
    options->family = FR_LAUNCH_ENV;
    options->is_alone = true;
    return check_kind(path, options->library);
}

// A launcher is asked what it is. Any other command is a program.
static bool choose_family(struct options *options, const char *name)
{
    char path[FR_FILE_NAME_BYTES];
    bool is_named = is_named_as_launcher(name), has_slash = strchr(name, '/') != NULL;
    if (options->family != FR_LAUNCH_ENV && !refuse_allocation(name))
        return false;
    if (!fr_launch_find_file(name, path)) {
        if (options->family != FR_LAUNCH_UNKNOWN)
            return fr_launch_complain("command", name);
        return is_named && !has_slash
                   ? complain_of_none(name)
                   : fr_launch_complain(is_named ? "MPI launcher" : "launcher or program", name);
    }
    if (options->family != FR_LAUNCH_UNKNOWN)
        return true;
    if (!is_named && is_seen_to_be_program(name, path))
        return run_alone(options, path);
    enum fr_status status = fr_launch_identify(name, &options->launcher);
    options->family = options->launcher.family;
    if (status == FR_OK)
        return true;
    return is_named ? fr_launch_refuse(&options->launcher, name,
                                       "; --launcher=env sets the environment and runs it")
                    : run_alone(options, path);
}

static bool names(int count, char *const *words, const char *one, const char *other)
{
    for (int i = 1; i < count; i++) {
        const char *word = words[i] + strspn(words[i], "-");
        size_t length = strcspn(word, "=");
        bool is_one = strlen(one) == length && strncmp(word, one, length) == 0;
        bool is_other = strlen(other) == length && strncmp(word, other, length) == 0;
        if (words[i][0] == '-' && (is_one || is_other))
            return true;
    }
    return false;
}

// Where ranks run elsewhere the program may be there alone, and only the launcher can tell.
static bool is_elsewhere(enum fr_launch_family family, int count, char *const *words)
{
    return family == FR_LAUNCH_SLURM || names(count, words, "wdir", "wd") ||
           names(count, words, "path", "app") || names(count, words, "H", "host") ||
           names(count, words, "hosts", "f") || names(count, words, "hostfile", "machinefile");
}

// Open MPI looks in the folder of the ranks, too, for a name without a slash.
static bool find_program(enum fr_launch_family family, const char *name,
                         char path[FR_FILE_NAME_BYTES])
{
    char here[FR_FILE_NAME_BYTES];
    if (fr_launch_find_file(name, path))
        return true;
    return family == FR_LAUNCH_OPENMPI &&
           snprintf(here, sizeof(here), "./%s", name) < (int)sizeof(here) &&
           fr_launch_find_file(here, path);
}

// Refuses env where it sets LD_PRELOAD for what it runs, or clears all, which would undo ours.
static bool check_env(int count, char *const *words)
{
    static const char name[] = "LD_PRELOAD=";
    if (count == 0 || strcmp(base_of(words[0]), "env") != 0)
        return true;
    for (int i = 1; i < count && (words[i][0] == '-' || strchr(words[i], '=') != NULL); i++) {
        bool sets = strncmp(words[i], name, sizeof(name) - 1) == 0 &&
                    strstr(words[i], "libfabrail") == NULL;
        bool clears = strcmp(words[i], "-i") == 0 || strcmp(words[i], "-") == 0 ||
                      strcmp(words[i], "--ignore-environment") == 0;
        if (sets || clears)
            return fr_tool_complain("env %s would undo the preload; name further libraries by "
                                    "fabrail run --preload",
                                    words[i]);
        i += strcmp(words[i], "-u") == 0 || strcmp(words[i], "-C") == 0; // whose word is the next
    }
    return true;
}

static bool check_program(const struct options *options, int count, char *const *words)
{
    char path[FR_FILE_NAME_BYTES];
    int at = fr_launch_find_program(options->family, count, words);
    if (options->family == FR_LAUNCH_ENV || at < 0 || names(at, words, "configfile", "app"))
        return check_env(count, words);
    if (at >= count)
        return fr_tool_complain("%s is given no program to run", words[0]);
    if (!find_program(options->family, words[at], path))
        return is_elsewhere(options->family, at, words) || fr_launch_complain("program", words[at]);
    if (!check_kind(path, options->library) || !check_env(count - at, words + at))
        return false;
    fr_pairing_check(&options->launcher, words[0], path);
    return true;
}

// LD_PRELOAD comes first, then the environment's own settings, then those of the command line.
static bool collect(const struct options *options, struct fr_words *assignments)
{
    char preload[2 * FR_FILE_NAME_BYTES];
    if (!fr_preload_compose(options->library, &options->preloads, preload, sizeof(preload)))
        return false;
    fr_words_add(assignments, "LD_PRELOAD=%s", preload);
    for (char **entry = environ; *entry != NULL; entry++) {
        bool again = strncmp(*entry, "FABRAIL_", 8) != 0;
        for (size_t i = 0; i < options->settings.count && !again; i++)
            again = strncmp(options->settings.list[i], *entry, strcspn(*entry, "=") + 1) == 0;
        if (!again)
            fr_words_add(assignments, "%s", *entry);
    }
    for (size_t i = 0; i < options->settings.count; i++)
        fr_words_add(assignments, "%s", options->settings.list[i]);
    return !assignments->failed || fr_tool_complain("no memory");
}

// The folder may be one of each rank's own.
static bool check_file(const char *setting, const char *file)
{
    const char *rank = strstr(file, "%r"), *slash = strrchr(file, '/');
    return (rank != NULL && slash != NULL && rank < slash) || fr_tool_check_folder(setting, file);
}

// Checks that files which ranks write at their end go to a folder that is there, where that can be
// told.
static bool check_files(const struct options *options, int count, char *const *words,
                        const struct fr_words *assignments)
{
    static const char *const names[] = {"FABRAIL_REPORT=", "FABRAIL_TRACE="};
    int end = fr_launch_find_program(options->family, count, words);
    if (options->is_alone)
        end = 0;
    else if (options->family == FR_LAUNCH_ENV)
        return true;
    if (is_elsewhere(options->family, end < 0 ? count : end, words))
        return true;
    for (size_t i = 0; i < assignments->count * FR_ARRAY_LENGTH(names); i++) {
        const char *name = names[i % FR_ARRAY_LENGTH(names)];
        const char *setting = assignments->list[i / FR_ARRAY_LENGTH(names)];
        const char *file = setting + strlen(name);
        if (strncmp(setting, name, strlen(name)) == 0 && *file != '\0' &&
            strcmp(file, "text") != 0 && !check_file(setting, file))
            return false;
    }
    return true;
}

// As a shell would take it.
static void print_word(const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "-_=/.,:+@%^";
    if (*word != '\0' && word[strspn(word, plain)] == '\0') {
        fputs(word, stdout);
        return;
    }
    putchar('\'');
    for (; *word != '\0'; word++) {
        if (*word == '\'')
            fputs("'\\''", stdout);
        else
            putchar(*word);
    }
    putchar('\'');
}

static void print_command(const struct options *options, const struct fr_words *command,
                          const struct fr_words *assignments)
{
    size_t first = options->family == FR_LAUNCH_ENV ? 0 : 1;
    bool by_environment = options->family == FR_LAUNCH_ENV || options->family == FR_LAUNCH_SLURM;
    for (size_t i = first; by_environment && i < assignments->count; i++) {
        const char *value = strchr(assignments->list[i], '=') + 1; // a quoted name assigns nothing
        printf("%.*s", (int)(value - assignments->list[i]), assignments->list[i]);
        print_word(value);
        putchar(' ');
    }
    for (size_t i = 0; i < command->count; i++) {
        print_word(command->list[i]);
        putchar(i + 1 < command->count ? ' ' : '\n');
    }
}

static int launch(struct options *options, int count, char **words)
{
    struct fr_words assignments = {.list = NULL}, command = {.list = NULL};
    if (!choose_library(options) || !choose_preloads(options) ||
        !choose_family(options, words[0]) || !check_program(options, count, words) ||
        !collect(options, &assignments) || !check_files(options, count, words, &assignments) ||
        !fr_launch_compose(options->family, count, words, assignments.list, &command))
        return EXIT_FAILURE;
    if (options->dry_run) {
        print_command(options, &command, &assignments);
        return EXIT_SUCCESS;
    }
    execvp(command.list[0], command.list);
    fr_tool_complain("%s cannot be run: %s", words[0], strerror(errno));
    return EXIT_FAILURE;
}

int fabrail_run(int argc, char **argv)
{
    static struct options options;
    for (int code = 0; (code = fr_tool_next(argc, argv)) != FR_TOOL_END;) {
        if (code == FR_TOOL_HELP || code == FR_TOOL_BAD)
            return fr_tool_status(code);
        if (!take_option(&options, code))
            return EXIT_USAGE;
    }
    if (optind >= argc)
        return fr_tool_misuse(
            "which launcher or program? For example: fabrail run -- mpirun -n 4 ./program");
    return launch(&options, argc - optind, argv + optind);
}
