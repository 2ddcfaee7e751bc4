// SPDX-License-Identifier: BSD-3-Clause
// Which NICs a process drives. It is a pure function of the machine, its NICs, the GPU and the
// settings, so that recorded machines can be replayed.
#ifndef FR_RAIL_CHOOSE_H
#define FR_RAIL_CHOOSE_H

#include "fabrail/core.h"

enum { FR_RAIL_BUS_ID = 24, FR_RAIL_NAME = 64 };

// A node of a machine's tree: the machine, a package, a bridge, a PCI device and so on.
struct fr_rail_node {
    int parent; // index in the tree, -1 for the root
    unsigned depth;
    char bus_id[FR_RAIL_BUS_ID]; // of a PCI device, else ""
    bool is_gpu;
};

// The tree of a machine.
struct fr_rail_machine {
    struct fr_rail_node *nodes; // parents before children; owned by the machine
    unsigned count;
};

// Reads the tree of this machine, or of the hwloc XML file `xml` if that is not NULL. Uses hwloc,
// which it finds at run time. Returns FR_ERR_NOT_FOUND without hwloc; the machine is then empty but
// usable. The caller owns the machine until fr_rail_machine_free.
FR_MUST_CHECK enum fr_status fr_rail_machine_load(const char *xml, struct fr_rail_machine *machine);
// Frees the tree of a machine.
void fr_rail_machine_free(struct fr_rail_machine *machine);

// A NIC as libfabric names it.
struct fr_rail_nic {
    char name[FR_RAIL_NAME];     // of its domain, which users give in FABRAIL_RAIL_NICS
    char bus_id[FR_RAIL_BUS_ID]; // "" if it is no PCI device
    bool loopback;
};

// A process's wish for NICs.
struct fr_rail_wish {
    const char *gpu;      // PCI bus id in any usual form, NULL for host memory
    const char *nics;     // as FABRAIL_RAIL_NICS
    unsigned max;         // as FABRAIL_RAIL_MAX
    unsigned local_index; // of this process among those that share the position
    unsigned local_count; // number of those; 0 or 1 when nobody shares it
};

// Returns whether the setting `nics` allows the use of this NIC.
bool fr_rail_nic_allowed(const char *nics, const struct fr_rail_nic *nic);

// Writes the indices of the NICs to drive to `chosen`, in the order of their bus ids and names.
// Returns their number, at most `wish->max`, and 0 when none is allowed.
//
// It takes the allowed NICs that have the nearest common ancestor with the GPU. GPUs that are as
// near to them as this one share them. They share evenly if there are at least as many NICs as
// GPUs. Otherwise each GPU has one NIC, and neighbours have the same. Processes that share a GPU
// share its NICs likewise. All NICs are taken for host memory, and on a machine whose tree does not
// show the GPU or its NICs.
unsigned fr_rail_choose(const struct fr_rail_machine *machine, const struct fr_rail_nic *nics,
                        unsigned count, const struct fr_rail_wish *wish,
                        unsigned chosen[FR_RAILS_MAX]);

// Writes a bus id as hwloc and Linux do. `text` is such as 0000:3B:00.0, 3b:00.0 or
// 00000000:3b:00.0. Returns false if it is no bus id.
bool fr_rail_bus_id(const char *text, char bus_id[FR_RAIL_BUS_ID]);

#endif
