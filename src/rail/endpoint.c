// SPDX-License-Identifier: BSD-3-Clause
// A rail's libfabric objects. The initiator and its queue are apart from the rest. To close them is
// the only way to be sure that no stalled read still writes to memory.
#include "config.h"

#include "rail/steps_int.h"

#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum { GUESSED_BYTES_PER_S = 1250000000 }; // 10 Gbit/s, until rates are measured

void fr_rail_warn_call(const struct fr_rail *rail, const char *call, int code)
{
    fr_warn("rail %u on %s: %s gave %s", rail->index, rail->name, call,
            rail->rails->library->strerror(code < 0 ? -code : code));
}

static bool worked(const struct fr_rail *rail, const char *call, int code)
{
    if (code != 0)
        fr_rail_warn_call(rail, call, code);
    return code == 0;
}

static void close_fid(const struct fr_rail *rail, const char *call, struct fid *fid)
{
    if (fid != NULL)
        (void)worked(rail, call, fi_close(fid));
}

#define CLOSE(rail, object)                                                                        \
    do {                                                                                           \
        close_fid((rail), "fi_close of " #object,                                                  \
                  (rail)->object != NULL ? &(rail)->object->fid : NULL);                           \
        (rail)->object = NULL;                                                                     \
    } while (0)

static int try_cq(struct fr_rail *rail, struct fid_domain *domain, enum fi_wait_obj wait_obj,
                  struct fid_cq **cq)
{
    struct fi_cq_attr attr = {
        .size = 2 * FR_RAIL_DEPTH, .format = FI_CQ_FORMAT_CONTEXT, .wait_obj = wait_obj};
    return fi_cq_open(domain, &attr, cq, rail);
}

static bool open_cq(struct fr_rail *rail, struct fid_domain *domain, struct fid_cq **cq)
{
    return worked(rail, "fi_cq_open", try_cq(rail, domain, FI_WAIT_NONE, cq));
}

// Opens the target's queue. Where answers take a CPU, a descriptor tells when to give them, so that
// the queue need not be read all the time.
static bool open_target_cq(struct fr_rail *rail)
{
    struct fid_cq *cq = NULL;
    rail->wait_fd = -1;
    if (!rail->manual || !rail->rails->library->tells ||
        try_cq(rail, rail->domain, FI_WAIT_FD, &cq) != 0)
        return open_cq(rail, rail->domain, &rail->target_cq);
    if (fi_control(&cq->fid, FI_GETWAIT, &rail->wait_fd) != 0)
        rail->wait_fd = -1;
    rail->target_cq = cq;
    return true;
}

// EFA would serve an endpoint of this host through shared memory, past the NIC that is to be
// flushed. Providers that do not know the option do not do that.
static void refuse_shared_memory(struct fid_ep *endpoint)
{
#ifdef FI_OPT_SHARED_MEMORY_PERMITTED
    bool permitted = false;
    (void)fi_setopt(&endpoint->fid, FI_OPT_ENDPOINT, FI_OPT_SHARED_MEMORY_PERMITTED, &permitted,
                    sizeof(permitted));
#else
    (void)endpoint;
#endif
}

static bool open_endpoint(struct fr_rail *rail, struct fid_domain *domain, struct fid_av *av,
                          struct fid_cq *cq, struct fid_ep **endpoint)
{
    struct fid_ep *made = NULL;
    if (!worked(rail, "fi_endpoint", fi_endpoint(domain, rail->info, &made, rail)))
        return false;
    if (rail->rails->options.gpu != NULL)
        refuse_shared_memory(made);
    if (worked(rail, "fi_ep_bind", fi_ep_bind(made, &av->fid, 0)) &&
        worked(rail, "fi_ep_bind", fi_ep_bind(made, &cq->fid, FI_TRANSMIT | FI_RECV)) &&
        worked(rail, "fi_enable", fi_enable(made))) {
        *endpoint = made;
        return true;
    }
    (void)fi_close(&made->fid);
    return false;
}

