// SPDX-License-Identifier: BSD-3-Clause
// The table of MPI functions as data, and questions about a row's signature.
#include "config.h"

#include "real/real.h"

#include <string.h>

const struct fr_real_row fr_real_rows[FR_FN_COUNT] = {
#define FR_ROW(name, class, signature, flags)                                                      \
    {#name, signature, FR_CLASS_##class, flags, sizeof(signature) - 1},
#include "real/functions.def"
#include "real/passes.def"
#undef FR_ROW
};

int fr_real_arg(enum fr_fn fn, char letter, int from)
{
    const char *signature = fr_real_rows[fn].signature;
    const char *found = strchr(signature + from, letter);
    return found ? (int)(found - signature) : -1;
}

enum fr_fn fr_real_named(const char *name)
{
    enum fr_fn fn = 0;
    name += name[0] == 'P';
    while (fn < FR_FN_STUB_COUNT && strcmp(fr_real_rows[fn].name, name) != 0)
        fn++;
    return fn;
}

bool fr_real_is_poll(enum fr_fn fn)
{
    switch (fr_real_rows[fn].class) {
    case FR_CLASS_TEST:
    case FR_CLASS_TESTALL:
    case FR_CLASS_TESTANY:
    case FR_CLASS_TESTSOME:
    case FR_CLASS_GET_STATUS:
    case FR_CLASS_GET_STATUS_ALL:
    case FR_CLASS_GET_STATUS_ANY:
    case FR_CLASS_GET_STATUS_SOME:
    case FR_CLASS_PARRIVED:
        return true;
    case FR_CLASS_PROBE:
        return fr_real_arg(fn, 'F', 0) >= 0;
    default:
        return false;
    }
}
