// SPDX-License-Identifier: BSD-3-Clause
// Writes what hwloc finds on this machine to a file, so that launchers and ranks need not look for
// themselves: they read the configuration of every PCI device, which is slow in a virtual machine.
//
//     machine FILE
#include <hwloc.h>

// Devices of the operating system are left out: to look for them starts drivers that hwloc knows.
int main(int argc, char **argv)
{
    hwloc_topology_t machine;
    if (argc != 2 || hwloc_topology_init(&machine) != 0)
        return 1;
    int failed =
        hwloc_topology_set_io_types_filter(machine, HWLOC_TYPE_FILTER_KEEP_IMPORTANT) != 0 ||
        hwloc_topology_set_type_filter(machine, HWLOC_OBJ_OS_DEVICE, HWLOC_TYPE_FILTER_KEEP_NONE) !=
            0 ||
        hwloc_topology_load(machine) != 0 || hwloc_topology_export_xml(machine, argv[1], 0) != 0;
    hwloc_topology_destroy(machine);
    return failed;
}