static bool open_av(struct fr_rail *rail, struct fid_domain *domain, struct fid_av **av)
{
    struct fi_av_attr attr = {.type = rail->info->domain_attr->av_type};
    if (attr.type == FI_AV_UNSPEC || rail->apart)
        attr.type = FI_AV_TABLE; // FI_AV_MAP has left libfabric 2
    return worked(rail, "fi_av_open", fi_av_open(domain, &attr, av, rail));
}

static bool add(struct fr_rail *rail, struct fid_av *av, const void *address, fi_addr_t *addr)
{
    int inserted = fi_av_insert(av, address, 1, addr, 0, NULL);
    if (inserted != 1)
        fr_rail_warn_call(rail, "fi_av_insert", inserted < 0 ? inserted : FI_EADDRNOTAVAIL);
    return inserted == 1;
}

// Adds an address to the initiator's own vector. It must get the same number there.
static bool add_to_own(struct fr_rail *rail, const void *address, fi_addr_t addr)
{
    fi_addr_t own = FI_ADDR_NOTAVAIL;
    bool added = add(rail, rail->own_av, address, &own);
    if (added && own != addr)
        fr_warn("rail %u on %s: an address has two numbers", rail->index, rail->name);
    return added && own == addr;
}

bool fr_rail_endpoint_insert(struct fr_rail *rail, const void *address, fi_addr_t *addr)
{
    if (!add(rail, rail->av, address, addr))
        return false;
    if (!rail->apart)
        return true;
    if (*addr >= rail->addresses)
        rail->addresses = *addr + 1;
    return rail->own_av == NULL || add_to_own(rail, address, *addr);
}

static bool open_own(struct fr_rail *rail)
{
    if (!worked(rail, "fi_domain", fi_domain(rail->fabric, rail->info, &rail->own_domain, rail)) ||
        !open_av(rail, rail->own_domain, &rail->own_av))
        return false;
    for (fi_addr_t addr = 0; addr < rail->addresses; addr++) {
        unsigned char address[FR_RAIL_WIRE_ADDR];
        size_t bytes = sizeof(address);
        if (!worked(rail, "fi_av_lookup", fi_av_lookup(rail->av, addr, address, &bytes)) ||
            !add_to_own(rail, address, addr))
            return false;
    }
    return true;
}

// Closes the domain and vector that only the initiator has, once the initiator is closed.
static void close_own(struct fr_rail *rail)
{
    CLOSE(rail, cq);
    CLOSE(rail, own_av);
    CLOSE(rail, own_domain);
    rail->spoilt = false;
}

static bool open_initiator(struct fr_rail *rail)
{
    bool is_open = !rail->apart || open_own(rail);
    struct fid_domain *domain = rail->apart ? rail->own_domain : rail->domain;
    struct fid_av *av = rail->apart ? rail->own_av : rail->av;
    if (is_open && open_cq(rail, domain, &rail->cq) &&
        open_endpoint(rail, domain, av, rail->cq, &rail->initiator))
        return true;
    close_own(rail);
    return false;
}

// Opens the fabric object. All rails of a fabric share one, and the last of them closes it.
static bool open_fabric(struct fr_rail *rail)
{
    const struct fi_fabric_attr *own = rail->info->fabric_attr;
    for (unsigned i = 0; i < rail->index; i++) {
        const struct fi_fabric_attr *other = rail->rails->rails[i].info->fabric_attr;
        if (strcmp(own->name, other->name) == 0 && strcmp(own->prov_name, other->prov_name) == 0) {
            rail->fabric = rail->rails->rails[i].fabric;
            return true;
        }
    }
    return worked(rail, "fi_fabric",
                  rail->rails->library->fabric(rail->info->fabric_attr, &rail->fabric, NULL));
}

static void close_fabric(struct fr_rail *rail)
{
    for (unsigned i = 0; rail->fabric != NULL && i < rail->rails->count; i++) {
        if (i != rail->index && rail->rails->rails[i].fabric == rail->fabric)
            rail->fabric = NULL; // another rail still uses it
    }
    CLOSE(rail, fabric);
}

