// SPDX-License-Identifier: BSD-3-Clause
// Facts about a message for policy, before its scheme is chosen, and the length of its RTS.
#include "config.h"

#include "fabrail/device/aperture.h"
#include "fabrail/device/pack.h"
#include "fabrail/ipc/tuned.h"
#include "fabrail/job.h"
#include "rndv/hmem.h"
#include "rndv/own_rails.h"
#include "rndv/send.h"
#include "rndv/strides.h"
#include "rndv/takers.h"

#include <string.h>

// Returns whether a receiver on another host is in reach of the GPU that the message is on.
static bool is_in_clique(int to, int device)
{
    const struct fr_job_facts *own = fr_job_facts_of(fr_job_rank());
    struct fr_device_clique clique;
    if (fr_job_clique_count() == 0 || !fr_job_is_partner(to))
        return false;
    fr_device_clique_of(device, &clique);
    return own != NULL && clique.valid && clique.clique == own->clique &&
           memcmp(clique.cluster, own->cluster, sizeof(own->cluster)) == 0;
}

bool fr_rndv_is_mapped_by(int to, const struct fr_ipc_handle *handle, bool at_once)
{
    return to == fr_job_rank() || fr_ipc_is_mapped_by(to, handle, at_once);
}

// Returns the layout of a buffer with gaps if it can travel with the message; else NULL.
static const struct fr_datatype_compiled *travelling_layout(const struct fr_staging_view *view)
{
    struct fr_device_strides strides;
    const struct fr_layout *layout = view->blocks[0].layout;
    if (FR_LIKELY(layout->contiguous) || !fr_device_owns(&view->range) || view->block_count != 1 ||
        view->absolute || !fr_staging_view_is_in_range(view) ||
        !fr_device_has_kernels(&view->range, FR_IMAGE_PACK))
        return NULL;
    const struct fr_datatype_compiled *compiled = fr_datatype_compiled_get(layout);
    return compiled != NULL && fr_device_strides_of(&compiled->shape, &strides) ? compiled : NULL;
}

static struct fr_policy_message facts_of(const struct fr_rndv_message *message, bool takes_rts)
{
    const struct fr_staging_view *view = message->view;
    const struct fr_settings *settings = fr_core_settings();
    int to = message->address.to;
    bool here = takes_rts && fr_job_control_is_here(to) && fr_rndv_ledger_is_shared_with(to);
    bool no_room = !fr_staging_has_room(view->in_bytes);
    bool is_own = to == fr_job_rank();
    bool full = is_own ? !fr_rndv_stage_is_likely(view->range.device, view->in_bytes)
                       : fr_rndv_stage_is_full(FR_PATH_PEER, view->in_bytes);
    const struct fr_datatype_compiled *travels = here ? travelling_layout(view) : NULL;
    bool answers =
        takes_rts && !here && fr_job_control_is_answered_by(to); // else the receiver would wait
    return (struct fr_policy_message){
        .bytes = view->in_bytes,
        .no_rts = !takes_rts,
        .here = here,
        .takes_turns = here && fr_rndv_ledger_takes_turns_with(to),
        .in_clique = answers && is_in_clique(to, view->range.device),
        .by_fragments = (here || answers) && !is_own && fr_job_control_has_remote(),
        .one_piece = fr_staging_view_is_in_one_piece(view),
        .travels = travels != NULL,
        .wasted_bytes = travels != NULL ? view->blocks[0].count * travels->wasted_bytes : 0,
        // A message to this process does not go by fragments, so it could never leave without room.
        .must_leave = message->must_leave || (is_own && (no_room || full)),
        .absolute = view->absolute,
        .host_memory = !fr_device_owns(&view->range),
        .workspace_full = full,
        .host_full = no_room || fr_rndv_stage_is_full(FR_PATH_HOST, view->in_bytes),
        .may_wait = message->may_wait,
        .crowded = fr_rndv_ledger_is_crowded(),
        .pack_first_bytes = fr_ipc_tuned(FR_SIZE_PACK_FIRST),
        .clique_min_bytes = settings->clique_min_bytes,
        .shared_min_bytes = settings->shared_gpu_min_bytes,
        .pipeline_min_bytes = settings->pipeline_min_bytes,
        .rail_use = settings->rail,
        .rail_min_bytes = fr_ipc_tuned(FR_SIZE_RAIL),
    };
}

// Adds the facts about rails, and opens them for a message that is worth it.
static void look_at_rails(const struct fr_rndv_message *message, struct fr_policy_message *facts)
{
    if (!facts->by_fragments || !fr_policy_wants_rails(facts))
        return;
    facts->rails = fr_rndv_rails_to(message->address.to);
    facts->rails_reach_device = fr_rndv_hmem_reaches(&message->view->range);
}

