// SPDX-License-Identifier: BSD-3-Clause
// Which path a buffer of a call takes and why, out of the functions of module policy that the
// library itself goes by, and of facts: of this machine, of the command line, or of a report.
#ifndef FR_TOOLS_EXPLAIN_H
#define FR_TOOLS_EXPLAIN_H

#include "fabrail/abi.h"
#include "fabrail/device.h"
#include "fabrail/policy.h"

// Where the other end of a call is.
enum fr_explain_place {
    FR_PLACE_HOST,   // on this host, on a GPU that can map this one's memory and the reverse
    FR_PLACE_GPU,    // on the same GPU, without MPS
    FR_PLACE_APART,  // on this host, where neither can
    FR_PLACE_CLIQUE, // on another host that multi-node NVLink reaches
    FR_PLACE_AWAY,   // on any other host
    FR_PLACE_SELF,   // the rank itself
    FR_PLACE_COUNT,
};
const char *fr_explain_place_name(enum fr_explain_place place);
const char *fr_explain_place_text(enum fr_explain_place place);

// A datatype of the command line.
struct fr_explain_type {
    const char *text;
    size_t bytes; // of one element, without gaps
    bool has_gaps;
    struct fr_policy_pieces pieces;
    size_t wasted_bytes; // that NVLink would carry between its blocks
};

// Reads a datatype. Returns false where the text is none.
bool fr_explain_type_read(const char *text, struct fr_explain_type *type);

// Returns whether a kernel packs and unpacks the type, and why.
struct fr_policy_packing fr_explain_type(const struct fr_explain_type *type);

struct fr_explain_facts {
    const char *family; // "Open MPI", "MPICH", "MPI ABI"
    bool gpu_aware;
    enum fr_explain_place place;
    bool fabric_memory;  // fabric handles can be made
    bool first;          // of memory that the other end has not mapped yet
    unsigned rails;      // in common with another host
    bool hmem;           // their NICs reach the memory of GPUs
    bool has_gaps;       // the data are of a datatype with gaps
    size_t wasted_bytes; // that NVLink would carry between the blocks of such data
};

struct fr_explain_answer {
    const char *path;
    const char *how; // scheme or engine, "" where there is none to name
    const char *reason;
};

// The row of a function by its name; FR_FN_COUNT for none that is known.
enum fr_fn fr_explain_function(const char *name);

struct fr_explain_answer fr_explain(const struct fr_explain_facts *facts, enum fr_fn fn,
                                    enum fr_device_kind kind, size_t bytes);

// Reads reports and prints what they say, with what the policy makes of their facts. Returns false
// after a complaint.
FR_MUST_CHECK bool fr_explain_reports(int count, char *const *names, enum fr_explain_place place);

#endif
