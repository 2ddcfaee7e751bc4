// SPDX-License-Identifier: BSD-3-Clause
// A program under the launcher of another MPI mostly runs as so many jobs of one rank, each of
// which ends well. So the libraries that the program needs are compared with the launcher before.
#include "config.h"

#include "command.h"
#include "elf_file.h"
#include "pairing.h"

#include <fnmatch.h>
#include <string.h>

const unsigned fr_pairing_served = FR_SERVES_ABI
#ifdef FR_HAVE_OPENMPI
                                   | FR_SERVES_OPENMPI
#endif
#ifdef FR_HAVE_MPICH
                                   | FR_SERVES_MPICH
#endif
    ;

// The first that fits counts. MPIs with MPICH's ABI have 12 as their number.
static const struct {
    const char *pattern;
    unsigned family;
} sonames[] = {
    {"libmpi_abi.so*", FR_SERVES_ABI},       {"libmpi.so.[24]0", FR_SERVES_OPENMPI},
    {"libmpi_mpifh.so*", FR_SERVES_OPENMPI}, {"libmpi_usempi*.so*", FR_SERVES_OPENMPI},
    {"libmpi_ibm*.so*", FR_SERVES_OPENMPI},  {"libmpich*.so*", FR_SERVES_MPICH},
    {"libmpi*.so.12", FR_SERVES_MPICH},
};

unsigned fr_pairing_family_of(const char *soname)
{
    for (size_t i = 0; i < FR_ARRAY_LENGTH(sonames); i++) {
        if (fnmatch(sonames[i].pattern, soname, 0) == 0)
            return sonames[i].family;
    }
    return 0;
}

static unsigned family_of_launcher(const struct fr_launcher *launcher)
{
    return launcher->family == FR_LAUNCH_OPENMPI ? FR_SERVES_OPENMPI
           : launcher->family == FR_LAUNCH_MPICH ? FR_SERVES_MPICH
                                                 : 0;
}

static const char *family_name(unsigned family)
{
    return family == FR_SERVES_OPENMPI ? "Open MPI"
           : family == FR_SERVES_MPICH ? "the MPICH family"
                                       : "the MPI standard ABI";
}

// PRRTE's own launcher is not of one MPI alone.
static bool serves_any(const struct fr_launcher *launcher)
{
    return family_of_launcher(launcher) == 0 || strncmp(launcher->version, "PRRTE", 5) == 0;
}

enum fr_pairing fr_pairing_judge(const struct fr_launcher *launcher, const char *name,
                                 const char *program, const char *soname, unsigned served,
                                 char *text, size_t room)
{
    unsigned needed = soname ? fr_pairing_family_of(soname) : 0;
    unsigned offered = serves_any(launcher) ? 0 : family_of_launcher(launcher);
    text[0] = '\0';
    if (needed & ~served) {
        snprintf(text, room, "%s needs %s, of %s, which this build of Fabrail does not serve",
                 program, soname, family_name(needed));
        return FR_PAIRING_UNSERVED;
    }
    if (!needed && (offered & ~served)) {
        snprintf(text, room, "%s is of %s, which this build of Fabrail does not serve", name,
                 launcher->version);
        return FR_PAIRING_UNSERVED;
    }
    if (!offered || !needed || needed == FR_SERVES_ABI || needed == offered)
        return FR_PAIRING_GOOD;
    snprintf(text, room,
             "%s is of %s, but %s needs %s, of %s: each rank may run as a job of its own; start it "
             "by the mpirun or mpiexec of its own MPI",
             name, launcher->version, program, soname, family_name(needed));
    return FR_PAIRING_STRANGE;
}

static const char *find_mpi(const struct fr_words *libraries)
{
    for (size_t i = 0; i < libraries->count; i++) {
        if (fr_pairing_family_of(libraries->list[i]))
            return libraries->list[i];
    }
    return NULL;
}

bool fr_pairing_check(const struct fr_launcher *launcher, const char *name, const char *program)
{
    struct fr_words libraries = {.list = NULL};
    char text[2 * FR_FILE_NAME_BYTES];
    if (program != NULL)
        fr_elf_list_needed(program, &libraries);
    enum fr_pairing pairing = fr_pairing_judge(launcher, name, program, find_mpi(&libraries),
                                               fr_pairing_served, text, sizeof(text));
    fr_words_free(&libraries);
    if (pairing == FR_PAIRING_STRANGE)
        (void)fr_tool_complain("warning: %s", text);
    return pairing != FR_PAIRING_UNSERVED || fr_tool_complain("%s", text);
}
