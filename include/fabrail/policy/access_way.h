// SPDX-License-Identifier: BSD-3-Clause
// How an access to the memory of another rank of a window goes.
#ifndef FR_FABRAIL_POLICY_ACCESS_WAY_H
#define FR_FABRAIL_POLICY_ACCESS_WAY_H

#include "fabrail/policy.h"

enum fr_policy_way {
    FR_WAY_DIRECT,    // a device of the origin moves the data to or from the target
    FR_WAY_OVER_HOST, // the origin moves them over packed host memory
    FR_WAY_MESSAGE,   // the target does the access, as a message asks for
};

struct fr_policy_access {
    bool mapped;    // the origin reaches the target's memory
    bool one_host;  // origin and target share the words of the window
    bool updates;   // it reads and writes the target, with nobody between
    bool by_device; // one device uses both sides, and has a kernel for the operation
};

struct fr_policy_access_choice {
    enum fr_policy_way way;
    struct fr_policy_choice choice;
};

// Returns the way of an access. Depends on the facts alone.
struct fr_policy_access_choice fr_policy_choose_access(const struct fr_policy_access *facts);

#endif
