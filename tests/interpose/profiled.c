// SPDX-License-Identifier: BSD-3-Clause
// An exchange of device buffers under a profiler, which must have seen each call once. Speaks TAP.
#include "exchange.h"

#include <stdio.h>
#include <stdlib.h>

extern int profiler_counts[EXCHANGE_CALLS];

int main(void)
{
    static const int expected[EXCHANGE_CALLS] = EXCHANGE_COUNTS;
    int wrong = exchange_run(), miscounted = 0;
    if (wrong == EXCHANGE_SKIPPED) {
        printf("1..0 # SKIP no device memory\n");
        return 0;
    }
    for (int call = 0; call < EXCHANGE_CALLS; call++) {
        if (profiler_counts[call] == expected[call])
            continue;
        printf("# call %d was counted %d times, expected %d\n", call, profiler_counts[call],
               expected[call]);
        miscounted = 1;
    }
    printf("%s 1 - right bytes\n", wrong ? "not ok" : "ok");
    printf("%s 2 - each call counted once\n", miscounted ? "not ok" : "ok");
    printf("1..2\n");
    return wrong || miscounted;
}
