// SPDX-License-Identifier: BSD-3-Clause
// The choice of a message's scheme by the rows of schemes.def, with the reason in words, and of the
// verb by which rails move it.
#include "config.h"

#include "fabrail/policy/scheme.h"

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

// Returns whether the receiver's device reaches memory of the sender's, and the message is worth
// it.
static bool is_in_reach(const struct fr_policy_message *message)
{
    return message->here || (message->in_clique && message->bytes >= message->clique_min_bytes);
}

// Returns whether the bytes can be copied to device workspace.
static bool has_workspace(const struct fr_policy_message *message)
{
    return !message->absolute && !message->workspace_full && !message->host_memory;
}

// A single rail gives nothing that MPI does not.
static bool has_rails(const struct fr_policy_message *message)
{
    return message->rails >= (message->rail_use == FR_RAIL_FORCE ? 1 : 2);
}

enum { SHORT_BYTES = 4096 }; // a message about as long as the longest RTS, which MPI sends at once

// A buffered send is complete at once, so nobody would move its fragments.
static bool suits_fragments(const struct fr_policy_message *message)
{
    return message->by_fragments && message->pipeline_min_bytes > 0 && !message->absolute &&
           !message->must_leave && !message->host_memory;
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
    if (message->no_rts)
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
    return has_rails(message) ? HOST_FULL : FEW_RAILS;
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

struct fr_policy_scheme_choice fr_policy_choose_scheme(const struct fr_policy_message *m)
{
#define FR_CHOICE(id, condition, reason)                                                           \
    if (!has_failed(m, FR_SCHEME_##id) && (condition))                                             \
        return (struct fr_policy_scheme_choice){FR_SCHEME_##id, reason};
#include "fabrail/policy/schemes.def"
    return (struct fr_policy_scheme_choice){FR_SCHEME_NONE, ""}; // the last choice is always made
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

// The words of reports for the schemes.
static const struct {
    const char *name;
    enum fr_policy_path path;
    const char *received;
} schemes[FR_SCHEME_COUNT] = {
    [FR_SCHEME_NONE] = {"none", FR_PATH_HOST, "the sender offered its memory"},
#define FR_SCHEME(id, row, name, path, received)                                                   \
    [FR_SCHEME_##id] = {name, FR_PATH_##path, received},
#include "fabrail/policy/schemes.def"
};

enum fr_policy_path fr_policy_scheme_path(enum fr_policy_scheme scheme)
{
    return scheme < FR_SCHEME_COUNT ? schemes[scheme].path : FR_PATH_PEER;
}

const char *fr_policy_scheme_name(enum fr_policy_scheme scheme)
{
    return scheme < FR_SCHEME_COUNT ? schemes[scheme].name : "unknown";
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
    if (scheme == FR_SCHEME_RAIL && on_device)
        return verb == FR_VERB_WRITE
                   ? "over all NICs that both ends have in common, written into device memory"
                   : "over all NICs that both ends have in common, into device memory";
    if (scheme == FR_SCHEME_RAIL && verb == FR_VERB_WRITE)
        return "over all NICs that both ends have in common, written by the sender";
    return scheme < FR_SCHEME_COUNT ? schemes[scheme].received : "unknown";
}

// Nothing but a few bytes can come where there is no room for an RTS. A message with one is pulled
// by copy engines as soon as by a kernel that waits for it. Such a kernel would take the turns of
// other processes, and the CPU needs none.
bool fr_policy_stands_by(const struct fr_policy_receive *receive)
{
    return receive->one_piece && receive->room > 0 && receive->room < receive->rts_bytes &&
           !receive->takes_turns && !receive->by_cpu;
}
