// SPDX-License-Identifier: BSD-3-Clause
// A program under the launcher of another MPI mostly runs as so many jobs of one rank, each of
// which ends well. So the libraries that the program needs are compared with the launcher before.
#include "config.h"

#include "command.h"
#include "elf_file.h"
#include "pairing.h"

#include <fnmatch.h>
#include <string.h>

// The first that fits counts. MPIs with MPICH's ABI have 12 as their number.
static const struct {
    const char *pattern;
    enum fr_pairing_family family;
} sonames[] = {
    {"libmpi_abi.so*", FR_PAIRING_ABI},       {"libmpi.so.[24]0", FR_PAIRING_OPENMPI},
    {"libmpi_mpifh.so*", FR_PAIRING_OPENMPI}, {"libmpi_usempi*.so*", FR_PAIRING_OPENMPI},
    {"libmpi_ibm*.so*", FR_PAIRING_OPENMPI},  {"libmpich*.so*", FR_PAIRING_MPICH},
    {"libmpi*.so.12", FR_PAIRING_MPICH},
};

enum fr_pairing_family fr_pairing_family_of(const char *soname)
{
    for (size_t i = 0; soname != NULL && i < FR_ARRAY_LENGTH(sonames); i++) {
        if (fnmatch(sonames[i].pattern, soname, 0) == 0)
            return sonames[i].family;
    }
    return FR_PAIRING_NONE;
}

static enum fr_pairing_family family_of_launcher(const struct fr_launcher *launcher)
{
    return launcher->family == FR_LAUNCH_OPENMPI ? FR_PAIRING_OPENMPI
           : launcher->family == FR_LAUNCH_MPICH ? FR_PAIRING_MPICH
                                                 : FR_PAIRING_NONE;
}

static const char *family_name(enum fr_pairing_family family)
{
    return family == FR_PAIRING_OPENMPI ? "Open MPI"
           : family == FR_PAIRING_MPICH ? "the MPICH family"
                                        : "the MPI standard ABI";
}

// PRRTE's own launcher is not of one MPI alone.
static bool serves_any(const struct fr_launcher *launcher)
{
    return family_of_launcher(launcher) == FR_PAIRING_NONE ||
           strncmp(launcher->version, "PRRTE", 5) == 0;
}

// Returns whether a program that needs the library `soname` (NULL: not known) fits the launcher
// that is called `name`. Where it does not, `text` says why; else that is empty.
static bool fits_launcher(const struct fr_launcher *launcher, const char *name, const char *program,
                          const char *soname, char *text, size_t room)
{
    enum fr_pairing_family needed = fr_pairing_family_of(soname);
    enum fr_pairing_family offered =
        serves_any(launcher) ? FR_PAIRING_NONE : family_of_launcher(launcher);
    text[0] = '\0';
    if (!offered || !needed || needed == FR_PAIRING_ABI || needed == offered)
        return true;
    snprintf(text, room,
             "%s is of %s, but %s needs %s, of %s: each rank may run as a job of its own; start it "
             "by the mpirun or mpiexec of its own MPI",
             name, launcher->version, program, soname, family_name(needed));
    return false;
}

static const char *find_mpi(const struct fr_words *libraries)
{
    for (size_t i = 0; i < libraries->count; i++) {
        if (fr_pairing_family_of(libraries->list[i]))
            return libraries->list[i];
    }
    return NULL;
}

void fr_pairing_check(const struct fr_launcher *launcher, const char *name, const char *program)
{
    struct fr_words libraries = {.list = NULL};
    char text[2 * FR_FILE_NAME_BYTES];
    fr_elf_list_needed(program, &libraries);
    if (!fits_launcher(launcher, name, program, find_mpi(&libraries), text, sizeof(text)))
        (void)fr_tool_complain("warning: %s", text);
    fr_words_free(&libraries);
}
