// SPDX-License-Identifier: BSD-3-Clause
// What every unit test is written with: checks that print what failed and where, buffers between
// guards, and a pseudo-random sequence that is the same in every run.
#ifndef FR_TESTS_UNIT_CHECK_H
#define FR_TESTS_UNIT_CHECK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHECK_PASS = 0, CHECK_FAIL = 1, CHECK_SKIP = 77 };

static _Atomic unsigned check_failures;

#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            check_failures++;                                                                      \
            fprintf(stderr, "%s:%d: failed: %s:", __FILE__, __LINE__, #condition);                 \
            fprintf(stderr, " " __VA_ARGS__);                                                      \
            fputc('\n', stderr);                                                                   \
        }                                                                                          \
    } while (0)

// Ends main.
static inline int check_result(void)
{
    unsigned failures = check_failures;
    if (failures > 0)
        fprintf(stderr, "%u checks failed\n", failures);
    return failures > 0 ? CHECK_FAIL : CHECK_PASS;
}

// Of cases that are alike, such as driver calls that fail, each so-manieth is tried: FR_TEST_STEP,
// for where programs run many times slower.
static inline unsigned check_step(void)
{
    const char *text = getenv("FR_TEST_STEP");
    int step = text != NULL ? atoi(text) : 1;
    return step > 0 ? (unsigned)step : 1;
}

static inline uint64_t check_random(uint64_t *state)
{
    // splitmix64 (Steele, Lea and Flood, 2014)
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

// Eight bytes of each number, since valgrind takes long for more of them.
static inline void check_fill(void *memory, size_t bytes, uint64_t seed)
{
    unsigned char *p = memory;
    uint64_t word;
    for (; bytes >= sizeof(word); p += sizeof(word), bytes -= sizeof(word)) {
        word = check_random(&seed);
        memcpy(p, &word, sizeof(word));
    }
    word = check_random(&seed);
    memcpy(p, &word, bytes);
}

// Returns the first byte that differs from what check_fill wrote, `bytes` if none does.
static inline size_t check_first_difference(const void *memory, size_t bytes, uint64_t seed)
{
    const unsigned char *p = memory;
    for (size_t at = 0; at < bytes;) {
        uint64_t word = check_random(&seed);
        size_t part = bytes - at < sizeof(word) ? bytes - at : sizeof(word);
        const unsigned char *want = (const unsigned char *)&word;
        for (size_t i = 0; i < part; i++, at++) {
            if (p[at] != want[i])
                return at;
        }
    }
    return bytes;
}

#endif