// Returns whether there has been a message of this memory before. Exporting takes as long as some
// messages, and mapping a thousand times as long; memory that is sent once is not worth that. Two
// allocations that share an entry only make this forget.
static bool is_seen(const struct fr_device_range *range)
{
    static _Atomic uint64_t seen[256];
    _Atomic uint64_t *entry = &seen[range->buffer_id % FR_ARRAY_LENGTH(seen)];
    return atomic_exchange_explicit(entry, range->buffer_id, memory_order_relaxed) ==
           range->buffer_id;
}

// The memory that this thread has last found to be mapped by a receiver. It need not be looked up
// again for the next message.
static FR_TLS struct {
    struct fr_rndv_location location; // of the message before, by scheme get in one piece
    int to;
    uint64_t changes; // fr_ipc_importers_changes, as of before it was found
} last = {.to = -1, .location.scheme = FR_SCHEME_GET};

// The scheme that this thread has last chosen for a message of that memory, and the facts that it
// follows from. A receiver hardly ever changes its device, so it is looked at now and then.
static FR_TLS struct {
    unsigned uses; // since the receiver's device was looked at
    bool takes_turns, by_cpu, crowded;
    size_t bytes;
    struct fr_policy_scheme_choice choice; // without a reason: none
} last_chosen;

static FR_OFTEN bool is_last(int to, const struct fr_staging_view *view)
{
    const struct fr_ipc_handle *handle = &last.location.handle;
    uint64_t offset = view->base + (uintptr_t)view->first - handle->base;
    return last.to == to && handle->buffer_id == view->range.buffer_id &&
           last.changes == fr_ipc_importers_changes() && offset <= handle->bytes &&
           view->span <= handle->bytes - offset;
}

// Adds whether the receiver has mapped the program's buffer, and asks it to. This process itself
// has it at once.
static void look_at_mapping(const struct fr_rndv_message *message, struct fr_policy_message *facts,
                            struct fr_ipc_handle *handle)
{
    const struct fr_staging_view *view = message->view;
    const void *low = (const void *)(view->base + (uintptr_t)view->first);
    const int to = message->address.to;
    uint64_t changes = fr_ipc_importers_changes();
    if (!facts->here || !(facts->one_piece || facts->travels) || facts->must_leave)
        return;
    if (is_last(to, view)) {
        facts->exported = facts->mapped = true;
        *handle = last.location.handle;
        return;
    }
    if (to != fr_job_rank() && !is_seen(&view->range))
        return;
    facts->exported = fr_ipc_export(&view->range, low, view->span, handle) == FR_OK;
    facts->mapped = facts->exported && fr_rndv_is_mapped_by(to, handle, true);
    if (facts->mapped) {
        last.location.handle = *handle;
        last.to = to;
        last.changes = changes;
        last_chosen.uses = 0;
    }
}

// Returns whether the CPU reads the bytes of a message in one piece itself.
static bool is_by_cpu(const struct fr_staging_view *view)
{
    return fr_device_aperture_reads(&view->range, view->base + (uintptr_t)view->first,
                                    view->in_bytes);
}

// Returns the choice that the facts of a known message lead to.
static struct fr_policy_scheme_choice choose_again(const struct fr_policy_message *facts)
{
    if (FR_UNLIKELY(!last_chosen.choice.reason || last_chosen.bytes != facts->bytes ||
                    last_chosen.by_cpu != facts->by_cpu || last_chosen.crowded != facts->crowded)) {
        last_chosen.choice = fr_policy_choose_scheme(facts);
        last_chosen.bytes = facts->bytes;
        last_chosen.by_cpu = facts->by_cpu;
        last_chosen.crowded = facts->crowded;
    }
    return last_chosen.choice;
}

// Returns whether the receiver takes turns with this process on a device, as of the last look.
static bool takes_turns_with(int to)
{
    enum { USES_A_LOOK = 16 };
    if (last_chosen.uses++ % USES_A_LOOK == 0)
        last_chosen.takes_turns = fr_rndv_ledger_takes_turns_with(to);
    return last_chosen.takes_turns;
}

// Most messages are of memory that their receiver is known to have mapped. They go by scheme get,
// whatever the facts that are not asked for here.
FR_OFTEN struct fr_rndv_location *fr_rndv_message_known(const struct fr_rndv_message *message,
                                                        struct fr_policy_message *facts,
                                                        struct fr_policy_scheme_choice *choice)
{
    const int to = message->address.to;
    if (message->must_leave || to == fr_job_rank() ||
        !fr_staging_view_is_in_one_piece(message->view) || !is_last(to, message->view) ||
        takes_turns_with(to))
        return NULL;
    *facts = (struct fr_policy_message){
        .bytes = message->view->in_bytes,
        .here = true,
        .one_piece = true,
        .exported = true,
        .mapped = true,
        .by_cpu = is_by_cpu(message->view),
        .crowded = fr_rndv_ledger_is_crowded(),
    };
    *choice = choose_again(facts);
    return &last.location;
}

