// SPDX-License-Identifier: BSD-3-Clause
// From which sizes on copy engines move bytes between GPUs in place of kernels: as the user sets
// it, as measured on a machine of this kind and stored in the tuning file, or by default.
//
// The file is text, with a section for each kind of machine that shares it:
//
//   # a comment
//   [NVIDIA H200, 4 GPUs, driver 580.65.06]
//   exchange_ce_min = 8M
//   message_ce_min = 0
//
// Names that are not known here are those of a later version, and left alone.
#ifndef FR_POLICY_TUNING_H
#define FR_POLICY_TUNING_H

#include "core/core.h"

enum fr_policy_transfer {
    FR_TRANSFER_EXCHANGE, // a GPU serves all its peers at once; its size is that of the largest
    FR_TRANSFER_MESSAGE,  // a single message between two GPUs
    FR_TRANSFER_COUNT,
};

enum fr_policy_engine { FR_POLICY_KERNELS, FR_POLICY_COPY_ENGINES };

// Sizes beyond which copy engines are the faster ones. FR_BYTES_AUTO where nobody has measured.
struct fr_policy_tuning {
    size_t ce_min_bytes[FR_TRANSFER_COUNT];
};

// The name of a size in the file.
const char *fr_policy_tuning_name(enum fr_policy_transfer transfer);

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

struct fr_policy_crossover {
    size_t ce_min_bytes;
    const char *reason; // for the log, static text
};

// `set_bytes` is what the user says, or FR_BYTES_AUTO.
struct fr_policy_crossover fr_policy_crossover(enum fr_policy_transfer transfer, size_t set_bytes,
                                               const struct fr_policy_tuning *measured);

static inline enum fr_policy_engine fr_policy_engine(size_t bytes, size_t ce_min_bytes)
{
    return bytes > ce_min_bytes ? FR_POLICY_COPY_ENGINES : FR_POLICY_KERNELS;
}

#endif
