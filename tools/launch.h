// SPDX-License-Identifier: BSD-3-Clause
// Launchers of MPI jobs: which there are, which family's options they take, and how the ranks get
// environment variables through them.
#ifndef FR_TOOLS_LAUNCH_H
#define FR_TOOLS_LAUNCH_H

#include "child.h"
#include "fabrail/core/files.h"

// How a launcher hands variables to the ranks.
enum fr_launch_family {
    FR_LAUNCH_UNKNOWN,
    FR_LAUNCH_OPENMPI, // -x NAME=VALUE
    FR_LAUNCH_MPICH,   // -genv NAME VALUE; Intel MPI and others of Hydra too
    FR_LAUNCH_SLURM,   // --export=ALL,NAME=VALUE
    FR_LAUNCH_ENV,     // the launcher's own environment
    FR_LAUNCH_COUNT,
};

// "openmpi", "mpich", "slurm", "env"; FR_LAUNCH_UNKNOWN for any other name.
enum fr_launch_family fr_launch_family_named(const char *name);
const char *fr_launch_family_name(enum fr_launch_family family);

struct fr_launcher {
    char path[FR_FILE_NAME_BYTES];
    enum fr_launch_family family;
    char version[160]; // such as "Open MPI 4.1.4"
    char failure[160]; // the last line of a command that failed in place of telling its version
};

// Looks for an executable file as execvp does. Returns false when there is none.
bool fr_launch_find_file(const char *name, char path[FR_FILE_NAME_BYTES]);

// Says why there is no such file to run ("program", "./a"), which was looked for in vain. Returns
// false.
bool fr_launch_complain(const char *what, const char *name);

// Says why a command that fr_launch_identify has refused is no launcher, and `advice`. Returns
// false.
bool fr_launch_refuse(const struct fr_launcher *launcher, const char *name, const char *advice);

// Finds the launcher and asks it for its version to tell the family. Returns FR_ERR_NOT_FOUND when
// there is no such command, FR_ERR_UNSUPPORTED when it is none that is known here.
FR_MUST_CHECK enum fr_status fr_launch_identify(const char *name, struct fr_launcher *launcher);

// Finds out about a launcher of installed programs, which are of the family `programs` where the
// launcher does not tell. Returns false after a complaint.
bool fr_launch_identify_for(const char *name, enum fr_launch_family programs,
                            struct fr_launcher *launcher);

// Where the library is that belongs to this command: beside it in a build folder, in the library
// folder beside its own, or where it was configured to be installed. Returns false when it is in
// none of them; `path` then is the last one.
bool fr_launch_find_library(char path[FR_FILE_NAME_BYTES]);

// The folder of the programs that were built or installed with this command. Returns false when
// they are not there; `folder` then is the last one that was looked at.
bool fr_launch_find_programs(char folder[FR_FILE_NAME_BYTES]);

// The program NAME-FLAVOUR of a folder for an MPI: the one built with its family, and where there
// are two, with the release that is nearer. `family` is the program's where the launcher does not
// tell. Returns false when there is none.
bool fr_launch_find_benchmark(const char *folder, const char *name,
                              const struct fr_launcher *launcher, enum fr_launch_family family,
                              char *path, size_t room);

// The program among a launcher's arguments: its position, `count` when there is none, -1 when some
// option is not known, so that nothing can be said.
int fr_launch_find_program(enum fr_launch_family family, int count, char *const *words);

// Puts together the command that gives `assignments` ("NAME=VALUE", ended by NULL, the first being
// LD_PRELOAD) to the ranks: `words` are the launcher's, with its name first. Variables of the
// launcher's own environment are put there. Returns false after a complaint.
FR_MUST_CHECK bool fr_launch_compose(enum fr_launch_family family, int count, char *const *words,
                                     char *const *assignments, struct fr_words *command);

#endif