// Asks the provider rather than assume it: one that has no such completion does not answer.
static bool can_complete_on_delivery(const struct fr_rail *rail)
{
    const struct fr_rail_library *library = rail->rails->library;
    struct fi_info *found = NULL, *hints = library->dupinfo(rail->info);
    if (hints == NULL)
        return false;
    hints->tx_attr->op_flags |= FI_DELIVERY_COMPLETE;
    int code = library->getinfo(library->version, NULL, NULL, 0, hints, &found);
    library->freeinfo(hints);
    if (code == 0)
        library->freeinfo(found);
    return code == 0;
}

// Options that EFA has of an endpoint: whether it makes reads or writes of messages that the other
// side's CPU answers, since the NIC has none. These are FI_OPT_EFA_EMULATED_READ and _WRITE of
// rdma/fi_ext.h, which libfabric 1.17 lacks.
enum {
    OPT_EFA_EMULATED_READ = -(0xefa << 16) + 1,
    OPT_EFA_EMULATED_WRITE = -(0xefa << 16) + 2,
};

static bool is_emulated(const struct fr_rail *rail, int option)
{
    bool emulated = false;
    size_t bytes = sizeof(emulated);
    return fi_getopt(&rail->initiator->fid, FI_OPT_ENDPOINT, option, &emulated, &bytes) == 0 &&
           bytes == sizeof(emulated) && emulated;
}

// Asks whether reads and writes are emulated. Only EFA tells.
static void ask_what_is_emulated(struct fr_rail *rail)
{
    if (strncmp(rail->info->fabric_attr->prov_name, "efa", 3) != 0)
        return;
    rail->emulates_reads = is_emulated(rail, OPT_EFA_EMULATED_READ);
    rail->emulates_writes = is_emulated(rail, OPT_EFA_EMULATED_WRITE);
}

static unsigned depth_of(const struct fi_info *info)
{
    size_t size = info->tx_attr->size;
    return size > 0 && size < FR_RAIL_DEPTH ? (unsigned)size : FR_RAIL_DEPTH;
}

// Returns the first key where the process chooses keys. Keys count on from a start that nobody can
// guess, in as many bytes as a key has.
static uint64_t first_key(const struct fi_info *info)
{
    uint64_t start = 0;
    size_t bytes = info->domain_attr->mr_key_size;
    if (getrandom(&start, sizeof(start), GRND_NONBLOCK) != (ssize_t)sizeof(start))
        start = (uint64_t)(uintptr_t)info;
    return bytes >= 8 ? start >> 1 : start & ((1ull << (8 * bytes - 1)) - 1);
}

static void describe(struct fr_rail *rail)
{
    const struct fi_info *info = rail->info;
    uint64_t bits = 0;
    if (info->nic != NULL && info->nic->link_attr != NULL)
        bits = info->nic->link_attr->speed;
    snprintf(rail->name, sizeof(rail->name), "%s", info->domain_attr->name);
    // Providers over sockets promise automatic progress, but need their queue read (tcp;ofi_rxm
    // 1.17).
    rail->manual = info->domain_attr->data_progress != FI_PROGRESS_AUTO || info->nic == NULL;
    rail->hmem = (info->caps & FI_HMEM) != 0;
    rail->apart = rail->rails->library->frees_twice && info->nic == NULL && !rail->hmem &&
                  (info->domain_attr->mr_mode & FI_MR_LOCAL) == 0;
    rail->write_fenced = (info->tx_attr->msg_order & (FI_ORDER_RAW | FI_ORDER_RMA_RAW)) != 0;
    rail->known_first = strncmp(info->fabric_attr->prov_name, "efa", 3) == 0;
    rail->next_key = first_key(info);
    fr_rail_load_init(&rail->load, bits > 0 ? bits / 8 : GUESSED_BYTES_PER_S, depth_of(info),
                      info->ep_attr->max_msg_size > 0 ? info->ep_attr->max_msg_size : SIZE_MAX);
}

static bool tell_address(struct fr_rail *rail)
{
    struct fr_rail_wire_rail *named = &rail->rails->address.rails[rail->index];
    named->target_bytes = sizeof(named->target);
    named->initiator_bytes = sizeof(named->initiator);
    snprintf(named->provider, sizeof(named->provider), "%s", rail->info->fabric_attr->prov_name);
    snprintf(named->fabric, sizeof(named->fabric), "%s", rail->info->fabric_attr->name);
    for (char *p = named->fabric; *p != '\0'; p++)
        *p = *p > 0x20 && *p < 0x7f ? *p : '_';
    return worked(rail, "fi_getname",
                  fi_getname(&rail->target->fid, named->target, &named->target_bytes)) &&
           worked(rail, "fi_getname",
                  fi_getname(&rail->initiator->fid, named->initiator, &named->initiator_bytes));
}

