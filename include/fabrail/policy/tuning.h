// SPDX-License-Identifier: BSD-3-Clause
// Sizes at which one way of moving bytes overtakes another: as the user sets them, as measured on a
// machine of this kind and stored in the tuning file, or by default.
//
// The file is text, with a section for each kind of machine that shares it:
//
//   # a comment
//   [NVIDIA H200, 4 GPUs, driver 580.65.06]
//   exchange_ce_min = 8M
//   message_ce_min = 0
//
// Names that are not known here are those of a later version, and left alone.
#ifndef FR_FABRAIL_POLICY_TUNING_H
#define FR_FABRAIL_POLICY_TUNING_H

#include "fabrail/core.h"

enum fr_policy_size {
    // Beyond which copy engines store bytes in place of a kernel, by what the GPUs do at once. The
    // size is that of a piece, or the largest.
    FR_SIZE_EXCHANGE_CE, // each GPU serves several, as in an all-to-all
    FR_SIZE_SPREAD_CE,   // one GPU serves several, as in a broadcast
    FR_SIZE_GATHER_CE,   // each GPU serves one
    FR_SIZE_MESSAGE_CE,  // one GPU fetches from another
    FR_SIZE_COPY_CE,     // each GPU copies within its memory
    FR_SIZE_ENGINES,     // of these
    // From which on a collective is shared out among the ranks, for the price of another step.
    FR_SIZE_BCAST_SPLIT = FR_SIZE_ENGINES, // a broadcast among three (collective.h)
    FR_SIZE_REDUCE_SHARE,                  // a reduction
    FR_SIZE_RAIL,                          // from which on a message goes over rails
    FR_SIZE_COUNT,
};

enum fr_policy_engine { FR_POLICY_KERNELS, FR_POLICY_COPY_ENGINES };

// FR_BYTES_AUTO where nobody has measured.
struct fr_policy_tuning {
    size_t bytes[FR_SIZE_COUNT];
};

// With nothing measured.
extern const struct fr_policy_tuning fr_policy_untuned;

// The name of a size in the file.
const char *fr_policy_tuning_name(enum fr_policy_size size);

enum { FR_TUNING_MAX_BYTES = 1 << 20 }; // of a file

// What a file says.
struct fr_policy_tuning_file {
    struct fr_policy_tuning tuning; // of the machine
    bool found;                     // there is a section of the machine: bytes [begin, end), up to
    size_t begin, end;              // and with its last value
    unsigned fault_line;            // from 1, what is wrong first
    const char *fault;              // static text
};

// Reads a whole file for the section of one kind of machine. Returns FR_ERR_NOT_FOUND when it has
// none, FR_ERR_INVALID when it is broken anywhere, with `fault` set and nothing tuned.
FR_MUST_CHECK enum fr_status fr_policy_tuning_read(const char *text, size_t bytes,
                                                   const char *machine,
                                                   struct fr_policy_tuning_file *file);

// Which size a line of a section is for; FR_SIZE_COUNT for a line that is for none.
enum fr_policy_size fr_policy_tuning_line(const char *text, size_t bytes);

struct fr_policy_crossover {
    size_t bytes;
    const char *reason; // for the log, static text
};

// `set_bytes` is what the user says, or FR_BYTES_AUTO.
struct fr_policy_crossover fr_policy_crossover(enum fr_policy_size size, size_t set_bytes,
                                               const struct fr_policy_tuning *measured);

// What a rank that has so many pieces to store is part of, by the number of ranks that store to it
// meanwhile: one of the sizes of engines.
enum fr_policy_size fr_policy_traffic(size_t pieces, size_t from_others);

static inline enum fr_policy_engine fr_policy_engine(size_t bytes, size_t ce_min_bytes)
{
    return bytes > ce_min_bytes ? FR_POLICY_COPY_ENGINES : FR_POLICY_KERNELS;
}

#endif
