// SPDX-License-Identifier: BSD-3-Clause
// fr_abi_call passes on a word for every letter of a row, whatever their number. Speaks TAP.
#include "config.h"

#include "fabrail/abi.h"

#include <stdio.h>
#include <string.h>

struct fr_abi_personality fr_abi_mpi;

static fr_word seen[14];

static int record(fr_word a0, fr_word a1, fr_word a2, fr_word a3, fr_word a4, fr_word a5,
                  fr_word a6, fr_word a7, fr_word a8, fr_word a9, fr_word a10, fr_word a11,
                  fr_word a12, fr_word a13)
{
    const fr_word args[] = {a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13};
    memcpy(seen, args, sizeof(seen));
    return -12345;
}

void *fr_abi_reals[FR_FN_COUNT];

int main(void)
{
    int wrong = 0;
    unsigned lengths = 0;
    fr_abi_rows_fill();
    for (enum fr_fn fn = 0; fn < FR_FN_COUNT; fn++) {
        fr_word args[FR_MAX_ARGS];
        size_t count = strlen(fr_abi_rows[fn].signature);
        for (size_t i = 0; i < FR_MAX_ARGS; i++)
            args[i] = 0xfedcba9800000000u + 1000u * (unsigned)fn + i;
        memset(seen, 0, sizeof(seen));
        fr_abi_reals[fn] = (void *)record;
        int rc = fr_abi_call(fn, args);
        // No function with buffers has more arguments than are called here.
        if (count > FR_ARRAY_LENGTH(seen))
            continue;
        lengths |= 1u << count;
        wrong += rc != -12345 || memcmp(seen, args, count * sizeof(seen[0])) != 0;
    }
    printf("# lengths %#x, %d wrong\n", lengths, wrong);
    printf("%s 1 - real calls with any number of arguments\n1..1\n",
           wrong == 0 && (lengths & 0x3fff) == 0x3fff ? "ok" : "not ok");
    return wrong != 0;
}
