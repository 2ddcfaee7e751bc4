// SPDX-License-Identifier: BSD-3-Clause
// Messages that this process writes over rails, since their receivers have asked for it. It writes
// fragment by fragment, as the copies to its workspace are there.
//
// A request waits for its slot until a thread that holds the slot makes progress. It is answered
// once, whatever becomes of the message: the receiver keeps memory out of use until it hears that
// nothing lands there any more.
#include "config.h"

#include "fabrail/core/wait.h"
#include "rndv/fragments.h"
#include "rndv/rail_put_send.h"

#include <stdlib.h>

enum { WINDOW = 32 }; // writes of a message under way at once

// A request and its writes. Once entered, it belongs to the thread that holds the slot.
struct writing {
    int to;
    uint64_t number;
    struct fr_rndv_key key;
    enum fr_status status;
    size_t begun;    // fragments begun
    size_t done;     // fragments that have ended, from the first on
    size_t arrived;  // fragments that have arrived, from the first on
    size_t reported; // arrived fragments that the receiver knows of
    bool lost;       // something may still land
    struct fr_rail_transfer *transfers[WINDOW];
};

static struct writing *_Atomic writings[FR_RNDV_SLOTS]; // by slot; NULL for none
static _Atomic uint64_t taken_back[FR_RNDV_SLOTS];      // by slot: message with a request withdrawn
static _Atomic unsigned writing_count;

unsigned fr_rndv_rail_put_send_verbs(void)
{
    const struct fr_rails *rails = fr_rndv_rails();
    if (fr_core_settings()->rail_verb == FR_RAIL_VERB_READ || !fr_rail_writes(rails))
        return 0;
    return FR_RNDV_WRITES | (fr_rail_emulates_writes(rails) ? FR_RNDV_EMULATES_WRITES : 0);
}

bool fr_rndv_rail_put_send_is_likely(void)
{
    unsigned verbs = fr_rndv_rail_put_send_verbs();
    const struct fr_policy_rails facts = {
        .use = fr_core_settings()->rail_verb,
        .emulates_reads = fr_rail_emulates_reads(fr_rndv_rails()),
        .sender_writes = verbs & FR_RNDV_WRITES,
        .sender_emulates = verbs & FR_RNDV_EMULATES_WRITES,
    };
    return fr_policy_choose_verb(&facts).verb == FR_VERB_WRITE;
}

bool fr_rndv_rail_put_send_any(void)
{
    return atomic_load_explicit(&writing_count, memory_order_acquire) > 0;
}

bool fr_rndv_rail_put_send_is_requested(unsigned index)
{
    return atomic_load_explicit(&writings[index], memory_order_acquire) != NULL;
}

static void tell_all(int to, unsigned index, uint64_t number, uint64_t bytes, bool lost)
{
    const struct fr_rndv_entry entry = {
        .number = number, .ready = bytes, .tag = lost, .index = index};
    (void)fr_rndv_entry_send(to, FR_CONTROL_WRITTEN_ALL, &entry, true);
}

static struct writing *make(int from, const struct fr_rndv_entry *entry)
{
    if (fr_rndv_rails() == NULL || entry->location.key.bytes > sizeof(entry->location.key.data) ||
        !(fr_rndv_rail_put_send_verbs() & FR_RNDV_WRITES))
        return NULL;
    struct writing *writing = calloc(1, sizeof(*writing));
    if (writing == NULL)
        return NULL;
    writing->to = from;
    writing->number = entry->number;
    writing->key = entry->location.key;
    writing->reported = SIZE_MAX;
    return writing;
}

void fr_rndv_rail_put_send_handle(int from, const struct fr_rndv_entry *entry)
{
    struct writing *none = NULL;
    if (entry->index >= fr_rndv_ledger_count())
        return;
    if (entry->location.key.bytes == 0) {
        atomic_store_explicit(&taken_back[entry->index], entry->number, memory_order_release);
        return;
    }
    struct writing *writing = make(from, entry);
    atomic_fetch_add_explicit(&writing_count, writing != NULL, memory_order_relaxed);
    if (writing != NULL && atomic_compare_exchange_strong(&writings[entry->index], &none, writing))
        return;
    atomic_fetch_sub_explicit(&writing_count, writing != NULL, memory_order_relaxed);
    free(writing);
    tell_all(from, entry->index, entry->number, 0, false);
}

static void end(unsigned index, uint64_t bytes)
{
    struct writing *writing = atomic_exchange(&writings[index], NULL);
    atomic_fetch_sub_explicit(&writing_count, 1, memory_order_release);
    tell_all(writing->to, index, writing->number, bytes, writing->lost);
    free(writing);
}

