// SPDX-License-Identifier: BSD-3-Clause
// The words by which kernels and streams tell the host that they are done.
//
// The host polls words that the blocks of a kernel, or streams behind their copies, write to
// page-locked memory. On an H200 that is a microsecond faster than waiting for the stream. The
// streams are still asked now and then, since no word would ever come after a fault on the device.
#include "config.h"

#include "device/device_int.h"
#include "fabrail/core/wait.h"
#include "fabrail/device/kernels.h"

static struct fr_lock slots_lock = FR_LOCK_INIT;

uint64_t *fr_device_words_of(const struct fr_device_kernels *kernels, int slot)
{
    return kernels->words + (size_t)slot * FR_PUSH_MAX_BLOCKS;
}

int fr_device_words_borrow(struct fr_device_kernels *kernels, uint64_t *value)
{
    int slot = -1;
    fr_core_lock(&slots_lock);
    if (kernels->slots_taken != UINT32_MAX) {
        slot = __builtin_ctz(~kernels->slots_taken);
        kernels->slots_taken |= UINT32_C(1) << slot;
        *value = ++kernels->values[slot];
    }
    fr_core_unlock(&slots_lock);
    return slot;
}

void fr_device_words_return(struct fr_device_kernels *kernels, int slot)
{
    fr_core_lock(&slots_lock);
    kernels->slots_taken &= ~(UINT32_C(1) << slot);
    fr_core_unlock(&slots_lock);
}

int fr_device_streams_query(struct fr_device_stream *const *streams, unsigned count, unsigned told)
{
    int answer = 0;
    for (unsigned i = told < count ? told : count - 1; i < count && answer == 0; i++)
        answer = streams[i]->ops->stream_query(streams[i]);
    return answer;
}

int fr_device_words_wait(const uint64_t *words, unsigned due, uint64_t value,
                         struct fr_device_stream *const *streams, unsigned count)
{
    // The driver is asked, and the core yielded, about every 10 us.
    struct fr_wait wait = {.steps_a_yield = 256, .pauses = true};
    unsigned done = 0;
    for (;;) {
        while (done < due && __atomic_load_n(&words[done], __ATOMIC_ACQUIRE) == value)
            done++;
        if (done == due)
            return 0;
        if (!fr_wait_step(&wait))
            continue;
        int answer = fr_device_streams_query(streams, count, done);
        if (answer != FR_DEVICE_BUSY)
            return answer;
    }
}
