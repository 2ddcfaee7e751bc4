// SPDX-License-Identifier: BSD-3-Clause
// The table of mailboxes, of kernels that are waited for and of those that were left behind.
#include "config.h"

#include "device/mailbox.h"

#include "fabrail/core/wait.h"

#include <string.h>

enum {
    FLAG_SHIFT = 32,
    LOOKS = 512, // at the words, about 20 us
    SHUN_NS = 100000000,
    MOST_AT_ONCE = 8,
};

enum { FREE, UNDER_WAY, DISMISSED, LATE };

static struct fr_lock lock = FR_LOCK_INIT;
static struct fr_device_mailbox mailboxes[MOST_AT_ONCE] FR_GUARDED_BY(lock);
static _Atomic unsigned left_behind;
static _Atomic int64_t shunned_ns; // until then no kernel is tried; 0: none was late

bool fr_device_mailboxes_are_shunned(void)
{
    int64_t until_ns = atomic_load_explicit(&shunned_ns, memory_order_relaxed);
    return FR_UNLIKELY(until_ns != 0) && fr_time_coarse_ns() < until_ns;
}

bool fr_device_mailbox_is_over(const struct fr_device_mailbox *mailbox)
{
    unsigned done = 0;
    while (done < mailbox->answers &&
           __atomic_load_n(&mailbox->words[done], __ATOMIC_ACQUIRE) >> FLAG_SHIFT == mailbox->flag)
        done++;
    return done == mailbox->answers;
}

// Gives back what a mailbox holds. Its words are left empty, so that no flag is ever met again.
// They are kept where waits fail, since the kernel may still write there.
static void give_back(const struct fr_device_mailbox *mailbox, bool failed)
{
    const bool is_over = !failed || mailbox->stream->ops->stream_wait(mailbox->stream) == 0;
    mailbox->stream->ops->stream_give(mailbox->stream, failed);
    if (!is_over)
        return;
    memset(mailbox->words, 0, mailbox->used * sizeof(*mailbox->words));
    fr_device_words_return(mailbox->kernels, mailbox->slot);
}

static void set_free(struct fr_device_mailbox *mailbox)
{
    fr_core_lock(&lock);
    mailbox->state = FREE;
    fr_core_unlock(&lock);
}

// Frees the entries of kernels of this context that were left behind and are over. Returns whether
// no late one is left. The words of other contexts may be gone.
static bool end_left(const struct fr_device_kernels *kernels)
{
    struct fr_device_mailbox over[MOST_AT_ONCE];
    unsigned count = 0;
    bool none_late = true;
    fr_core_lock(&lock);
    for (unsigned i = 0; i < MOST_AT_ONCE; i++) {
        struct fr_device_mailbox *mailbox = &mailboxes[i];
        if (mailbox->state <= UNDER_WAY || mailbox->kernels != kernels)
            continue;
        bool is_over = fr_device_mailbox_is_over(mailbox);
        none_late = none_late && (is_over || mailbox->state != LATE);
        if (!is_over)
            continue;
        over[count++] = *mailbox;
        mailbox->state = FREE;
    }
    fr_core_unlock(&lock);
    atomic_fetch_sub_explicit(&left_behind, count, memory_order_relaxed);
    for (unsigned i = 0; i < count; i++)
        give_back(&over[i], false);
    return none_late;
}

static struct fr_device_mailbox *take_entry(struct fr_device_kernels *kernels)
{
    struct fr_device_mailbox *mailbox = NULL;
    fr_core_lock(&lock);
    for (unsigned i = 0; i < MOST_AT_ONCE && mailbox == NULL; i++) {
        if (mailboxes[i].state == FREE)
            mailbox = &mailboxes[i];
    }
    if (mailbox != NULL)
        *mailbox = (struct fr_device_mailbox){.kernels = kernels, .state = UNDER_WAY};
    fr_core_unlock(&lock);
    return mailbox;
}

