// SPDX-License-Identifier: BSD-3-Clause
// Sizes at which one way of moving bytes overtakes another. The user's setting counts first, then
// what was measured on a machine of this kind and stored in the tuning file, then a default.
//
// The file is text, with a section for each kind of machine that shares it:
//
//   # a comment
//   [NVIDIA H200, 4 GPUs, driver 580.65.06]
//   exchange_ce_min = 8M
//   message_ce_min = 0
//
// Names that this version does not know are those of a later version, and are left alone.
#ifndef FR_FABRAIL_POLICY_TUNING_H
#define FR_FABRAIL_POLICY_TUNING_H

#include "fabrail/core.h"

enum fr_policy_size {
    // Sizes of a piece, or of the largest, beyond which copy engines store bytes in place of a
    // kernel. Each row counts for what the GPUs do at once.
    FR_SIZE_EXCHANGE_CE, // each GPU serves several, as in an all-to-all
    FR_SIZE_SPREAD_CE,   // one GPU serves several, as in a broadcast
    FR_SIZE_GATHER_CE,   // each GPU serves one other
    FR_SIZE_MESSAGE_CE,  // one GPU fetches from another
    FR_SIZE_COPY_CE,     // each GPU copies within its memory
    FR_SIZE_ENGINES,     // number of the sizes above
    // Sizes from which a collective is shared out among the ranks, for the price of another step.
    FR_SIZE_BCAST_SPLIT = FR_SIZE_ENGINES, // a broadcast among three ranks (coll_plan.h)
    FR_SIZE_REDUCE_SHARE,                  // a reduction
    FR_SIZE_PACK_FIRST, // bytes between short blocks from which on the sender packs (scheme.h)
    FR_SIZE_RAIL,       // size from which a message goes over rails
    FR_SIZE_COMBINE,    // size from which an operation of the program's own is shared out
    // Most bytes that the CPU copies itself, in place of the driver (device/aperture.h).
    FR_SIZE_CPU_READ,  // out of a GPU's memory
    FR_SIZE_CPU_WRITE, // into it
    FR_SIZE_COUNT,
};

enum fr_policy_engine { FR_POLICY_KERNELS, FR_POLICY_COPY_ENGINES };

// Measured sizes; FR_BYTES_AUTO where nobody has measured.
struct fr_policy_tuning {
    size_t bytes[FR_SIZE_COUNT];
};

// Sizes with nothing measured: all FR_BYTES_AUTO.
extern FR_OWN const struct fr_policy_tuning fr_policy_untuned;

// Returns the name of a size in the tuning file, static text.
const char *fr_policy_tuning_name(enum fr_policy_size size);

enum { FR_TUNING_MAX_BYTES = 1 << 20 }; // most bytes of a tuning file

// The content of a tuning file for one kind of machine.
struct fr_policy_tuning_file {
    struct fr_policy_tuning tuning; // sizes measured on the machine
    bool found;                     // the file has a section of the machine
    size_t begin, end;              // its bytes in the text, up to and with its last value
    unsigned fault_line;            // line of the first fault, from 1
    const char *fault;              // what is wrong there, static text
};

// Reads the text of a whole file for the section of one kind of machine, and fills *file. Returns
// FR_ERR_NOT_FOUND when it has no such section. Returns FR_ERR_INVALID when the text is broken
// anywhere; then `fault` is set and nothing is tuned.
FR_MUST_CHECK enum fr_status fr_policy_tuning_read(const char *text, size_t bytes,
                                                   const char *machine,
                                                   struct fr_policy_tuning_file *file);

// Returns which size a line of a section is for; FR_SIZE_COUNT for a line that is for none.
enum fr_policy_size fr_policy_tuning_line(const char *text, size_t bytes);

// The size at which one way overtakes another, and where that size comes from.
struct fr_policy_crossover {
    size_t bytes;
    const char *reason; // for the log, static text
};

// Returns the size that counts, and where it comes from. `set_bytes` is what the user has set, or
// FR_BYTES_AUTO.
struct fr_policy_crossover fr_policy_crossover(enum fr_policy_size size, size_t set_bytes,
                                               const struct fr_policy_tuning *measured);

// Returns which size for copy engines fits the traffic of a rank. `pieces` is how many pieces this
// rank stores; `from_others` is how many ranks store to it meanwhile.
static inline enum fr_policy_size fr_policy_traffic(size_t pieces, size_t from_others)
{
    if (pieces <= 1)
        return FR_SIZE_GATHER_CE;
    return from_others > 0 ? FR_SIZE_EXCHANGE_CE : FR_SIZE_SPREAD_CE;
}

// Returns the engine for a piece of `bytes`, when copy engines serve beyond `ce_min_bytes`.
static inline enum fr_policy_engine fr_policy_engine(size_t bytes, size_t ce_min_bytes)
{
    return bytes > ce_min_bytes ? FR_POLICY_COPY_ENGINES : FR_POLICY_KERNELS;
}

#endif