void fr_rndv_message_look(const struct fr_rndv_message *message, struct fr_policy_message *facts,
                          struct fr_ipc_handle *handle)
{
    *facts = facts_of(message, fr_rndv_is_taken_by(message->address.to));
    // To oneself one copy within the device will do.
    facts->by_cpu =
        facts->one_piece && message->address.to != fr_job_rank() && is_by_cpu(message->view);
    if (facts->by_cpu)
        return;
    look_at_mapping(message, facts, handle);
    look_at_rails(message, facts);
}

// Returns one of the multiples of a length that are no longer than the message, in turn.
static size_t multiple_of(size_t length, uint64_t bytes, unsigned turn)
{
    if (turn == 0)
        return length; // without a division
    uint64_t most = (bytes < FR_RNDV_RTS_LONGEST ? bytes : FR_RNDV_RTS_LONGEST) / length;
    return length * (1 + turn % (most < 1 ? 1 : (unsigned)most));
}

// Returns the length of the RTS for a message of `bytes`, 0 if it cannot have one. Each multiple of
// `unit` in the message ends a predefined datatype; if `unit` is 0 any byte does. `turn` picks one
// of several lengths. An RTS that is shorter than its message has a multiple of FR_RNDV_RTS_PRIME
// bytes, which few plain messages have.
static size_t rts_length(uint64_t bytes, size_t unit, unsigned turn)
{
    enum { COMMON_UNIT = 16 }; // fits what is sent as bytes and received as another datatype, too
    size_t length = FR_RNDV_RTS_LONGEST;
    if (unit == 0)
        unit = 1;
    else if (COMMON_UNIT % unit == 0)
        unit = COMMON_UNIT;
    if (unit <= FR_RNDV_RTS_LONGEST / FR_RNDV_RTS_PRIME)
        length = multiple_of(FR_RNDV_RTS_PRIME * unit, bytes, turn);
    else if (bytes > length)
        return 0;
    if (bytes < FR_RNDV_RTS_BYTES || bytes >> FR_SLOT_SIZE_BITS != 0)
        return 0;
    return bytes < length ? bytes : length;
}

static size_t length_in_turn(const struct fr_rndv_message *message, unsigned turn)
{
    const struct fr_layout *layout = message->view->blocks[0].layout;
    size_t unit = message->parts ? 0 : layout->unit_bytes;
    return layout->exact ? rts_length(message->view->in_bytes, unit, turn) : 0;
}

// Returns whether the receiver may be told of one message in place of another of the same length:
// Open MPI lets a thread match the next message while it still copies one that another thread has
// matched.
static bool may_be_confused(const struct fr_rndv_message *message)
{
    if (!message->parts)
        return false;
    const struct fr_job_facts *receiver = fr_job_facts_of(message->address.to);
    return receiver == NULL || receiver->has_threads;
}

// Where the receiver has threads and any byte may be the last, the shortest lengths take turns.
// Otherwise the first one will do.
FR_OFTEN size_t fr_rndv_message_length(const struct fr_rndv_message *message, const char **reason)
{
    enum { TURNS = 8, MULTIPLES = FR_RNDV_RTS_LONGEST / FR_RNDV_RTS_PRIME };
    static _Atomic unsigned turns;
    unsigned turn = 0;
    if (may_be_confused(message)) { // threads may share a turn
        turn = atomic_load_explicit(&turns, memory_order_relaxed);
        atomic_store_explicit(&turns, turn + 1, memory_order_relaxed);
    }
    for (unsigned i = 0; i < MULTIPLES; i++) {
        size_t length = length_in_turn(message, turn % TURNS + i);
        *reason = length > 0 ? "plain messages of an RTS's size may be under way the same way"
                             : "no RTS fits the datatype";
        if (length == 0 || !fr_rndv_ledger_is_closed_to(&message->address, length))
            return length;
    }
    return 0;
}

bool fr_rndv_send_is_possible(const struct fr_rndv_message *message)
{
    const struct fr_job_facts *receiver = fr_job_facts_of(message->address.to);
    struct fr_policy_message facts = facts_of(message, receiver != NULL && receiver->takes_rts);
    facts.exported = facts.mapped = true;
    facts.workspace_full = facts.host_full = facts.crowded = false;
    facts.rails = facts.by_fragments ? FR_RAILS_MAX : 0;
    return length_in_turn(message, 0) > 0 &&
           fr_policy_choose_scheme(&facts).scheme != FR_SCHEME_NONE;
}
