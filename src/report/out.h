// SPDX-License-Identifier: BSD-3-Clause
// Files of the report and of the trace.
#ifndef FR_REPORT_OUT_H
#define FR_REPORT_OUT_H

#include <stdbool.h>
#include <stddef.h>

// A file that is written by plain system calls, so that a signal handler can do it.
struct fr_report_out {
    int fd;
    int failed;      // errno of the first failed write
    bool in_place;   // the file has its final name already
    bool has_member; // the list that is being written has one
    size_t used;
    char *buffer;
    size_t room;
};

// Removes a regular file that an earlier job has left under this name, if there is one.
void fr_report_out_remove(const char *name);

// Opens a file of this name with ".part" behind it. A device or the like is opened under its own
// name. `buffer` of `room` bytes stays in use until the file is closed. Returns false with errno
// set.
bool fr_report_out_open(struct fr_report_out *out, const char *name, char *buffer, size_t room);
// Writes what is left, closes the file and gives it its name. Returns false, with errno of the
// first error, if anything has failed.
bool fr_report_out_close(struct fr_report_out *out, const char *name);

// Writes `format`. It may contain %s for text, %q for text as a JSON string (null for NULL), %u for
// a uint64_t and %i for an int. %b writes a bool as JSON. %t writes a uint64_t of nanoseconds as
// microseconds with three decimals. %[ begins a list, %, a member of it on a line of its own, and
// %] ends the list.
void fr_report_put(struct fr_report_out *out, const char *format, ...);

#endif
