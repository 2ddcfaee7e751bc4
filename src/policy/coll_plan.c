// SPDX-License-Identifier: BSD-3-Clause
// Plans of collectives over NVLink: slices of ranks, sends of a broadcast, partners of an exchange.
#include "config.h"

#include "fabrail/policy/coll_plan.h"

enum {
    LINE_BYTES = 128,
    BY_ONE_BYTES = 128 << 20, // beyond what each link carries anyway; half a millisecond of NVLink
    AT_ONCE_BYTES = 24 << 20, // kernels take some 20 us more for these than engines on an H200
    SHORT_OF_ALL_BYTES = 128 << 10,
};

struct fr_policy_slice fr_policy_slice(size_t elements, size_t element_bytes, int ranks, int index,
                                       bool is_shared)
{
    size_t step = element_bytes < LINE_BYTES ? LINE_BYTES / element_bytes : 1;
    size_t lines = elements / step + (elements % step != 0);
    size_t each = lines / (size_t)ranks + (lines % (size_t)ranks != 0);
    if (!is_shared)
        each = lines;
    size_t first = (size_t)index * each;
    if (first >= lines)
        return (struct fr_policy_slice){elements, 0};
    size_t last = first + each < lines ? (first + each) * step : elements;
    return (struct fr_policy_slice){first * step, last - first * step};
}

bool fr_policy_reduction_is_shared(size_t bytes, int ranks, bool to_root, size_t share_min_bytes)
{
    return bytes >= share_min_bytes && !(to_root && ranks == 2);
}

// Each link carries about twice a vector into its GPU where the work is shared, and all others'
// vectors where one rank does it. Between two ranks that is the same.
bool fr_policy_reduction_suits_one(size_t bytes, int ranks, bool is_scattered)
{
    enum { MOST_LAUNCHES = 8 };
    if (is_scattered && ranks > MOST_LAUNCHES)
        return false;
    return ranks <= 2 || bytes <= (size_t)BY_ONE_BYTES / (size_t)(ranks - 2);
}

// A rank comes to its call soon after others, and from its call to its wait within a microsecond or
// two. On two H100 a shared reduction of 4 MiB takes 4 us less than one rank's, of 16 MiB 26 us
// less, and on two H200 one of 256 KiB takes 1 us less. A scattered one takes one rank a launch for
// each result, and twice the time of a long one.
int64_t fr_policy_reduction_moment_ns(size_t bytes, int ranks, bool is_scattered)
{
    enum { LEAST_BYTES = 256 << 10 };
    const size_t least_bytes = is_scattered ? 0 : LEAST_BYTES;
    return ranks > 1 && bytes >= least_bytes / (size_t)(ranks - 1) ? FR_POLICY_MOMENT_NS : 0;
}

unsigned fr_policy_sms_of(unsigned sms, int sharers)
{
    enum { DEFAULT_SMS = 32 };
    return (sms ? sms : DEFAULT_SMS) * (unsigned)(sharers > 1 ? sharers : 1);
}

// Where all links are alike, a broadcast among n ranks takes as long as a link needs for n - 1
// times its bytes. A split one takes as long as for 1 + (n - 2) / (n - 1) times its bytes. It saves
// (n - 2)^2 / (n - 1) times the bytes, which must take as long as the step costs. Among three ranks
// that factor is a half.
size_t fr_policy_bcast_split_min(int ranks, size_t split_min_bytes)
{
    if (ranks <= 2)
        return SIZE_MAX;
    size_t more = (size_t)ranks - 1, saved = 2 * (more - 1) * (more - 1);
    size_t rest = split_min_bytes % saved * more;
    return split_min_bytes / saved * more + rest / saved + (rest % saved != 0);
}

bool fr_policy_bcast_is_split(size_t bytes, int ranks, size_t split_min_bytes)
{
    return ranks > 2 && bytes > 0 && bytes >= fr_policy_bcast_split_min(ranks, split_min_bytes);
}

bool fr_policy_bcast_send(const struct fr_policy_bcast *bcast, int rank, int step, int index,
                          struct fr_policy_send *send)
{
    int ranks = bcast->ranks, to = (int)(((int64_t)rank + index) % ranks);
    int slice = step == 0 ? to : rank; // the rank, other than the root, whose slice it is
    if ((step == 0) != (rank == bcast->root) || to == bcast->root)
        return false;
    send->rank = to;
    send->slice = (struct fr_policy_slice){0, bcast->bytes};
    if (bcast->is_split)
        send->slice = fr_policy_slice(bcast->bytes, 1, ranks - 1,
                                      (slice - bcast->root + ranks - 1) % ranks, true);
    return send->slice.count > 0;
}

bool fr_policy_moves_at_once(size_t leaving_bytes, bool by_engines, bool is_set)
{
    return !by_engines || (!is_set && leaving_bytes <= AT_ONCE_BYTES);
}

// Each rank reads what all others have posted.
bool fr_policy_is_short(int64_t bytes, int ranks)
{
    return bytes > 0 && bytes < FR_POLICY_SHORT_BYTES && bytes <= SHORT_OF_ALL_BYTES / ranks;
}

// Data between short and long go by MPI's own messages where ranks are many: CPUs would take longer
// with the posts of all, and host memory would go through a device. The sizes were not measured.
bool fr_policy_is_worth_task(int64_t bytes, int ranks)
{
    return bytes >= FR_POLICY_SHORT_BYTES || fr_policy_is_short(bytes, ranks);
}

int fr_policy_partner(int rank, int size, int step, bool sends)
{
    int64_t partner = sends ? (int64_t)rank + step : (int64_t)rank - step + size;
    return (int)(partner % size);
}

bool fr_policy_reduction_combines(size_t elements, size_t element_bytes, size_t most, int ranks,
                                  size_t combine_min_bytes)
{
    size_t bytes = elements * element_bytes;
    return ranks > 1 && bytes > 0 && bytes >= combine_min_bytes &&
           most <= 2 * elements / (size_t)ranks;
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
