// SPDX-License-Identifier: BSD-3-Clause
// Plans of collectives over NVLink.
#include "config.h"

#include "policy/collective.h"

enum {
    LINE_BYTES = 128,
    // What a link carries in the 12 us or so that another launch and meeting take on an H200.
    SHARED_BYTES = 4 << 20,
    SLICE_BYTES = 2048, // at least; a launch costs some microseconds whatever it moves
};

struct fr_policy_slice fr_policy_slice(size_t elements, size_t element_bytes, int ranks, int index)
{
    size_t step = element_bytes < LINE_BYTES ? LINE_BYTES / element_bytes : 1;
    size_t lines = elements / step + (elements % step != 0);
    size_t each = lines / (size_t)ranks + (lines % (size_t)ranks != 0);
    if (each * step * element_bytes < SLICE_BYTES)
        each = SLICE_BYTES / (step * element_bytes);
    size_t first = (size_t)index * each;
    if (first >= lines)
        return (struct fr_policy_slice){elements, 0};
    size_t last = first + each < lines ? (first + each) * step : elements;
    return (struct fr_policy_slice){first * step, last - first * step};
}

bool fr_policy_bcast_is_shared(size_t bytes, int ranks)
{
    return ranks > 2 && bytes >= SHARED_BYTES / (size_t)(ranks - 2);
}

int fr_policy_partner(int rank, int size, int step, bool sends)
{
    int64_t partner = sends ? (int64_t)rank + step : (int64_t)rank - step + size;
    return (int)(partner % size);
}

const char *fr_policy_reduction_obstacle(const struct fr_policy_reduction_facts *facts)
{
    if (!facts->predefined)
        return "the kernels do not know this operation on this datatype";
    if (facts->ranks > facts->most_ranks)
        return "there are more ranks than a kernel serves";
    if (!facts->aligned)
        return "a buffer is not aligned";
    if (!facts->kernels)
        return "there are no kernels for reductions";
    return NULL;
}
