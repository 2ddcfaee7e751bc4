// SPDX-License-Identifier: BSD-3-Clause
// Small files that users and administrators keep for Fabrail: where they are, and their text.
#ifndef FR_FABRAIL_CORE_FILES_H
#define FR_FABRAIL_CORE_FILES_H

#include "fabrail/core.h"

enum { FR_FILE_NAME_BYTES = 4096 };

// Write the path of a file named `name`. The user's own is $XDG_CONFIG_HOME/fabrail/NAME, by
// default ~/.config/fabrail/NAME. The one for all users is in the folder of the system's settings.
// Return false when there is no such place: no home, or a path that is too long.
bool fr_core_file_of_user(const char *name, char path[FR_FILE_NAME_BYTES]);
bool fr_core_file_of_system(const char *name, char path[FR_FILE_NAME_BYTES]);

// Reads a regular file of at most `max_bytes`. The caller frees *text, which has a 0 after its
// *bytes. Returns FR_ERR_NOT_FOUND when there is none, and FR_ERR_INVALID when it cannot be read or
// is too large. Logs nothing; errno says why.
FR_MUST_CHECK enum fr_status fr_core_file_read(const char *path, size_t max_bytes, char **text,
                                               size_t *bytes);

// Writes the names of the folders in `folder` that have an entry `inside`, with blanks between the
// names. The kernel lists devices of a class in that way. Stops at a name for which `text`, of
// `room` bytes, has no more room. Returns the number of names written.
int fr_core_folder_list(const char *folder, const char *inside, char *text, size_t room);

#endif
