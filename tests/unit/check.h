// SPDX-License-Identifier: BSD-3-Clause
// Tools of every unit test: checks that print what failed and where, buffers between guards, and a
// pseudo-random sequence that is the same in every run.
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

// Stands for pthread_create in the tests of fr_unit_single (local.mk), which ThreadSanitizer leaves
// out.
int __wrap_pthread_create(void *thread, const void *attributes, void *(*run)(void *), void *cookie);
__attribute__((weak)) int __wrap_pthread_create(void *thread, const void *attributes,
                                                void *(*run)(void *), void *cookie)
{
    (void)thread;
    (void)attributes;
    (void)run;
    (void)cookie;
    CHECK(false, "a thread is made, so that ThreadSanitizer must see this test (fr_unit_single)");
    return -1;
}

// Ends main.
static inline int check_result(void)
{
    unsigned failures = check_failures;
    if (failures > 0)
        fprintf(stderr, "%u checks failed\n", failures);
    return failures > 0 ? CHECK_FAIL : CHECK_PASS;
}

// Returns FR_TEST_STEP: one of so many cases that are alike, such as driver calls that fail, is
// tried. It is set where programs run many times slower.
static inline unsigned check_step(void)
{
    const char *text = getenv("FR_TEST_STEP");
    int step = text != NULL ? atoi(text) : 1;
    return step > 0 ? (unsigned)step : 1;
}

static inline uint64_t check_mix(uint64_t z)
{
    // splitmix64 (Steele, Lea and Flood, 2014)
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline uint64_t check_random(uint64_t *state)
{
    return check_mix(*state += 0x9e3779b97f4a7c15u);
}

// Makes the next numbers of a sequence, as many as have so many bytes. No sanitizer watches how
// they are made, which would take most of a test's time. All watch the copies and comparisons of
// them.
enum { CHECK_WORDS = 128 };
static __attribute__((no_sanitize("address", "thread", "undefined"), unused)) void
check_make(uint64_t words[CHECK_WORDS], size_t bytes, uint64_t *seed)
{
    for (size_t i = 0; i * sizeof(words[0]) < bytes; i++)
        words[i] = check_mix(*seed += 0x9e3779b97f4a7c15u);
}

static inline void check_fill(void *memory, size_t bytes, uint64_t seed)
{
    uint64_t words[CHECK_WORDS];
    for (size_t at = 0, part; at < bytes; at += part) {
        part = bytes - at < sizeof(words) ? bytes - at : sizeof(words);
        check_make(words, part, &seed);
        memcpy((char *)memory + at, words, part);
    }
}

// Returns the first byte that differs from what check_fill wrote, `bytes` if none does.
static inline size_t check_first_difference(const void *memory, size_t bytes, uint64_t seed)
{
    uint64_t words[CHECK_WORDS];
    for (size_t at = 0, part; at < bytes; at += part) {
        const char *p = (const char *)memory + at, *want = (const char *)words;
        part = bytes - at < sizeof(words) ? bytes - at : sizeof(words);
        check_make(words, part, &seed);
        if (memcmp(p, want, part) == 0)
            continue;
        for (; *p == *want; at++)
            p++, want++;
        return at;
    }
    return bytes;
}

#endif
