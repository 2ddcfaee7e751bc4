// SPDX-License-Identifier: BSD-3-Clause
// Small helpers of the module: texts of the status type, sizes as people write them, UTF-8
// characters, and the lock.
#include "config.h"

#include "fabrail/core.h"

#include <stdio.h>

_Atomic size_t fr_core_errand_count;

const char *fr_core_status_text(enum fr_status status)
{
    static const char *const texts[] = {
        [FR_OK] = "success",
        [FR_ERR_NO_MEMORY] = "out of memory",
        [FR_ERR_NOT_FOUND] = "not found",
        [FR_ERR_UNSUPPORTED] = "not supported here",
        [FR_ERR_INVALID] = "invalid argument",
        [FR_ERR_TRUNCATE] = "message truncated",
        [FR_ERR_LIMIT] = "limit exceeded",
        [FR_ERR_DEVICE] = "device driver call failed",
        [FR_ERR_MPI] = "MPI call failed",
        [FR_ERR_RAIL] = "rail failed",
        [FR_ERR_CANCELLED] = "cancelled",
    };
    if ((size_t)status >= FR_ARRAY_LENGTH(texts))
        return "unknown status";
    return texts[status];
}

const char *fr_core_bytes_text(size_t bytes, char text[FR_BYTES_TEXT])
{
    static const char suffixes[] = "KMGTPE";
    unsigned power = 0;
    while (power < sizeof(suffixes) - 1 && bytes != 0 && bytes % 1024 == 0) {
        bytes /= 1024;
        power++;
    }
    if (power > 0)
        snprintf(text, FR_BYTES_TEXT, "%zu%c", bytes, suffixes[power - 1]);
    else
        snprintf(text, FR_BYTES_TEXT, "%zu", bytes);
    return text;
}

unsigned fr_core_utf8_length(const char *at)
{
    const unsigned char *text = (const unsigned char *)at;
    unsigned length = text[0] < 0x80                      ? 1
                      : text[0] >= 0xc2 && text[0] < 0xe0 ? 2
                      : (text[0] & 0xf0u) == 0xe0         ? 3
                      : text[0] >= 0xf0 && text[0] < 0xf5 ? 4
                                                          : 0;
    for (unsigned i = 1; i < length; i++) {
        if ((text[i] & 0xc0u) != 0x80)
            return 0;
    }
    bool surrogate = text[0] == 0xed && text[1] >= 0xa0;
    bool overlong = (text[0] == 0xe0 && text[1] < 0xa0) || (text[0] == 0xf0 && text[1] < 0x90);
    bool beyond = text[0] == 0xf4 && text[1] >= 0x90;
    return surrogate || overlong || beyond ? 0 : length;
}

// The two functions below are what the analysis reasons about, so they are exempt from it.
FR_UNANALYSED void fr_core_lock(struct fr_lock *lock)
{
    pthread_mutex_lock(&lock->mutex);
}

FR_UNANALYSED void fr_core_unlock(struct fr_lock *lock)
{
    pthread_mutex_unlock(&lock->mutex);
}
