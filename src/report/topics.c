// SPDX-License-Identifier: BSD-3-Clause
// Advice that would spare device buffers the way that they took: from the reasons that were
// recorded, so it says nothing that the job has not shown.
#include "config.h"

#include "fabrail/report/verdict.h"

#include <string.h>

enum kind { MESSAGE, REDUCTION, COLLECTIVE, OTHER };

// Returns the kind of a function, by its name.
static enum kind kind_of(const char *name)
{
    static const struct {
        const char *part;
        enum kind kind;
    } parts[] = {
        {"send", MESSAGE},       {"Send", MESSAGE},       {"recv", MESSAGE},
        {"Recv", MESSAGE},       {"lltoall", COLLECTIVE}, {"educe", REDUCTION},
        {"scan", REDUCTION},     {"Scan", REDUCTION},     {"cast", COLLECTIVE},
        {"gather", COLLECTIVE},  {"Gather", COLLECTIVE},  {"scatter", COLLECTIVE},
        {"Scatter", COLLECTIVE},
    };
    if (strncmp(name, "MPI_File", 8) == 0)
        return OTHER;
    for (size_t i = 0; i < FR_ARRAY_LENGTH(parts); i++) {
        if (strstr(name, parts[i].part))
            return parts[i].kind;
    }
    return OTHER;
}

enum {
    UNAWARE_MESSAGES,
    UNAWARE_COLLECTIVES,
    NONBLOCKING,
    UNAWARE_OTHERS,
    TURNS,
    EXCLUDED,
    NO_PASS,
    IN_CHUNKS,
    NO_WORKSPACE,
    REFUSED,
    UNEXPLAINED,
};
_Static_assert(UNEXPLAINED + 1 == FR_VERDICT_TOPICS, "each has its words");

static const struct {
    const char *title;
    const char *brief; // what to do, in a line
    const char *advice;
} topics[FR_VERDICT_TOPICS] = {
    [UNAWARE_MESSAGES] =
        {"Messages staged whole", "allow path peer, or send fewer and larger messages",
         "The MPI library is not GPU-aware, and these went neither over NVLink nor over rails. "
         "Those of less than 40 bytes never do, nor do the first between two ranks, until the "
         "receiver has mapped the sender's workspace: send fewer, larger messages. If the GPUs "
         "reach each other by NVLink, see that FABRAIL_PATHS allows peer on all ranks. Between "
         "hosts that NVLink joins, FABRAIL_CLIQUE_MIN is the least that goes that way; between "
         "others it is FABRAIL_RAIL_MIN over two or more NICs, and from FABRAIL_PIPELINE_MIN on "
         "messages overlap their copies with the network."},
    [UNAWARE_COLLECTIVES] =
        {"Collectives staged whole",
         "give all ranks device memory, keep communicators, allow path peer",
         "The MPI library is not GPU-aware, and these did not go over NVLink. Blocking ones do "
         "where all ranks give device memory and their GPUs reach each other, nonblocking ones "
         "that move data on one host alone, reductions by predefined operations on predefined "
         "datatypes; FABRAIL_PATHS has to allow peer on all ranks. The first two on a communicator "
         "may be staged in any case: keep communicators, and make none anew for each step."},
    [NONBLOCKING] = {"Nonblocking and persistent reductions staged",
                     "call the blocking form where nothing is done meanwhile",
                     "The MPI library is not GPU-aware. Over NVLink Fabrail moves these between "
                     "ranks of one host, from 16 KiB on, by predefined operations on predefined "
                     "datatypes; blocking forms go that way at any size, and between the hosts "
                     "of a clique, too: call these where nothing is done meanwhile."},
    [UNAWARE_OTHERS] =
        {"Files, windows and packing staged", "use host memory there, or a GPU-aware MPI library",
         "These functions work on host memory where the MPI library is not GPU-aware. Nothing "
         "moves them faster but a GPU-aware MPI library."},
    [TURNS] = {"Messages between ranks that share a GPU",
               "start MPS, or give each rank a GPU of its own",
               "Ranks on one GPU take turns there, by slices of time, and copies within it wait "
               "for them; "
               "short messages wait less through host memory. NVIDIA's MPS lets such ranks use the "
               "GPU at "
               "once: start it, or give each rank a GPU of its own."},
    [EXCLUDED] =
        {"Functions that the GPU-aware MPI excludes",
         "call the blocking form, or send messages instead",
         "The MPI library's manual lists these as not able to take device memory, so they are "
         "staged. Their blocking forms, or messages in their place, would go the direct way."},
    [NO_PASS] = {"Path pass is switched off", "allow path pass in FABRAIL_PATHS",
                 "The MPI library is GPU-aware, but FABRAIL_PATHS leaves out pass: allow it, and "
                 "these buffers need no staging."},
    [IN_CHUNKS] =
        {"Messages in chunks", "see fabrail info whether path rail can be had",
         "These went through page-locked memory in chunks, whose copies overlap with the network. "
         "That is the way where GPUs cannot map each other's memory. Between hosts that have two "
         "NICs or more in common path rail is faster: fabrail info says whether it can be taken."},
    [NO_WORKSPACE] =
        {"No room in the workspace", "raise FABRAIL_WORKSPACE_MAX",
         "These buffers would have been faster by NVLink or all NICs, through device memory of the "
         "workspace: raise FABRAIL_WORKSPACE_MAX, or see in the warnings what was missing, such as "
         "an IMEX channel."},
    [REFUSED] =
        {"Calls that were refused", "use host memory there, or allow path host",
         "No path was correct for these buffers, and the calls returned an MPI error. The log says "
         "why a window was refused; for other calls allow path host in FABRAIL_PATHS."},
    [UNEXPLAINED] = {"Other staging", "see the reasons in the table of functions",
                     "The reasons stand in the table of functions."},
};

static bool says(const struct fr_verdict_reason *row, const char *words)
{
    return row->reason && strstr(row->reason, words) != NULL;
}

static bool is_deferred(const char *name)
{
    const char *suffix = strstr(name, "_init");
    return strncmp(name, "MPI_I", 5) == 0 || (suffix && suffix[5] == '\0');
}

int fr_verdict_topic(const struct fr_verdict_reason *row)
{
    enum kind kind = kind_of(row->name);
    if (row->path == FR_PATH_REFUSE)
        return REFUSED;
    if (row->path == FR_PATH_PASS && says(row, "no fabric workspace"))
        return NO_WORKSPACE;
    if (row->path != FR_PATH_HOST || !row->has_buffers)
        return -1;
    if (row->scheme && strcmp(row->scheme, "pipeline") == 0)
        return IN_CHUNKS;
    if (says(row, "excludes pass"))
        return NO_PASS;
    if (says(row, "GPU support excludes"))
        return EXCLUDED;
    if (says(row, "take turns on one GPU"))
        return TURNS;
    if (says(row, "no device workspace"))
        return NO_WORKSPACE;
    if (says(row, "the CPU reads device memory itself"))
        return -1; // the quickest way
    if (kind == MESSAGE)
        return UNAWARE_MESSAGES;
    if (!row->reason)
        return UNEXPLAINED;
    if (kind == REDUCTION && is_deferred(row->name))
        return NONBLOCKING;
    return kind == OTHER ? UNAWARE_OTHERS : UNAWARE_COLLECTIVES;
}

const char *fr_verdict_topic_title(int topic)
{
    return topics[topic].title;
}

const char *fr_verdict_topic_brief(int topic)
{
    return topics[topic].brief;
}

const char *fr_verdict_topic_advice(int topic)
{
    return topics[topic].advice;
}
