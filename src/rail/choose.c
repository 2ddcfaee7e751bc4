// SPDX-License-Identifier: BSD-3-Clause
// The choice of NICs. Nearness is the depth of the nearest common ancestor in the machine's tree,
// in which bridges hang below packages. So a switch is nearer than a root port, and a root port is
// nearer than the other socket.
#include "config.h"

#include "rail/choose.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NICS_MAX = 256 }; // of a machine; any more are ignored

bool fr_rail_bus_id(const char *text, char bus_id[FR_RAIL_BUS_ID])
{
    unsigned domain = 0, bus = 0, device = 0, function = 0;
    int end = 0;
    bool whole = sscanf(text, "%x:%x:%x.%x%n", &domain, &bus, &device, &function, &end) == 4;
    if (!whole) {
        domain = 0;
        end = 0;
        whole = sscanf(text, "%x:%x.%x%n", &bus, &device, &function, &end) == 3;
    }
    if (!whole || text[end] != '\0' || bus > 0xff || device > 0x1f || function > 7)
        return false;
    snprintf(bus_id, FR_RAIL_BUS_ID, "%04x:%02x:%02x.%x", domain, bus, device, function);
    return true;
}

// Returns whether `name` matches one of the comma-separated patterns.
static bool matches_any(const char *patterns, const char *name)
{
    char pattern[FR_RAIL_NAME];
    while (*patterns != '\0') {
        size_t length = strcspn(patterns, ",");
        if (length > 0 && length < sizeof(pattern)) {
            memcpy(pattern, patterns, length);
            pattern[length] = '\0';
            if (fnmatch(pattern, name, 0) == 0)
                return true;
        }
        patterns += length + (patterns[length] == ',');
    }
    return false;
}

bool fr_rail_nic_allowed(const char *nics, const struct fr_rail_nic *nic)
{
    if (nics == NULL || *nics == '\0')
        return !nic->loopback;
    if (*nics == '^')
        return !nic->loopback && !matches_any(nics + 1, nic->name);
    return matches_any(nics, nic->name);
}

static int find_node(const struct fr_rail_machine *machine, const char *bus_id)
{
    for (unsigned i = 0; *bus_id != '\0' && i < machine->count; i++) {
        if (strcmp(machine->nodes[i].bus_id, bus_id) == 0)
            return (int)i;
    }
    return -1;
}

static int common_ancestor(const struct fr_rail_machine *machine, int a, int b)
{
    const struct fr_rail_node *nodes = machine->nodes;
    while (a != b) {
        if (nodes[a].depth >= nodes[b].depth)
            a = nodes[a].parent;
        else
            b = nodes[b].parent;
        if (a < 0 || b < 0)
            return -1;
    }
    return a;
}

// Returns the depth of the nearest common ancestor, -1 if the tree shows none.
static int nearness(const struct fr_rail_machine *machine, int a, int b)
{
    int ancestor = a < 0 || b < 0 ? -1 : common_ancestor(machine, a, b);
    return ancestor < 0 ? -1 : (int)machine->nodes[ancestor].depth;
}

// The NICs that are nearest to a node, as indices into the list of NICs.
struct nearest {
    unsigned nics[NICS_MAX];
    unsigned count;
    int depth;
};

static void find_nearest(const struct fr_rail_machine *machine, const int nodes[],
                         const unsigned sorted[], unsigned count, int gpu, struct nearest *nearest)
{
    nearest->count = 0;
    nearest->depth = -1;
    for (unsigned i = 0; i < count; i++) {
        int depth = nearness(machine, gpu, nodes[sorted[i]]);
        if (depth > nearest->depth) {
            nearest->depth = depth;
            nearest->count = 0;
        }
        if (depth == nearest->depth)
            nearest->nics[nearest->count++] = sorted[i];
    }
}

static bool same_nics(const struct nearest *a, const struct nearest *b)
{
    return a->count == b->count && memcmp(a->nics, b->nics, a->count * sizeof(a->nics[0])) == 0;
}

