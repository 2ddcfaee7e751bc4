// SPDX-License-Identifier: BSD-3-Clause
// Which scheme a message takes.
#include "config.h"

#include "policy/scheme.h"

static struct fr_policy_scheme_choice choice(enum fr_policy_scheme scheme, const char *reason)
{
    return (struct fr_policy_scheme_choice){scheme, reason};
}

static bool has_failed(const struct fr_policy_message *message, enum fr_policy_scheme scheme)
{
    return message->failed >> scheme & 1;
}

// Copies within a GPU wait for the turn of their process, those to host memory and back mostly not.
static bool avoids_turns(const struct fr_policy_message *message)
{
    return message->takes_turns && message->bytes < message->shared_min_bytes;
}

// Only what the receiver can take back on its own host may stay in the application's buffer.
static bool can_get(const struct fr_policy_message *message)
{
    return message->here && !avoids_turns(message) && message->one_piece && !message->must_leave &&
           message->exported && message->mapped && !message->host_memory &&
           !has_failed(message, FR_SCHEME_GET);
}

static bool can_stage(const struct fr_policy_message *message)
{
    if (message->absolute || message->workspace_full || message->host_memory ||
        avoids_turns(message) || has_failed(message, FR_SCHEME_STAGED_GET))
        return false;
    return message->here || (message->in_clique && message->bytes >= message->clique_min_bytes);
}

// A single rail has nothing to give that MPI has not.
static bool can_rail(const struct fr_policy_message *message)
{
    unsigned least = message->rail_use == FR_RAIL_FORCE ? 1 : 2;
    bool full = message->host_full && !fr_policy_rails_read_device(message);
    return fr_policy_wants_rails(message) && message->rails >= least && !full &&
           !has_failed(message, FR_SCHEME_RAIL);
}

// A buffered send is complete at once, so that nobody would see to its fragments.
static bool can_pipeline(const struct fr_policy_message *message)
{
    return message->by_fragments && message->pipeline_min_bytes > 0 &&
           message->bytes >= message->pipeline_min_bytes && !message->absolute &&
           !message->must_leave && !message->host_memory && !message->host_full &&
           !has_failed(message, FR_SCHEME_PIPELINE);
}

static const char *reason_to_pass(const struct fr_policy_message *message)
{
    if (message->here)
        return "host memory, and the receiver is on this host";
    if (message->rail_use == FR_RAIL_OFF)
        return "host memory, and FABRAIL_RAIL=off";
    if (message->bytes < message->rail_min_bytes)
        return "host memory, shorter than FABRAIL_RAIL_MIN";
    if (message->absolute)
        return "host memory at the addresses of MPI_BOTTOM, which need not lie together";
    if (message->host_full)
        return "host memory, and too much of it waits for receivers";
    if (has_failed(message, FR_SCHEME_RAIL))
        return "host memory that could not be sent over rails";
    return "host memory, and too few rails lead to the receiver so far";
}

static const char *reason_for_none(const struct fr_policy_message *message)
{
    if (message->host_memory)
        return reason_to_pass(message);
    if (!message->here && !message->in_clique && !message->by_fragments)
        return "the MPI library is not GPU-aware";
    if (message->absolute)
        return "the addresses of MPI_BOTTOM need not lie together";
    if (avoids_turns(message))
        return "the ranks take turns on one GPU, and the message is shorter than "
               "FABRAIL_SHARED_GPU_MIN";
    if (message->staged_unmapped)
        return "the receiver has not mapped the workspace yet";
    if (message->here && message->workspace_full)
        return "no device workspace is left for the message";
    if (message->in_clique && message->bytes < message->clique_min_bytes)
        return "the message is shorter than FABRAIL_CLIQUE_MIN";
    return "the MPI library is not GPU-aware";
}

struct fr_policy_scheme_choice fr_policy_choose_scheme(const struct fr_policy_message *message)
{
    if (can_get(message))
        return choice(FR_SCHEME_GET, "the receiver maps this memory");
    if (can_stage(message))
        return choice(FR_SCHEME_STAGED_GET, "the receiver maps the workspace");
    if (can_rail(message) && fr_policy_rails_read_device(message))
        return choice(FR_SCHEME_RAIL,
                      "over all NICs that both ends have in common, from device memory");
    if (can_rail(message))
        return choice(FR_SCHEME_RAIL, "over all NICs that both ends have in common");
    if (can_pipeline(message))
        return choice(FR_SCHEME_PIPELINE, "in fragments, copies overlapping the wire");
    return choice(FR_SCHEME_NONE, reason_for_none(message));
}

enum fr_policy_path fr_policy_scheme_path(enum fr_policy_scheme scheme)
{
    if (scheme == FR_SCHEME_RAIL)
        return FR_PATH_RAIL;
    return scheme == FR_SCHEME_PIPELINE || scheme == FR_SCHEME_NONE ? FR_PATH_HOST : FR_PATH_PEER;
}

const char *fr_policy_scheme_name(enum fr_policy_scheme scheme)
{
    static const char *const names[FR_SCHEME_COUNT] = {
        [FR_SCHEME_NONE] = "none",
        [FR_SCHEME_GET] = "get",
        [FR_SCHEME_STAGED_GET] = "staged get",
        [FR_SCHEME_RAIL] = "rail",
        [FR_SCHEME_PIPELINE] = "pipeline",
    };
    return scheme < FR_SCHEME_COUNT ? names[scheme] : "unknown";
}

static struct fr_policy_verb_choice verb(enum fr_policy_verb verb, const char *reason)
{
    return (struct fr_policy_verb_choice){verb, reason};
}

// Where nothing is known of either, a read asks nothing of the sender.
struct fr_policy_verb_choice fr_policy_choose_verb(const struct fr_policy_rails *rails)
{
    if (rails->use == FR_RAIL_VERB_READ)
        return verb(FR_VERB_READ, "FABRAIL_RAIL_VERB=read");
    if (rails->use == FR_RAIL_VERB_AUTO && !rails->emulates_reads)
        return verb(FR_VERB_READ, "the provider does not say that it emulates reads");
    if (!rails->sender_writes)
        return verb(FR_VERB_READ, "the sender does not write");
    if (rails->use == FR_RAIL_VERB_AUTO && rails->sender_emulates)
        return verb(FR_VERB_READ, "the provider emulates reads, and the sender's writes");
    if (rails->sender_owes)
        return verb(FR_VERB_READ, "the sender has not answered an earlier request yet");
    if (rails->use == FR_RAIL_VERB_WRITE)
        return verb(FR_VERB_WRITE, "FABRAIL_RAIL_VERB=write");
    return verb(FR_VERB_WRITE, "the provider emulates reads, and not the sender's writes");
}

const char *fr_policy_scheme_received(enum fr_policy_scheme scheme, enum fr_policy_verb verb,
                                      bool on_device)
{
    if (scheme == FR_SCHEME_RAIL && verb == FR_VERB_WRITE)
        return on_device ? "over all NICs that both ends have in common, written into device memory"
                         : "over all NICs that both ends have in common, written by the sender";
    if (scheme == FR_SCHEME_RAIL)
        return on_device ? "over all NICs that both ends have in common, into device memory"
                         : "over all NICs that both ends have in common";
    return scheme == FR_SCHEME_PIPELINE ? "in fragments, copies overlapping the wire"
                                        : "the sender offered its memory";
}
