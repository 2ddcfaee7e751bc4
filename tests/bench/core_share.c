// SPDX-License-Identifier: BSD-3-Clause
// Times additions that do not depend on each other, and a chain of multiplications that do. The
// chain takes three cycles each on recent x86-64 and ARM cores, and no longer where a core is
// shared. So it says how long a cycle is.
#include "config.h"

#include "core_share.h"

#include "fabrail/core/time.h"

#include <stdint.h>

enum { ROUNDS = 4000, TIMES = 5, CYCLES_A_PRODUCT = 3, SUMS = 6 };

#if defined(__x86_64__) || defined(__aarch64__)

// An empty statement keeps the compiler from doing several steps at once.
static double product_ns(void)
{
    uint64_t product = 3, factor = 5;
    __asm__ volatile("" : "+r"(factor)); // else additions could do
    int64_t start = fr_time_ns();
    for (int i = 0; i < ROUNDS; i++) {
        product *= factor;
        __asm__ volatile("" : "+r"(product));
    }
    return (double)(fr_time_ns() - start) / ROUNDS;
}

static double sums_ns(void)
{
    uint64_t a = 1, b = 2, c = 3, d = 4, e = 5, f = 6;
    int64_t start = fr_time_ns();
    for (int i = 0; i < ROUNDS; i++) {
        a += 7, b += 7, c += 7, d += 7, e += 7, f += 7;
        __asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e), "+r"(f));
    }
    return (double)(fr_time_ns() - start) / ROUNDS;
}

// Takes the least of some times, since interrupts only add.
double core_additions_per_cycle(void)
{
    double product = product_ns(), sums = sums_ns();
    for (int i = 1; i < TIMES; i++) {
        double again = product_ns();
        product = again < product ? again : product;
        again = sums_ns();
        sums = again < sums ? again : sums;
    }
    return sums > 0 ? SUMS * (product / CYCLES_A_PRODUCT) / sums : 0;
}

#else

double core_additions_per_cycle(void)
{
    return 0;
}

#endif
