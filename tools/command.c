// SPDX-License-Identifier: BSD-3-Clause
// Code that all subcommands share: reading options by the table, help and complaints.
#include "config.h"

#include "command.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_OPTIONS = 40, HELP_COLUMN = 26 };

static const struct fr_tool_command *current;
static const char *current_name = "fabrail";

void fr_tool_begin(const struct fr_tool_command *command, const char *name)
{
    current = command;
    current_name = name;
    optind = 0; // getopt starts anew
}

static void FR_PRINTF(1, 0) complain(const char *format, va_list arguments)
{
    fflush(stdout);
    fprintf(stderr, "%s: ", current_name);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
}

bool fr_tool_complain(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    complain(format, arguments);
    va_end(arguments);
    return false;
}

int fr_tool_misuse(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    complain(format, arguments);
    va_end(arguments);
    fprintf(stderr, "Try %s --help.\n", current_name);
    return EXIT_USAGE;
}

// Fills what getopt_long takes from the table of the current subcommand.
static void fill(struct option *longs, char *letters)
{
    size_t count = 0;
    if (current->stops)
        *letters++ = '+';
    for (const struct fr_tool_option *o = current->options; o->name != NULL; o++) {
        longs[count++] = (struct option){
            o->name, o->argument != NULL ? required_argument : no_argument, NULL, o->code};
        if (o->code >= FR_TOOL_NO_LETTER)
            continue;
        *letters++ = (char)o->code;
        if (o->argument != NULL)
            *letters++ = ':';
    }
    longs[count++] = (struct option){"help", no_argument, NULL, 'h'};
    longs[count++] = (struct option){"version", no_argument, NULL, 'V'};
    longs[count] = (struct option){NULL, 0, NULL, 0};
    strcpy(letters, "hV");
}

static const struct fr_tool_option *option_of(int code)
{
    const struct fr_tool_option *o = current->options;
    while (o->name != NULL && o->code != code)
        o++;
    return o;
}

int fr_tool_refuse_value(int code, const char *what)
{
    return fr_tool_misuse("--%s takes %s, not \"%s\"", option_of(code)->name, what, optarg);
}

// getopt takes any word that follows for the value of an option that has lost its own.
static bool lacks_value(char *const *argv, int code)
{
    return code > 0 && optarg != NULL && optarg == argv[optind - 1] &&
           strncmp(optarg, "--", 2) == 0 && option_of(code)->name != NULL;
}

int fr_tool_next(int argc, char **argv)
{
    struct option longs[MOST_OPTIONS + 3];
    char letters[2 * MOST_OPTIONS + 4];
    fill(longs, letters);
    int code = getopt_long(argc, argv, letters, longs, NULL);
    if (lacks_value(argv, code)) {
        const struct fr_tool_option *option = option_of(code);
        fr_tool_misuse("--%s lacks its %s before \"%s\"; a value that begins so is written "
                       "--%s=VALUE",
                       option->name, option->argument, optarg, option->name);
        return FR_TOOL_BAD;
    }
    switch (code) {
    case 'h':
        fr_tool_print_help(current);
        return FR_TOOL_HELP;
    case 'V':
        fr_tool_print_version();
        return FR_TOOL_HELP;
    case '?': // getopt has complained
        fprintf(stderr, "Try %s --help.\n", current_name);
        return FR_TOOL_BAD;
    default:
        return code;
    }
}

int fr_tool_status(int code)
{
    return code == FR_TOOL_HELP ? EXIT_SUCCESS : EXIT_USAGE;
}

static void print_option(const char *name, int letter, const char *argument, const char *help)
{
    char text[80] = "      --";
    if (letter < FR_TOOL_NO_LETTER)
        snprintf(text, sizeof(text), "  -%c, --", letter);
    size_t used = strlen(text);
    snprintf(text + used, sizeof(text) - used, "%s%s%s", name, argument != NULL ? "=" : "",
             argument != NULL ? argument : "");
    if (strlen(text) + 2 > HELP_COLUMN)
        printf("%s\n%*s%s\n", text, HELP_COLUMN, "", help);
    else
        printf("%-*s%s\n", HELP_COLUMN, text, help);
}

void fr_tool_print_help(const struct fr_tool_command *command)
{
    printf("Usage: %s [OPTION...]%s%s\n%s\n\n", current_name, *command->operands ? " " : "",
           command->operands, command->about);
    for (const struct fr_tool_option *o = command->options; o->name != NULL; o++)
        print_option(o->name, o->code, o->argument, o->help);
    print_option("help", 'h', NULL, "print this and exit");
    print_option("version", 'V', NULL, "print the version and exit");
    puts("\nThe manual page, fabrail(1), says more.");
}

void fr_tool_print_version(void)
{
    printf("%s " PACKAGE_VERSION "\n", current_name);
}

// Devices, pipes and links: they are written to, and no file takes their place.
static bool is_special(const char *name)
{
    struct stat found;
    return lstat(name, &found) == 0 && !S_ISREG(found.st_mode);
}

bool fr_tool_check_folder(const char *what, const char *file)
{
    char folder[PATH_MAX];
    struct stat facts;
    const char *slash = strrchr(file, '/');
    int length = slash == NULL ? 1 : slash == file ? 1 : (int)(slash - file);
    snprintf(folder, sizeof(folder), "%.*s", length, slash == NULL ? "." : file);
    bool is_there = stat(file, &facts) == 0;
    if (is_there && S_ISDIR(facts.st_mode))
        return fr_tool_complain("%s: %s is a folder", what, file);
    if (is_there && access(file, W_OK) == 0)
        return true;
    if (stat(folder, &facts) != 0 || !S_ISDIR(facts.st_mode))
        return fr_tool_complain("%s: there is no folder %s", what, folder);
    return access(folder, W_OK | X_OK) == 0 ||
           fr_tool_complain("%s: %s may not be written to", what, folder);
}

bool fr_tool_write_file(const char *name, fr_tool_write_fn write, const void *what)
{
    char part[PATH_MAX];
    bool special = is_special(name);
    if (snprintf(part, sizeof(part), "%s%s", name, special ? "" : ".part") >= (int)sizeof(part))
        return fr_tool_complain("%s cannot be written: %s", name, strerror(ENAMETOOLONG));
    FILE *out = fopen(part, "w");
    if (!out)
        return fr_tool_complain("%s cannot be written: %s", name, strerror(errno));
    write(out, what);
    bool failed = ferror(out);
    failed = fclose(out) != 0 || failed;
    if (!failed && (special || rename(part, name) == 0))
        return true;
    int saved = errno;
    if (!special)
        unlink(part);
    return fr_tool_complain("%s cannot be written: %s", name, strerror(saved));
}
