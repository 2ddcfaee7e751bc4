// SPDX-License-Identifier: BSD-3-Clause
// The machine's tree, read by hwloc when the first rails are opened. hwloc is closed again
// afterwards. A job without rails never loads it.
#include "config.h"

#include "fabrail/core/object.h"
#include "rail/choose.h"

#include <dlfcn.h>
#include <hwloc.h>
#include <stdio.h>
#include <stdlib.h>

struct hwloc {
    void *handle;
    __typeof__(hwloc_topology_init) *init;
    __typeof__(hwloc_topology_destroy) *destroy;
    __typeof__(hwloc_topology_load) *load;
    __typeof__(hwloc_topology_set_xml) *set_xml;
    __typeof__(hwloc_topology_set_io_types_filter) *set_io_filter;
    __typeof__(hwloc_topology_set_type_filter) *set_filter;
    __typeof__(hwloc_get_obj_by_depth) *by_depth;
};

static bool find_symbol(void *handle, const char *name, void **symbol)
{
    *symbol = fr_core_dlsym(handle, name);
    return *symbol != NULL;
}

#define FIND(member, name) find_symbol(lib->handle, "hwloc_" name, (void **)&lib->member)

// Opens hwloc by the soname of version 2, whose ABI the header promises.
static bool open_hwloc(struct hwloc *lib)
{
    lib->handle = fr_core_dlopen("libhwloc.so.15", RTLD_NOW | RTLD_LOCAL);
    if (lib->handle == NULL)
        return false;
    if (FIND(init, "topology_init") && FIND(destroy, "topology_destroy") &&
        FIND(load, "topology_load") && FIND(set_xml, "topology_set_xml") &&
        FIND(set_io_filter, "topology_set_io_types_filter") &&
        FIND(set_filter, "topology_set_type_filter") && FIND(by_depth, "get_obj_by_depth"))
        return true;
    dlclose(lib->handle);
    return false;
}

static unsigned count_objects(hwloc_obj_t object)
{
    unsigned count = 1;
    for (hwloc_obj_t child = object->first_child; child != NULL; child = child->next_sibling)
        count += count_objects(child);
    for (hwloc_obj_t child = object->io_first_child; child != NULL; child = child->next_sibling)
        count += count_objects(child);
    return count;
}

static void describe(hwloc_obj_t object, struct fr_rail_node *node)
{
    node->bus_id[0] = '\0';
    node->is_gpu = false;
    if (object->type != HWLOC_OBJ_PCI_DEVICE)
        return;
    const struct hwloc_pcidev_attr_s *pci = &object->attr->pcidev;
    snprintf(node->bus_id, sizeof(node->bus_id), "%04x:%02x:%02x.%x", (unsigned)pci->domain,
             pci->bus, pci->dev, pci->func);
    // A display device of NVIDIA's.
    node->is_gpu = pci->class_id >> 8 == 0x03 && pci->vendor_id == 0x10de;
}

// Adds an object and all below it. Depth counts nodes, since hwloc's depth differs for bridges.
static void add_objects(hwloc_obj_t object, int parent, struct fr_rail_machine *machine)
{
    int own = (int)machine->count++;
    struct fr_rail_node *node = &machine->nodes[own];
    node->parent = parent;
    node->depth = parent < 0 ? 0 : machine->nodes[parent].depth + 1;
    describe(object, node);
    for (hwloc_obj_t child = object->first_child; child != NULL; child = child->next_sibling)
        add_objects(child, own, machine);
    for (hwloc_obj_t child = object->io_first_child; child != NULL; child = child->next_sibling)
        add_objects(child, own, machine);
}

// Operating system devices are left out. To look for them would start drivers that hwloc's plugins
// know, CUDA's among them.
static bool load_topology(const struct hwloc *lib, hwloc_topology_t topology, const char *xml)
{
    return (xml == NULL || lib->set_xml(topology, xml) == 0) &&
           lib->set_io_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT) == 0 &&
           lib->set_filter(topology, HWLOC_OBJ_OS_DEVICE, HWLOC_TYPE_FILTER_KEEP_NONE) == 0 &&
           lib->load(topology) == 0;
}

static enum fr_status read_topology(const struct hwloc *lib, const char *xml,
                                    struct fr_rail_machine *machine)
{
    hwloc_topology_t topology;
    enum fr_status status = FR_ERR_INVALID;
    if (lib->init(&topology) != 0)
        return FR_ERR_NO_MEMORY;
    hwloc_obj_t root = load_topology(lib, topology, xml) ? lib->by_depth(topology, 0, 0) : NULL;
    if (root != NULL) {
        machine->nodes = malloc(count_objects(root) * sizeof(*machine->nodes));
        status = machine->nodes != NULL ? FR_OK : FR_ERR_NO_MEMORY;
    }
    if (status == FR_OK)
        add_objects(root, -1, machine);
    lib->destroy(topology);
    return status;
}

enum fr_status fr_rail_machine_load(const char *xml, struct fr_rail_machine *machine)
{
    struct hwloc lib;
    *machine = (struct fr_rail_machine){NULL, 0};
    if (!open_hwloc(&lib)) {
        fr_debug("hwloc 2 was not found: %s", dlerror());
        return FR_ERR_NOT_FOUND;
    }
    enum fr_status status = read_topology(&lib, xml, machine);
    dlclose(lib.handle);
    return status;
}

void fr_rail_machine_free(struct fr_rail_machine *machine)
{
    free(machine->nodes);
    *machine = (struct fr_rail_machine){NULL, 0};
}
