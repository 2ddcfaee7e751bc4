// SPDX-License-Identifier: BSD-3-Clause
// Accesses to windows over device memory.
#include "config.h"

#include "fabrail/policy/access_way.h"

static struct fr_policy_access_choice choose(enum fr_policy_way way, enum fr_policy_path path,
                                             const char *reason)
{
    return (struct fr_policy_access_choice){way, {path, reason}};
}

struct fr_policy_access_choice fr_policy_choose_access(const struct fr_policy_access *facts)
{
    if (!facts->mapped)
        return choose(FR_WAY_MESSAGE, FR_PATH_HOST, "the origin does not map the target's memory");
    if (facts->updates && !facts->one_host)
        return choose(FR_WAY_MESSAGE, FR_PATH_HOST,
                      "ranks of several hosts take turns at the target");
    if (!facts->by_device)
        return choose(FR_WAY_OVER_HOST, FR_PATH_HOST,
                      "no device does this with the memory of both sides");
    return choose(FR_WAY_DIRECT, FR_PATH_PEER, "the origin maps the target's memory");
}
