// SPDX-License-Identifier: BSD-3-Clause
// Discovery of NICs. libfabric is asked for all that can read and write remote memory, in several
// ways, the most suitable one first. If it gives a NIC several times, the first answer counts.
#include "config.h"

#include "rail/steps_int.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FOUND_MAX = 256 };

struct found {
    struct fi_info *infos[FOUND_MAX]; // owned
    struct fr_rail_nic nics[FOUND_MAX];
    unsigned count;
};

// Providers of which one is taken without being named, the fastest first. Providers over others
// (verbs, tcp) have the names that libfabric gives the pair.
static const char *const preferred[] = {"cxi",  "efa", "verbs;ofi_rxm", "opx",         "psm3",
                                        "psm2", "net", "tcp",           "tcp;ofi_rxm", "sockets"};

static const char *provider_of(const struct fi_info *info)
{
    return info->fabric_attr->prov_name != NULL ? info->fabric_attr->prov_name : "";
}

static const char *domain_of(const struct fi_info *info)
{
    return info->domain_attr->name != NULL ? info->domain_attr->name : "";
}

static struct fi_info *make_hints(const struct fr_rail_library *library, const char *provider,
                                  bool hmem, bool manual, bool safe)
{
    struct fi_info *hints = library->dupinfo(NULL);
    if (hints == NULL)
        return NULL;
    hints->caps = FI_RMA | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode =
        FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
    hints->domain_attr->threading = safe ? FI_THREAD_SAFE : FI_THREAD_COMPLETION;
    hints->domain_attr->control_progress = manual ? FI_PROGRESS_MANUAL : FI_PROGRESS_AUTO;
    hints->domain_attr->data_progress = hints->domain_attr->control_progress;
    if (hmem) {
        hints->caps |= FI_HMEM;
        hints->domain_attr->mr_mode |= FI_MR_HMEM;
    }
    if (provider != NULL)
        hints->fabric_attr->prov_name = strdup(provider); // freed with the hints
    return hints;
}

