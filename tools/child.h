// SPDX-License-Identifier: BSD-3-Clause
// Other programs that the command starts: lists of words, and a run with what it printed.
#ifndef FR_TOOLS_CHILD_H
#define FR_TOOLS_CHILD_H

#include "fabrail/core.h"

// A command line under construction. The words are the list's own; it ends with NULL.
struct fr_words {
    char **list;
    size_t count, room;
    bool failed; // there was no memory for some word
};
void fr_words_add(struct fr_words *words, const char *format, ...) FR_PRINTF(2, 3);
void fr_words_free(struct fr_words *words);

// How a program ended.
struct fr_child_result {
    bool started;   // false: it could not be run at all
    bool timed_out; // it was ended, with all that it had started in its process group
    int status;     // exit status, 128 and the signal for a signal
    char *output;   // both of its streams, ended by a 0; the caller frees it
    size_t bytes;
};

enum { FR_CHILD_MOST_OUTPUT = 16 << 20 };

// Runs argv[0], looked for on the path, without standard input, and collects what it prints, up to
// FR_CHILD_MOST_OUTPUT. `assignments` ("NAME=VALUE", ended by NULL) go into its environment; NULL
// for none.
void fr_child_run(char *const *argv, char *const *assignments, int seconds,
                  struct fr_child_result *result);

#endif
