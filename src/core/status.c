// SPDX-License-Identifier: BSD-3-Clause
// Small helpers of the module: texts of the status type, sizes as people write them, and UTF-8
// characters.
#include "config.h"

#include "fabrail/core.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

_Atomic size_t fr_core_housekeeping_count;

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
        [FR_ERR_RANGE] = "beyond the window",
        [FR_ERR_EPOCH] = "no such epoch",
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

// Returns the shift of a size's suffix: K, M, G or T, each also as KB or KiB, always powers of
// 1024. Returns -1 if the text is anything else.
static int suffix_shift(const char *text)
{
    static const char letters[] = "kmgt";
    if (*text == '\0' || strcasecmp(text, "b") == 0)
        return 0;
    const char *letter = strchr(letters, *text | 0x20);
    if (letter == NULL)
        return -1;
    text++;
    if (*text != '\0' && strcasecmp(text, "b") != 0 && strcasecmp(text, "ib") != 0)
        return -1;
    return 10 * (int)(letter - letters + 1);
}

// The digits are read by hand: strtod would follow the application's locale, and strtoul takes
// signs.
bool fr_core_bytes_parse(const char *text, size_t *bytes)
{
    size_t whole = 0, fraction = 0, scale = 1;
    if (*text < '0' || *text > '9')
        return false;
    for (; *text >= '0' && *text <= '9'; text++) {
        if (__builtin_mul_overflow(whole, (size_t)10, &whole) ||
            __builtin_add_overflow(whole, (size_t)(*text - '0'), &whole))
            return false;
    }
    if (*text == '.') {
        for (text++; *text >= '0' && *text <= '9'; text++) {
            if (scale >= 1000000) // finer than a byte of a mebibyte is noise
                continue;
            fraction = fraction * 10 + (size_t)(*text - '0');
            scale *= 10;
        }
    }
    int shift = suffix_shift(text);
    if (shift < 0 || whole > SIZE_MAX >> shift || (shift == 0 && fraction > 0))
        return false;
    size_t rest = (fraction << shift) / scale; // below 2^20 * 2^40, since the suffix ends at T
    return !__builtin_add_overflow(whole << shift, rest, bytes);
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