struct fr_device_mailbox *fr_device_mailbox_take(const struct fr_device_scope *scope,
                                                 struct fr_device_kernels *kernels)
{
    uint64_t value = 0;
    if (atomic_load_explicit(&left_behind, memory_order_relaxed) > 0 && !end_left(kernels))
        return NULL;
    struct fr_device_mailbox *mailbox = take_entry(kernels);
    if (mailbox == NULL)
        return NULL;
    if (scope->ops->stream_borrow(scope->context, FR_TO_STAGE, &mailbox->stream) != FR_OK)
        goto free_entry;
    mailbox->slot = fr_device_words_borrow(kernels, &value);
    if (mailbox->slot < 0)
        goto give_stream;
    mailbox->flag = (uint32_t)value;
    mailbox->words = fr_device_words_of(kernels, mailbox->slot);
    if (mailbox->flag != 0)
        return mailbox;
    fr_device_words_return(kernels, mailbox->slot);
give_stream:
    scope->ops->stream_give(mailbox->stream, false);
free_entry:
    set_free(mailbox);
    return NULL;
}

int fr_device_mailbox_wait(const struct fr_device_mailbox *mailbox,
                           bool (*is_there)(const struct fr_device_mailbox *mailbox))
{
    struct fr_wait wait = {.spins = LOOKS, .pauses = true};
    while (wait.steps < LOOKS) {
        if (is_there(mailbox))
            return 0;
        (void)fr_wait_step(&wait);
    }
    int answer = mailbox->stream->ops->stream_query(mailbox->stream);
    return answer == FR_DEVICE_BUSY && is_there(mailbox) ? 0 : answer;
}

void fr_device_mailbox_end(struct fr_device_mailbox *mailbox, bool failed)
{
    give_back(mailbox, failed);
    set_free(mailbox);
}

void fr_device_mailbox_leave(struct fr_device_mailbox *mailbox, bool late)
{
    fr_core_lock(&lock);
    mailbox->state = late ? LATE : DISMISSED;
    fr_core_unlock(&lock);
    atomic_fetch_add_explicit(&left_behind, 1, memory_order_relaxed);
    if (late)
        atomic_store_explicit(&shunned_ns, fr_time_coarse_ns() + SHUN_NS, memory_order_relaxed);
}

void fr_device_mailboxes_forget(const struct fr_device_kernels *kernels)
{
    struct fr_device_stream *streams[MOST_AT_ONCE];
    unsigned count = 0;
    fr_core_lock(&lock);
    for (unsigned i = 0; i < MOST_AT_ONCE; i++) {
        struct fr_device_mailbox *mailbox = &mailboxes[i];
        if (mailbox->state <= UNDER_WAY || mailbox->kernels != kernels)
            continue;
        streams[count++] = mailbox->stream;
        mailbox->state = FREE;
    }
    fr_core_unlock(&lock);
    atomic_fetch_sub_explicit(&left_behind, count, memory_order_relaxed);
    for (unsigned i = 0; i < count; i++)
        streams[i]->ops->stream_give(streams[i], true);
}

// Words may be gone with their context, so they are not looked at. A kernel that was dismissed is
// over by now. The stream of a late one is lost, since it might never be.
void fr_device_mailboxes_release(void)
{
    struct fr_device_stream *streams[MOST_AT_ONCE];
    unsigned count = 0;
    fr_core_lock(&lock);
    for (unsigned i = 0; i < MOST_AT_ONCE; i++) {
        if (mailboxes[i].state == DISMISSED)
            streams[count++] = mailboxes[i].stream;
        if (mailboxes[i].state > UNDER_WAY)
            mailboxes[i].state = FREE;
    }
    fr_core_unlock(&lock);
    atomic_store_explicit(&left_behind, 0, memory_order_relaxed);
    for (unsigned i = 0; i < count; i++)
        streams[i]->ops->stream_give(streams[i], false);
}