static bool open_objects(struct fr_rail *rail)
{
    return open_fabric(rail) &&
           worked(rail, "fi_domain", fi_domain(rail->fabric, rail->info, &rail->domain, rail)) &&
           open_av(rail, rail->domain, &rail->av) && open_target_cq(rail) &&
           open_endpoint(rail, rail->domain, rail->av, rail->target_cq, &rail->target) &&
           open_initiator(rail) && tell_address(rail);
}

enum fr_status fr_rail_endpoint_open(struct fr_rail *rail, struct fi_info *info)
{
    rail->info = info;
    fr_list_init(&rail->planned);
    fr_list_init(&rail->sent);
    describe(rail);
    if (!open_objects(rail)) {
        fr_rail_endpoint_close(rail);
        return FR_ERR_RAIL;
    }
    rail->writes = can_complete_on_delivery(rail);
    ask_what_is_emulated(rail);
    fr_debug("rail %u on %s, %s: %s progress, mr_mode 0x%x%s%s%s%s", rail->index, rail->name,
             info->fabric_attr->prov_name,
             info->domain_attr->data_progress == FI_PROGRESS_AUTO ? "automatic" : "manual",
             (unsigned)info->domain_attr->mr_mode, rail->hmem ? ", device memory" : "",
             rail->writes ? ", writes" : "", rail->emulates_reads ? ", reads emulated" : "",
             rail->emulates_writes ? ", writes emulated" : "");
    return FR_OK;
}

void fr_rail_endpoint_stop(struct fr_rail *rail)
{
    CLOSE(rail, initiator);
    close_own(rail);
}

// Registrations that are bound to the target have been closed by then.
void fr_rail_endpoint_close(struct fr_rail *rail)
{
    fr_rail_endpoint_stop(rail);
    CLOSE(rail, target);
    CLOSE(rail, target_cq);
    CLOSE(rail, av);
    CLOSE(rail, domain);
    close_fabric(rail);
    if (rail->info != NULL)
        rail->rails->library->freeinfo(rail->info);
    rail->info = NULL;
}

// Returns whether the address of a rail over sockets can still be bound to. libfabric 2.6's tcp
// provider crashes in fi_endpoint when its interface has gone.
static bool has_address(const struct fr_rail *rail)
{
    const struct fi_info *info = rail->info;
    bool ip = info->addr_format == FI_SOCKADDR_IN || info->addr_format == FI_SOCKADDR_IN6;
    struct sockaddr_storage address = {0};
    if (!ip || info->src_addr == NULL || info->src_addrlen > sizeof(address) || info->nic != NULL)
        return true;
    memcpy(&address, info->src_addr, info->src_addrlen);
    if (address.ss_family == AF_INET)
        ((struct sockaddr_in *)&address)->sin_port = 0;
    else
        ((struct sockaddr_in6 *)&address)->sin6_port = 0;
    int probe = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool there =
        probe < 0 || bind(probe, (struct sockaddr *)&address, (socklen_t)info->src_addrlen) == 0;
    if (probe >= 0)
        close(probe);
    return there;
}

bool fr_rail_endpoint_reopen(struct fr_rail *rail)
{
    return !rail->known_first && has_address(rail) && open_initiator(rail);
}

bool fr_rail_endpoint_reset(struct fr_rail *rail)
{
    int code = fi_close(&rail->initiator->fid);
    if (code != 0) {
        fr_rail_warn_call(rail, "fi_close of initiator", code);
        rail->out = rail->wedged = true;
        return false;
    }
    rail->initiator = NULL;
    close_own(rail);
    if (!fr_rail_endpoint_reopen(rail)) {
        fr_warn("rail %u on %s is out: no endpoint could be opened again", rail->index, rail->name);
        rail->out = true;
    }
    return true;
}
