// SPDX-License-Identifier: BSD-3-Clause
// Finds out whether a program and a launcher are of one MPI.
#ifndef FR_TOOLS_PAIRING_H
#define FR_TOOLS_PAIRING_H

#include "launch.h"

// Families of MPIs. Programs of the standard ABI run under any launcher.
enum fr_pairing_family {
    FR_PAIRING_NONE, // not known
    FR_PAIRING_OPENMPI,
    FR_PAIRING_MPICH,
    FR_PAIRING_ABI,
};

// Returns the family that a library's soname tells, such as "libmpi.so.40"; FR_PAIRING_NONE for any
// other library and for NULL.
enum fr_pairing_family fr_pairing_family_of(const char *soname);

// Warns when the program's file says that it needs the library of another MPI than the launcher's.
void fr_pairing_check(const struct fr_launcher *launcher, const char *name, const char *program);

#endif
