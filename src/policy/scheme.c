// SPDX-License-Identifier: BSD-3-Clause
// The choice of a message's scheme, with the reason in words, and of the verb by which rails move
// it.
#include "config.h"

#include "fabrail/policy/scheme.h"

static struct fr_policy_scheme_choice choice(enum fr_policy_scheme scheme, const char *reason)
{
    return (struct fr_policy_scheme_choice){scheme, reason};
}

static bool has_failed(const struct fr_policy_message *message, enum fr_policy_scheme scheme)
{
    return message->failed >> scheme & 1;
}

// Returns whether a message avoids copies within a GPU that processes share. Such copies wait for
// the turn of their process. Copies to host memory and back mostly do not, as long as there is host
// memory to copy to.
static bool avoids_turns(const struct fr_policy_message *message)
{
    return message->takes_turns && message->bytes < message->shared_min_bytes &&
           !message->host_full;
}

enum { SHORT_BLOCK = 64, LARGE = (4 << 20) + 1 };

// NVLink writes short blocks at little more than half its rate, and scattered ones at a fifth. For
// much data that takes longer than packing them does.
bool fr_policy_suits_layout(size_t block_bytes, size_t bytes)
{
    return block_bytes >= SHORT_BLOCK || bytes < LARGE;
}

// Returns whether the sender's device had better pack a message whose layout the receiver can be
// told. The receiver would read whole sectors of memory, most of them for nothing where blocks are
// short and far apart. On different devices the receiver's kernel is launched meanwhile. Where
// ranks take turns on one, the second kernel comes after the first.
static bool packs_first(const struct fr_policy_message *message)
{
    size_t least = message->takes_turns ? LARGE : message->pack_first_bytes;
    return !message->one_piece && message->travels && message->wasted_bytes > 0 &&
           message->wasted_bytes >= least && !message->workspace_full &&
           !has_failed(message, FR_SCHEME_STAGED_GET);
}

// Returns whether the receiver can read the application's buffer, and does so fast.
static bool is_readable(const struct fr_policy_message *message)
{
    return message->one_piece || (message->travels && !packs_first(message));
}

// Only a message that the receiver can take back on its own host may stay in the application's
// buffer.
static bool can_get(const struct fr_policy_message *message)
{
    return message->here && !avoids_turns(message) && is_readable(message) &&
           !message->must_leave && message->exported && message->mapped && !message->host_memory &&
           !has_failed(message, FR_SCHEME_GET);
}

static bool can_stage(const struct fr_policy_message *message)
{
    if (message->absolute || message->workspace_full || message->host_memory ||
        avoids_turns(message) || has_failed(message, FR_SCHEME_STAGED_GET))
        return false;
    return message->here || (message->in_clique && message->bytes >= message->clique_min_bytes);
}

// A single rail gives nothing that MPI does not.
static bool can_have_rails(const struct fr_policy_message *message)
{
    return message->rails >= (message->rail_use == FR_RAIL_FORCE ? 1 : 2);
}

static bool can_rail(const struct fr_policy_message *message)
{
    bool full = message->host_full && !fr_policy_rails_read_device(message);
    return fr_policy_wants_rails(message) && can_have_rails(message) && !full &&
           !has_failed(message, FR_SCHEME_RAIL);
}

enum { SHORT_BYTES = 4096 }; // a message about as long as the longest RTS, which MPI sends at once

