// SPDX-License-Identifier: BSD-3-Clause
// The command `fabrail` and its subcommands. One table (fabrail.c) has a row for each subcommand,
// which names the table of its options: from both come --help, the completion of shells and the
// manual page. A subcommand is a function
//
//   int fabrail_NAME(int argc, char **argv)
//
// that gets its own arguments, argv[0] being the name that complaints begin with ("fabrail tune").
// It returns the exit status: 0, EXIT_FAILURE, or EXIT_USAGE for a mistake on the command line.
#ifndef FR_TOOLS_COMMAND_H
#define FR_TOOLS_COMMAND_H

#include "fabrail/core.h"

#include <stdio.h>

enum { EXIT_USAGE = 2 };

// One option. A table of them ends with a row without a name; --help and --version are in none.
struct fr_tool_option {
    const char *name;     // the long form, without dashes
    int code;             // what fr_tool_next returns: its letter, or from FR_TOOL_NO_LETTER on
    const char *argument; // what --help calls the argument, NULL for an option without
    const char *values;   // for completion: words, one of the three below, or NULL
    const char *help;     // some words, without a full stop
};
enum { FR_TOOL_NO_LETTER = 256 };
#define FR_TOOL_FILES    "@files"
#define FR_TOOL_FOLDERS  "@folders"
#define FR_TOOL_SETTINGS "@settings" // name=value

struct fr_tool_command {
    const char *name;
    int (*run)(int argc, char **argv);
    const struct fr_tool_option *options;
    const char *operands; // behind the options, "" for none
    const char *summary;  // a line of the list of subcommands
    const char *about;    // sentences, in lines that fit a terminal
    bool stops;           // options end at the first operand, which begins a command of its own
};

// Returns the code of the next option, with its argument in getopt's `optarg`, or one of these.
enum {
    FR_TOOL_END = -1,  // operands follow, from `optind` on
    FR_TOOL_HELP = -2, // help or the version was printed: end well
    FR_TOOL_BAD = -3,  // there was a complaint on standard error
};
int fr_tool_next(int argc, char **argv);

// The exit status for the two codes after which a subcommand ends.
int fr_tool_status(int code);

// Writes a line to standard error, after the name of the command. Returns false.
bool fr_tool_complain(const char *format, ...) FR_PRINTF(1, 2);

// Complains as fr_tool_complain does, and says where to read on. Returns EXIT_USAGE.
int fr_tool_misuse(const char *format, ...) FR_PRINTF(1, 2);

// Says that the option just read takes `what` ("a size"), and not its argument. Returns EXIT_USAGE.
int fr_tool_refuse_value(int code, const char *what);

// Writes a file by `write`, under another name first, so that nobody finds half of it; what is no
// plain file is written to as it is. Complains and returns false when that fails.
typedef void (*fr_tool_write_fn)(FILE *out, const void *what);
bool fr_tool_write_file(const char *name, fr_tool_write_fn write, const void *what);

// Looks, before work is done for it, whether a file can be made where its name says. `what` begins
// the complaint. Returns false after one.
bool fr_tool_check_folder(const char *what, const char *file);

// Makes a row the one whose options fr_tool_next reads, and `name` what complaints begin with.
void fr_tool_begin(const struct fr_tool_command *command, const char *name);

void fr_tool_print_help(const struct fr_tool_command *command);
void fr_tool_print_version(void);

// The manual page's part on the subcommands, as roff. The table ends with a row without a name.
void fr_tool_write_manual(FILE *out, const struct fr_tool_command *commands);

// Writes the completion script of a shell. Returns false for a shell that there is none for.
bool fr_tool_write_completion(FILE *out, const char *shell);
// Answers such a script, on standard output: the words behind `fabrail`, the last of which is to be
// completed.
void fr_tool_complete(const struct fr_tool_command *commands, int count, char **words);

// The subcommands, and their options.
int fabrail_report(int argc, char **argv);
extern const struct fr_tool_option fabrail_report_options[];
int fabrail_run(int argc, char **argv);
extern const struct fr_tool_option fabrail_run_options[];
int fabrail_bench(int argc, char **argv);
extern const struct fr_tool_option fabrail_bench_options[];
int fabrail_explain(int argc, char **argv);
extern const struct fr_tool_option fabrail_explain_options[];
int fabrail_info(int argc, char **argv);
extern const struct fr_tool_option fabrail_info_options[];
int fabrail_tune(int argc, char **argv);
extern const struct fr_tool_option fabrail_tune_options[];

#endif
