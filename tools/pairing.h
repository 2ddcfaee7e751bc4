// SPDX-License-Identifier: BSD-3-Clause
// Whether a program and a launcher are of one MPI, and of one that this build of the library
// serves.
#ifndef FR_TOOLS_PAIRING_H
#define FR_TOOLS_PAIRING_H

#include "launch.h"

// Bits of the families that a build serves. FR_SERVES_ABI is the standard ABI, whose programs run
// under either launcher.
enum { FR_SERVES_OPENMPI = 1u << 0, FR_SERVES_MPICH = 1u << 1, FR_SERVES_ABI = 1u << 2 };
extern const unsigned fr_pairing_served; // by this build

// The family that a library's soname tells, such as "libmpi.so.40"; 0 for any other library.
unsigned fr_pairing_family_of(const char *soname);

enum fr_pairing {
    FR_PAIRING_GOOD,     // or nothing can be told
    FR_PAIRING_UNSERVED, // the library would do nothing for the ranks
    FR_PAIRING_STRANGE,  // the program's MPI need not understand the launcher
};

// Judges a program by the library that it needs (`soname`, NULL for none that is known), and the
// launcher where that tells nothing. `text` says what is wrong; it is empty for FR_PAIRING_GOOD.
enum fr_pairing fr_pairing_judge(const struct fr_launcher *launcher, const char *name,
                                 const char *program, const char *soname, unsigned served,
                                 char *text, size_t room);

// Judges a program's file by what it says that it needs. Warns of FR_PAIRING_STRANGE; complains of
// FR_PAIRING_UNSERVED and returns false. `program` is NULL where it is not known.
FR_MUST_CHECK bool fr_pairing_check(const struct fr_launcher *launcher, const char *name,
                                    const char *program);

#endif