// A buffered send is complete at once, so nobody would move its fragments. Without room any copy
// would be too much, so that shorter messages go this way as well.
static bool can_pipeline(const struct fr_policy_message *message)
{
    bool waits = fr_policy_waits_to_be_asked(message);
    size_t least = waits && message->pipeline_min_bytes > SHORT_BYTES ? SHORT_BYTES
                                                                      : message->pipeline_min_bytes;
    return message->by_fragments && message->pipeline_min_bytes > 0 && message->bytes >= least &&
           !message->absolute && !message->must_leave && !message->host_memory &&
           (!message->host_full || waits) && !has_failed(message, FR_SCHEME_PIPELINE);
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

// Reasons for which a message in device memory goes neither over NVLink nor over rails.
enum obstacle {
    DEAF,
    ABSOLUTE,
    TURNS,
    UNMAPPED,
    NO_WORKSPACE,
    CLIQUE_MIN,
    UNSHARED,
    NO_RAIL,
    RAIL_MIN,
    RAIL_FAILED,
    HOST_FULL,
    FEW_RAILS
};

static enum obstacle obstacle_of(const struct fr_policy_message *message)
{
    if (message->deaf)
        return DEAF;
    if (message->absolute)
        return ABSOLUTE;
    if (avoids_turns(message))
        return TURNS;
    if (message->staged_unmapped)
        return UNMAPPED;
    if ((message->here || message->in_clique) && message->workspace_full)
        return NO_WORKSPACE;
    if (message->in_clique && message->bytes < message->clique_min_bytes)
        return CLIQUE_MIN;
    if (message->here || message->in_clique)
        return UNSHARED;
    if (message->rail_use == FR_RAIL_OFF)
        return NO_RAIL;
    if (message->bytes < message->rail_min_bytes)
        return RAIL_MIN;
    if (has_failed(message, FR_SCHEME_RAIL))
        return RAIL_FAILED;
    return can_have_rails(message) ? HOST_FULL : FEW_RAILS;
}

// Returns the reason in words. A message goes in fragments for the same reasons for which a shorter
// one is left to MPI.
static const char *text_of(enum obstacle obstacle, bool in_fragments)
{
#define TEXT(reason)                                                                               \
    {                                                                                              \
        reason, "in fragments, since " reason                                                      \
    }
    static const char *const texts[][2] = {
        [DEAF] = TEXT("the sender or the receiver takes no messages over NVLink or rails"),
        [ABSOLUTE] = TEXT("the addresses of MPI_BOTTOM need not lie together"),
        [TURNS] = TEXT("the ranks take turns on one GPU, and the message is shorter than "
                       "FABRAIL_SHARED_GPU_MIN"),
        [UNMAPPED] = TEXT("the receiver has not mapped the workspace yet"),
        [NO_WORKSPACE] = TEXT("no device workspace is left for the message"),
        [CLIQUE_MIN] = TEXT("the message is shorter than FABRAIL_CLIQUE_MIN"),
        [UNSHARED] = TEXT("the receiver could not be given access to the memory"),
        [NO_RAIL] = TEXT("no NVLink leads to the receiver, and FABRAIL_RAIL=off"),
        [RAIL_MIN] = TEXT("no NVLink leads to the receiver, and the message is shorter than "
                          "FABRAIL_RAIL_MIN"),
        [RAIL_FAILED] =
            TEXT("no NVLink leads to the receiver, and it could not be sent over rails"),
        [HOST_FULL] = TEXT("no NVLink leads to the receiver, and too much host memory waits for "
                           "receivers"),
        [FEW_RAILS] = TEXT("no NVLink leads to the receiver, and too few rails so far"),
    };
#undef TEXT
    return texts[obstacle][in_fragments];
}

static const char *reason_for_none(const struct fr_policy_message *message)
{
    return message->host_memory ? reason_to_pass(message) : text_of(obstacle_of(message), false);
}

struct fr_policy_scheme_choice fr_policy_choose_scheme(const struct fr_policy_message *message)
{
    if (message->crowded && message->bytes < SHORT_BYTES)
        return choice(FR_SCHEME_NONE, "many messages wait, and this one is short");
    if (message->by_cpu)
        return choice(FR_SCHEME_NONE, "it is short, and the CPU reads device memory itself");
    if (can_get(message))
        return choice(FR_SCHEME_GET, "the receiver maps this memory");
    if (can_stage(message) && message->here && message->mapped && packs_first(message))
        return choice(FR_SCHEME_STAGED_GET, "short blocks, so they are packed into workspace that "
                                            "the receiver maps");
    if (can_stage(message))
        return choice(FR_SCHEME_STAGED_GET, "the receiver maps the workspace");
    if (can_rail(message) && fr_policy_rails_read_device(message))
        return choice(FR_SCHEME_RAIL,
                      "over all NICs that both ends have in common, from device memory");
    if (can_rail(message))
        return choice(FR_SCHEME_RAIL, "over all NICs that both ends have in common");
    if (can_pipeline(message) && fr_policy_waits_to_be_asked(message))
        return choice(FR_SCHEME_PIPELINE, "in fragments once the receiver asks for them, since no "
                                          "room is left for a copy");
    if (can_pipeline(message))
        return choice(FR_SCHEME_PIPELINE, text_of(obstacle_of(message), true));
    return choice(FR_SCHEME_NONE, reason_for_none(message));
}

void fr_policy_note_failed_scheme(struct fr_policy_message *message, enum fr_policy_scheme scheme,
                                  enum fr_status status)
{
    if (scheme == FR_SCHEME_RAIL && message->rails_reach_device)
        message->rails_reach_device = false; // next try: out of page-locked memory
    else
        message->failed |= 1u << scheme;
    message->staged_unmapped = message->staged_unmapped || status == FR_ERR_NOT_FOUND;
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
#define FR_SCHEME(id, row, name) [FR_SCHEME_##id] = (name),
#include "fabrail/policy/schemes.def"
#undef FR_SCHEME
    };
    return scheme < FR_SCHEME_COUNT ? names[scheme] : "unknown";
}

static struct fr_policy_verb_choice verb(enum fr_policy_verb verb, const char *reason)
{
    return (struct fr_policy_verb_choice){verb, reason};
}

// Where nothing is known of either side's provider the choice is a read, which asks nothing of the
// sender.
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
    return scheme == FR_SCHEME_PIPELINE ? "in fragments, as the sender has chosen"
                                        : "the sender offered its memory";
}