// Counts the GPUs that have exactly the NICs of `own`, and finds the place of `gpu` among them by
// bus id.
static void count_sharers(const struct fr_rail_machine *machine, const int nodes[],
                          const unsigned sorted[], unsigned count, int gpu,
                          const struct nearest *own, unsigned *index, unsigned *sharers)
{
    struct nearest other;
    *index = 0;
    *sharers = 1;
    for (unsigned i = 0; own->depth >= 0 && i < machine->count; i++) {
        if (!machine->nodes[i].is_gpu || (int)i == gpu)
            continue;
        find_nearest(machine, nodes, sorted, count, (int)i, &other);
        if (!same_nics(&other, own))
            continue;
        (*sharers)++;
        *index += strcmp(machine->nodes[i].bus_id, machine->nodes[gpu].bus_id) < 0;
    }
}

// Compares by bus id, with NICs that have none last. Then compares by name, in which numbers count
// as numbers: eth2 comes before eth10.
static int compare_nics(const void *first, const void *second, void *cookie)
{
    const struct fr_rail_nic *nics = cookie;
    const struct fr_rail_nic *a = &nics[*(const unsigned *)first];
    const struct fr_rail_nic *b = &nics[*(const unsigned *)second];
    if ((*a->bus_id == '\0') != (*b->bus_id == '\0'))
        return *a->bus_id == '\0' ? 1 : -1;
    int order = strcmp(a->bus_id, b->bus_id);
    return order != 0 ? order : strverscmp(a->name, b->name);
}

static unsigned sort_allowed(const struct fr_rail_nic *nics, unsigned count, const char *allowed,
                             unsigned sorted[NICS_MAX])
{
    unsigned used = 0;
    for (unsigned i = 0; i < count && i < NICS_MAX; i++) {
        if (fr_rail_nic_allowed(allowed, &nics[i]))
            sorted[used++] = i;
    }
    qsort_r(sorted, used, sizeof(sorted[0]), compare_nics, (void *)(uintptr_t)nics);
    return used;
}

// Takes the share of one of `sharers`. With n sharers that is every n-th NIC, or one NIC that
// others have as well.
static unsigned take_share(const struct nearest *nearest, unsigned index, unsigned sharers,
                           unsigned taken[NICS_MAX])
{
    unsigned used = 0;
    if (nearest->count == 0)
        return 0;
    if (sharers > nearest->count) {
        taken[0] = nearest->nics[(size_t)index * nearest->count / sharers];
        return 1;
    }
    for (unsigned i = index; i < nearest->count; i += sharers)
        taken[used++] = nearest->nics[i];
    return used;
}

unsigned fr_rail_choose(const struct fr_rail_machine *machine, const struct fr_rail_nic *nics,
                        unsigned count, const struct fr_rail_wish *wish,
                        unsigned chosen[FR_RAILS_MAX])
{
    unsigned sorted[NICS_MAX], taken[NICS_MAX], index = 0, sharers = 1;
    int nodes[NICS_MAX];
    char bus_id[FR_RAIL_BUS_ID] = "";
    struct nearest nearest;
    unsigned allowed = sort_allowed(nics, count, wish->nics, sorted);
    for (unsigned i = 0; i < allowed; i++)
        nodes[sorted[i]] = find_node(machine, nics[sorted[i]].bus_id);

    int gpu =
        wish->gpu != NULL && fr_rail_bus_id(wish->gpu, bus_id) ? find_node(machine, bus_id) : -1;
    find_nearest(machine, nodes, sorted, allowed, gpu, &nearest);
    count_sharers(machine, nodes, sorted, allowed, gpu, &nearest, &index, &sharers);
    if (wish->local_count > 1) {
        index = index * wish->local_count + wish->local_index % wish->local_count;
        sharers *= wish->local_count;
    }
    unsigned used = take_share(&nearest, index, sharers, taken);
    unsigned bound = wish->max < FR_RAILS_MAX ? wish->max : FR_RAILS_MAX;
    used = used < bound ? used : bound;
    memcpy(chosen, taken, used * sizeof(chosen[0]));
    return used;
}