static bool write_next(struct writing *writing, const struct fr_rndv_send *send, unsigned shift)
{
    size_t first = writing->begun << shift;
    size_t bytes = fr_rndv_fragment_bytes(send->bytes, shift, writing->begun);
    if (first + bytes > send->stage.copied_bytes)
        return false;
    const struct fr_rndv_rail_send *rail = send->state;
    writing->status = fr_rail_write(fr_rndv_rails(), (unsigned)writing->to, writing->key.data,
                                    writing->key.bytes, first, rail->region, rail->offset + first,
                                    bytes, &writing->transfers[writing->begun % WINDOW]);
    writing->begun += writing->status == FR_OK;
    return writing->status == FR_OK;
}

// Looks at writes under way, oldest first. After a failure it cancels them, and they end.
static void look_at_writes(struct writing *writing)
{
    enum fr_status status = FR_OK;
    for (; writing->done < writing->begun; writing->done++) {
        struct fr_rail_transfer *oldest = writing->transfers[writing->done % WINDOW];
        if (!fr_rail_test(oldest, &status))
            break;
        fr_rail_finish(oldest);
        writing->lost = writing->lost || status == FR_ERR_RAIL;
        if (writing->status == FR_OK)
            writing->status = status;
        writing->arrived += writing->status == FR_OK;
    }
    for (size_t i = writing->done; writing->status != FR_OK && i < writing->begun; i++)
        fr_rail_cancel(writing->transfers[i % WINDOW]);
}

// Returns whether the receiver no longer wants the message, or will never have all of it.
static bool is_unwanted(const struct writing *writing, const struct fr_rndv_send *send)
{
    enum fr_rndv_state state = fr_rndv_ledger_state(send->index);
    uint64_t back = atomic_load_explicit(&taken_back[send->index], memory_order_acquire);
    return back == writing->number || send->failure != FR_OK || state == FR_RNDV_PULLED ||
           state == FR_RNDV_FAILED || state == FR_RNDV_REFUSED;
}

static void tell_written(struct writing *writing, const struct fr_rndv_send *send, unsigned shift)
{
    const struct fr_rndv_entry entry = {.number = writing->number,
                                        .ready = (uint64_t)writing->arrived << shift,
                                        .index = send->index};
    if (writing->reported != writing->arrived &&
        fr_rndv_entry_send(writing->to, FR_CONTROL_WRITTEN, &entry, false))
        writing->reported = writing->arrived;
}

static bool goes_by_rails(const struct fr_rndv_send *send)
{
    const struct fr_rndv_rail_send *rail = send->scheme == &fr_rndv_rail ? send->state : NULL;
    return rail != NULL && rail->region != NULL;
}

void fr_rndv_rail_put_send_step(unsigned index, const struct fr_rndv_send *send)
{
    struct writing *writing = atomic_load_explicit(&writings[index], memory_order_acquire);
    if (writing == NULL)
        return;
    if (send == NULL || send->number != writing->number || send->address.to != writing->to ||
        !goes_by_rails(send)) {
        end(index, 0);
        return;
    }
    unsigned shift = fr_rndv_ledger_slot(index)->location.shift;
    size_t count = fr_rndv_fragments_count(send->bytes, shift);
    if (writing->status == FR_OK && is_unwanted(writing, send))
        writing->status = FR_ERR_CANCELLED;
    while (writing->status == FR_OK && writing->begun < count &&
           writing->begun - writing->done < WINDOW && write_next(writing, send, shift))
        continue;
    (void)fr_rail_poll(fr_rndv_rails());
    look_at_writes(writing);
    if (writing->arrived == count)
        end(index, send->bytes);
    else if (writing->status != FR_OK && writing->done == writing->begun)
        end(index, (uint64_t)writing->arrived << shift);
    else
        tell_written(writing, send, shift);
}

void fr_rndv_rail_put_send_stop(const struct fr_rndv_send *send)
{
    struct writing *writing = atomic_load_explicit(&writings[send->index], memory_order_acquire);
    if (writing != NULL && writing->status == FR_OK)
        writing->status = FR_ERR_CANCELLED;
    while (fr_rndv_rail_put_send_is_requested(send->index)) {
        fr_rndv_rail_put_send_step(send->index, send);
        fr_wait_yield();
    }
}

void fr_rndv_rail_put_send_close(void)
{
    for (unsigned index = 0; index < fr_rndv_ledger_count(); index++)
        free(atomic_exchange(&writings[index], NULL));
    atomic_store(&writing_count, 0);
}