static bool is_loopback(const struct fi_info *info)
{
    const struct sockaddr_in *ip = info->src_addr;
    const struct sockaddr_in6 *ip6 = info->src_addr;
    if (strcmp(domain_of(info), "lo") == 0)
        return true;
    if (info->addr_format == FI_SOCKADDR_IN && info->src_addrlen >= sizeof(*ip))
        return ntohl(ip->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    return info->addr_format == FI_SOCKADDR_IN6 && info->src_addrlen >= sizeof(*ip6) &&
           IN6_IS_ADDR_LOOPBACK(&ip6->sin6_addr);
}

// Returns whether an address is valid on one link only. It would need a scope that means nothing
// elsewhere.
static bool is_link_local(const struct fi_info *info)
{
    const struct sockaddr_in6 *ip6 = info->src_addr;
    return info->addr_format == FI_SOCKADDR_IN6 && info->src_addrlen >= sizeof(*ip6) &&
           IN6_IS_ADDR_LINKLOCAL(&ip6->sin6_addr);
}

// Returns whether a NIC is a bridge or tunnel of Linux that the user has not named. Their traffic
// stays on a host, such as that of containers, and many hosts have the same address for them.
static bool is_inside(const struct fi_info *info, const char *allowed)
{
    static const char *const marks[] = {"bridge", "tun_flags"};
    const char *name = domain_of(info);
    char path[256];
    bool named = allowed != NULL && *allowed != '\0' && *allowed != '^';
    for (size_t i = 0; !named && info->nic == NULL && i < FR_ARRAY_LENGTH(marks); i++) {
        snprintf(path, sizeof(path), "/sys/class/net/%s/%s", name, marks[i]);
        if (strchr(name, '/') == NULL && access(path, F_OK) == 0)
            return true;
    }
    return false;
}

// Finds the bus id of a NIC for which libfabric gives the name of an interface or device of Linux.
// The name must be that of a PCI device.
static bool find_bus_id(const char *folder, const char *name, char bus_id[FR_RAIL_BUS_ID])
{
    char path[256], target[256];
    if (*name == '.' || strchr(name, '/') != NULL)
        return false;
    snprintf(path, sizeof(path), "/sys/class/%s/%s/device", folder, name);
    ssize_t length = readlink(path, target, sizeof(target) - 1);
    if (length <= 0)
        return false;
    target[length] = '\0';
    const char *last = strrchr(target, '/');
    return fr_rail_bus_id(last != NULL ? last + 1 : target, bus_id);
}

void fr_rail_describe_nic(const struct fi_info *info, struct fr_rail_nic *nic)
{
    *nic = (struct fr_rail_nic){.loopback = is_loopback(info)};
    snprintf(nic->name, sizeof(nic->name), "%s", domain_of(info));
    if (info->nic != NULL && info->nic->bus_attr != NULL &&
        info->nic->bus_attr->bus_type == FI_BUS_PCI) {
        const struct fi_pci_attr *pci = &info->nic->bus_attr->attr.pci;
        snprintf(nic->bus_id, sizeof(nic->bus_id), "%04x:%02x:%02x.%x", pci->domain_id, pci->bus_id,
                 pci->device_id & 0x1fu, pci->function_id & 7u);
    } else if (!find_bus_id("net", nic->name, nic->bus_id)) {
        (void)find_bus_id("infiniband", nic->name, nic->bus_id);
    }
}

// Keeps a copy of an information unless its NIC is known already. A known NIC's IPv6 information
// gives way to one of IPv4.
static void keep(const struct fr_rail_library *library, struct found *found,
                 const struct fi_info *info)
{
    unsigned at = 0;
    if (*domain_of(info) == '\0' || is_link_local(info) || info->ep_attr->type != FI_EP_RDM)
        return;
    while (at < found->count && (strcmp(provider_of(found->infos[at]), provider_of(info)) != 0 ||
                                 strcmp(domain_of(found->infos[at]), domain_of(info)) != 0))
        at++;
    bool better = at < found->count && found->infos[at]->addr_format == FI_SOCKADDR_IN6 &&
                  info->addr_format == FI_SOCKADDR_IN;
    if ((at < found->count && !better) || at == FOUND_MAX)
        return;
    struct fi_info *copy = library->dupinfo(info);
    if (copy == NULL)
        return;
    if (better)
        library->freeinfo(found->infos[at]);
    found->count += !better;
    found->infos[at] = copy;
    fr_rail_describe_nic(copy, &found->nics[at]);
}

static void ask(const struct fr_rail_library *library, const struct fr_rail_options *options,
                const char *provider, bool hmem, bool manual, bool safe, struct found *found)
{
    struct fi_info *list = NULL;
    struct fi_info *hints = make_hints(library, provider, hmem, manual, safe);
    if (hints == NULL)
        return;
    int code = library->getinfo(library->version, NULL, NULL, 0, hints, &list);
    library->freeinfo(hints);
    if (code != 0) {
        if (code != -FI_ENODATA)
            fr_debug("fi_getinfo gave %s", library->strerror(-code));
        return;
    }
    for (const struct fi_info *info = list; info != NULL; info = info->next) {
        if (!is_inside(info, options->nics))
            keep(library, found, info);
    }
    library->freeinfo(list);
}

static void ask_all(const struct fr_rail_library *library, const struct fr_rail_options *options,
                    const char *provider, bool hmem, struct found *found)
{
    for (int manual = 0; manual <= 1; manual++)
        for (int safe = 0; safe <= 1; safe++)
            ask(library, options, provider, hmem, manual, safe, found);
}

static void drop(const struct fr_rail_library *library, struct found *found, unsigned at)
{
    library->freeinfo(found->infos[at]);
    found->count--;
    memmove(&found->infos[at], &found->infos[at + 1],
            (found->count - at) * sizeof(found->infos[0]));
    memmove(&found->nics[at], &found->nics[at + 1], (found->count - at) * sizeof(found->nics[0]));
}

static bool has_allowed(const struct found *found, const char *provider, const char *nics)
{
    for (unsigned i = 0; i < found->count; i++) {
        if (strcmp(provider_of(found->infos[i]), provider) == 0 &&
            fr_rail_nic_allowed(nics, &found->nics[i]))
            return true;
    }
    return false;
}

// Returns the one provider whose NICs are used, since NICs of two would not talk with one another.
// A name without the layer above it stands for the pair as well.
static const char *pick_provider(const struct found *found, const char *wanted, const char *nics)
{
    if (wanted == NULL) {
        for (size_t i = 0; i < FR_ARRAY_LENGTH(preferred); i++) {
            if (has_allowed(found, preferred[i], nics))
                return preferred[i];
        }
        return NULL;
    }
    if (has_allowed(found, wanted, nics))
        return wanted;
    for (unsigned i = 0; i < found->count; i++) {
        const char *provider = provider_of(found->infos[i]);
        if (has_allowed(found, provider, nics))
            return provider;
    }
    return NULL;
}

static void keep_provider(const struct fr_rail_library *library, struct found *found,
                          const char *provider)
{
    char name[FR_RAIL_WIRE_NAME];
    // Copied, since the information it belongs to may be dropped.
    snprintf(name, sizeof(name), "%s", provider != NULL ? provider : "");
    for (unsigned i = found->count; i > 0; i--) {
        if (strcmp(provider_of(found->infos[i - 1]), name) != 0)
            drop(library, found, i - 1);
    }
}

static unsigned choose(const struct fr_rail_options *options, const struct found *found,
                       unsigned chosen[FR_RAILS_MAX])
{
    struct fr_rail_machine machine = {NULL, 0};
    struct fr_rail_wish wish = {options->gpu, options->nics, options->max, options->local_index,
                                options->local_count};
    if (options->gpu != NULL && found->count > 1 && fr_rail_machine_load(NULL, &machine) != FR_OK)
        fr_debug("the machine's tree is not known: all NICs count as equally near");
    unsigned count = fr_rail_choose(&machine, found->nics, found->count, &wish, chosen);
    fr_rail_machine_free(&machine);
    return count;
}

enum fr_status fr_rail_discover(const struct fr_rail_library *library,
                                const struct fr_rail_options *options,
                                struct fi_info *infos[FR_RAILS_MAX], unsigned *count)
{
    struct found *found = calloc(1, sizeof(*found));
    if (found == NULL)
        return FR_ERR_NO_MEMORY;
    bool any = options->provider == NULL || strcmp(options->provider, "auto") == 0 ||
               *options->provider == '\0';
    const char *wanted = any ? NULL : options->provider;
    if (options->gpu != NULL && !options->host_only)
        ask_all(library, options, wanted, true, found);
    ask_all(library, options, wanted, false, found);
    keep_provider(library, found, pick_provider(found, wanted, options->nics));

    unsigned chosen[FR_RAILS_MAX];
    *count = choose(options, found, chosen);
    for (unsigned i = 0; i < *count; i++) {
        infos[i] = found->infos[chosen[i]];
        found->infos[chosen[i]] = NULL;
    }
    for (unsigned i = 0; i < found->count; i++)
        if (found->infos[i] != NULL)
            library->freeinfo(found->infos[i]);
    free(found);
    if (*count == 0)
        fr_info("no rails: libfabric has no NIC for FABRAIL_RAIL_PROVIDER=%s FABRAIL_RAIL_NICS=%s",
                any ? "auto" : wanted, options->nics != NULL ? options->nics : "");
    return *count > 0 ? FR_OK : FR_ERR_NOT_FOUND;
}
