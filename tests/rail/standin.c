// SPDX-License-Identifier: BSD-3-Clause
// The stand-in for libfabric; see standin.h. One lock serves all, since a test may have threads.
#include "standin.h"

#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

enum { EPS = 4096, MRS = 4096, QUEUE = 512, PAST = 64 };

static struct standin self;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct domain {
    struct fid_domain fid;
    unsigned nic;
    bool mixes;                       // reads have lost where their bytes go
    _Atomic int reading, registering; // calls that are under way
};

struct av {
    struct fid_av fid;
    uint64_t addresses[EPS];
    size_t count;
};

struct cq {
    struct fid_cq fid;
    struct endpoint *endpoint;
    void *past[PAST]; // completions to be reported again
    unsigned past_count;
    struct fi_cq_err_entry error;
    bool has_error;
};

struct operation {
    bool write, done, swallowed;
    void *local, *desc;
    size_t bytes;
    uint64_t target, address, key;
    void *context;
};

struct endpoint {
    struct fid_ep fid;
    struct domain *domain;
    struct cq *cq;
    uint64_t number;
    const struct av *av;
    bool enabled;
    unsigned bound; // registrations
    struct operation queue[QUEUE];
    unsigned count;
};

struct registration {
    struct fid_mr fid;
    struct domain *domain;
    struct endpoint *endpoint;
    struct fi_mr_attr attr;
    struct iovec iov;
    bool enabled;
};

static struct endpoint *endpoints[EPS];
static struct registration *registrations[MRS];
static uint64_t endpoints_count = 1;

static void complain(const char *what)
{
    if (self.wrong[0] == '\0')
        snprintf(self.wrong, sizeof(self.wrong), "%s", what);
}

static void note(enum standin_event_kind kind, unsigned nic, bool more, size_t bytes,
                 const void *local)
{
    if (self.events_count < STANDIN_EVENTS)
        self.events[self.events_count++] = (struct standin_event){kind, nic, more, bytes, local};
}

// Returns whether this call is the one that is to fail.
static bool fails(const char *call)
{
    if (self.fail_call == NULL || strcmp(self.fail_call, call) != 0)
        return false;
    unsigned nth = ++self.calls;
    return nth == self.fail_nth || (self.fails_on && nth > self.fail_nth);
}

#define FAIL(call)                                                                                 \
    do {                                                                                           \
        if (fails(call))                                                                           \
            return self.fail_code;                                                                 \
    } while (0)

static int close_simple(struct fid *fid)
{
    FAIL("fi_close");
    pthread_mutex_lock(&lock);
    self.open--;
    pthread_mutex_unlock(&lock);
    free(fid); // the first member of all objects
    return 0;
}

static int no_bind(struct fid *fid, struct fid *other, uint64_t flags)
{
    (void)fid, (void)other, (void)flags;
    return -FI_ENOSYS;
}

static int no_control(struct fid *fid, int command, void *argument)
{
    (void)fid, (void)command, (void)argument;
    return -FI_ENOSYS;
}

static struct fi_ops simple_ops = {
    .size = sizeof(struct fi_ops), .close = close_simple, .bind = no_bind, .control = no_control};

static void *make(size_t bytes, size_t class)
{
    struct fid *fid = calloc(1, bytes);
    fid->fclass = class;
    fid->ops = &simple_ops;
    self.open++;
    return fid;
}

// Without hardware there is but a table of keys, which whoever reads a queue looks into.
static void begin_registering(struct domain *domain)
{
    domain->registering++;
    sched_yield();
    if (domain->reading > 0 || domain->registering > 1)
        complain("a registration came or went while a queue of its domain was read");
}

static void begin_reading(struct domain *domain)
{
    domain->reading++;
    if (domain->registering > 0)
        complain("a queue was read while a registration of its domain came or went");
}

// registrations

static int mr_close(struct fid *fid)
{
    struct registration *mr = (struct registration *)fid;
    struct domain *domain = mr->domain;
    FAIL("fi_close_mr");
    begin_registering(domain);
    pthread_mutex_lock(&lock);
    if (mr->endpoint != NULL)
        mr->endpoint->bound--;
    for (size_t i = 0; i < MRS; i++)
        if (registrations[i] == mr)
            registrations[i] = NULL;
    self.registered--;
    self.open--;
    pthread_mutex_unlock(&lock);
    domain->registering--;
    free(mr);
    return 0;
}

static int mr_bind(struct fid *fid, struct fid *other, uint64_t flags)
{
    struct registration *mr = (struct registration *)fid;
    (void)flags;
    FAIL("fi_mr_bind");
    mr->endpoint = (struct endpoint *)other;
    mr->endpoint->bound++;
    return 0;
}

static int mr_control(struct fid *fid, int command, void *argument)
{
    (void)argument;
    FAIL("fi_mr_enable");
    ((struct registration *)fid)->enabled = command == FI_ENABLE;
    return 0;
}

static struct fi_ops mr_ops = {
    .size = sizeof(struct fi_ops), .close = mr_close, .bind = mr_bind, .control = mr_control};

static struct registration *find_key(const struct domain *domain, uint64_t key)
{
    for (size_t i = 0; i < MRS; i++)
        if (registrations[i] != NULL && registrations[i]->domain == domain &&
            registrations[i]->fid.key == key)
            return registrations[i];
    return NULL;
}

static int mr_regattr(struct fid *fid, const struct fi_mr_attr *attr, uint64_t flags,
                      struct fid_mr **made)
{
    struct domain *domain = (struct domain *)fid;
    static uint64_t next_key = 1000;
    (void)flags;
    FAIL("fi_mr_regattr");
    begin_registering(domain);
    pthread_mutex_lock(&lock);
    struct registration *mr = make(sizeof(*mr), FI_CLASS_MR);
    mr->fid.fid.ops = &mr_ops;
    mr->domain = domain;
    mr->attr = *attr;
    mr->iov = attr->mr_iov[0];
    mr->fid.key = self.mr_mode & FI_MR_PROV_KEY ? next_key++ : attr->requested_key;
    mr->fid.mem_desc = mr;
    if (self.key_size < 8 && mr->fid.key >> (8 * self.key_size) != 0)
        complain("a key has more bytes than keys have");
    if (attr->iface != FI_HMEM_SYSTEM && !self.hmem)
        complain("device memory was registered with a NIC that does not take it");
    if (find_key(domain, mr->fid.key) != NULL)
        complain("a key was given twice");
    size_t at = 0;
    while (at < MRS && registrations[at] != NULL)
        at++;
    registrations[at] = mr;
    self.registered++;
    pthread_mutex_unlock(&lock);
    domain->registering--;
    *made = &mr->fid;
    return 0;
}

static struct fi_ops_mr domain_mr_ops = {.size = sizeof(struct fi_ops_mr), .regattr = mr_regattr};

// operations

// Returns the answer of the target's NIC to an operation: 0, or an error.
static int serve(const struct operation *operation)
{
    const struct endpoint *target = operation->target < EPS ? endpoints[operation->target] : NULL;
    if (target == NULL)
        return FI_EHOSTUNREACH;
    const struct registration *mr = find_key(target->domain, operation->key);
    if (mr == NULL)
        return FI_EKEYREJECTED;
    if ((self.mr_mode & FI_MR_ENDPOINT) && (mr->endpoint != target || !mr->enabled))
        return FI_EACCES;
    uint64_t base = (uintptr_t)mr->iov.iov_base;
    uint64_t start = self.mr_mode & FI_MR_VIRT_ADDR ? base : 0;
    if (operation->address < start || operation->address - start > mr->iov.iov_len ||
        operation->bytes > mr->iov.iov_len - (operation->address - start))
        return FI_EACCES;
    void *remote = (void *)(uintptr_t)(base + (operation->address - start));
    memcpy(operation->write ? remote : operation->local,
           operation->write ? operation->local : remote, operation->bytes);
    return 0;
}

static void check_local(const struct endpoint *endpoint, const struct operation *operation)
{
    const struct registration *mr = operation->desc;
    if ((self.mr_mode & FI_MR_LOCAL) == 0)
        return;
    if (mr == NULL || mr->domain != endpoint->domain)
        complain("an operation has no descriptor of its domain");
    else if ((char *)operation->local < (char *)mr->iov.iov_base ||
             (char *)operation->local + operation->bytes >
                 (char *)mr->iov.iov_base + mr->iov.iov_len)
        complain("an operation goes beyond its local registration");
}

static uint64_t address_of(const struct endpoint *endpoint, fi_addr_t addr)
{
    if (endpoint->av != NULL && addr < endpoint->av->count)
        return endpoint->av->addresses[addr];
    complain("an operation goes to an address that its endpoint does not know");
    return 0;
}

static ssize_t post(struct fid_ep *fid, const struct fi_msg_rma *message, uint64_t flags,
                    bool write)
{
    struct endpoint *endpoint = (struct endpoint *)fid;
    FAIL(write ? "fi_writemsg" : "fi_readmsg");
    pthread_mutex_lock(&lock);
    bool again = self.again[endpoint->domain->nic] ||
                 (self.again_every > 0 && ++self.posts % self.again_every == 0);
    if (endpoint->count >= self.tx_size || endpoint->count == QUEUE || again) {
        pthread_mutex_unlock(&lock);
        return -FI_EAGAIN;
    }
    struct operation *operation = &endpoint->queue[endpoint->count++];
    *operation = (struct operation){
        .write = write,
        .swallowed = self.swallows,
        .local = message->msg_iov[0].iov_base,
        .desc = message->desc != NULL ? message->desc[0] : NULL,
        .bytes = message->msg_iov[0].iov_len,
        .target = address_of(endpoint, message->addr),
        .address = message->rma_iov[0].addr,
        .key = message->rma_iov[0].key,
        .context = message->context,
    };
    if (operation->bytes > self.max_msg_size)
        complain("a message is longer than messages may be");
    if (!endpoint->enabled)
        complain("an endpoint was used that is not enabled");
    check_local(endpoint, operation);
    note(write ? STANDIN_WRITE_POSTED : STANDIN_READ_POSTED, endpoint->domain->nic,
         (flags & FI_MORE) != 0, operation->bytes, operation->local);
    pthread_mutex_unlock(&lock);
    return 0;
}

static ssize_t readmsg(struct fid_ep *fid, const struct fi_msg_rma *message, uint64_t flags)
{
    return post(fid, message, flags, false);
}

static ssize_t writemsg(struct fid_ep *fid, const struct fi_msg_rma *message, uint64_t flags)
{
    return post(fid, message, flags, true);
}

static struct fi_ops_rma rma_ops = {
    .size = sizeof(struct fi_ops_rma), .readmsg = readmsg, .writemsg = writemsg};

// The first operation that may complete now; those behind one that is held back may.
static struct operation *next_operation(struct endpoint *endpoint)
{
    for (unsigned i = 0; i < endpoint->count; i++) {
        struct operation *operation = &endpoint->queue[i];
        if (operation->swallowed)
            continue;
        if (!operation->write || !self.holds_writes)
            return operation;
        if (!operation->done)
            (void)serve(operation);
        operation->done = true;
    }
    return NULL;
}

static void drop_operation(struct endpoint *endpoint, struct operation *operation)
{
    unsigned at = (unsigned)(operation - endpoint->queue);
    endpoint->count--;
    memmove(operation, operation + 1, (endpoint->count - at) * sizeof(*operation));
}

// Reports a completion, now and perhaps later once more.
static unsigned report(struct cq *cq, struct fi_cq_entry *entries, unsigned used, void *context)
{
    entries[used++].op_context = context;
    if (self.twice == 0)
        return used;
    cq->past[cq->past_count++ % PAST] = context;
    if (cq->past_count >= self.twice)
        entries[used++].op_context = cq->past[(cq->past_count - self.twice) % PAST];
    return used;
}

static ssize_t complete(struct cq *cq, struct fi_cq_entry *entries, size_t count)
{
    struct endpoint *endpoint = cq->endpoint;
    unsigned used = 0;
    if (endpoint == NULL || self.stalled[endpoint->domain->nic])
        return 0;
    count = self.batch > 0 && self.batch < count ? self.batch : count;
    while (used + 1 < count || (used < count && self.twice == 0)) {
        struct operation *operation = next_operation(endpoint);
        if (operation == NULL)
            break;
        int error = self.error[endpoint->domain->nic];
        if (error == 0 && !operation->done && !endpoint->domain->mixes)
            error = serve(operation);
        endpoint->domain->mixes = endpoint->domain->mixes || (error != 0 && self.mixes);
        if (!self.errors_stay)
            self.error[endpoint->domain->nic] = 0;
        void *context = operation->context;
        note(operation->write ? STANDIN_WRITE_DONE : STANDIN_READ_DONE, endpoint->domain->nic,
             false, operation->bytes, operation->local);
        drop_operation(endpoint, operation);
        if (error != 0) {
            cq->error = (struct fi_cq_err_entry){.op_context = context, .err = error};
            cq->has_error = true;
            break;
        }
        used = report(cq, entries, used, context);
    }
    return used;
}

static ssize_t cq_read(struct fid_cq *fid, void *buffer, size_t count)
{
    struct cq *cq = (struct cq *)fid;
    struct domain *domain = cq->endpoint != NULL ? cq->endpoint->domain : NULL;
    FAIL("fi_cq_read");
    if (domain != NULL)
        begin_reading(domain);
    pthread_mutex_lock(&lock);
    ssize_t got = cq->has_error ? 0 : complete(cq, buffer, count);
    bool noted =
        self.events_count > 0 && self.events[self.events_count - 1].kind == STANDIN_CQ_READ;
    if (cq->endpoint != NULL && !noted) // one after another count as one
        note(STANDIN_CQ_READ, cq->endpoint->domain->nic, false, 0, NULL);
    bool bad = cq->has_error;
    pthread_mutex_unlock(&lock);
    if (domain != NULL)
        domain->reading--;
    if (got > 0)
        return got;
    return bad ? -FI_EAVAIL : -FI_EAGAIN;
}

static ssize_t cq_readerr(struct fid_cq *fid, struct fi_cq_err_entry *entry, uint64_t flags)
{
    struct cq *cq = (struct cq *)fid;
    (void)flags;
    if (!cq->has_error)
        return -FI_EAGAIN;
    cq->has_error = false;
    *entry = cq->error;
    return 1;
}

static struct fi_ops_cq cq_ops = {
    .size = sizeof(struct fi_ops_cq), .read = cq_read, .readerr = cq_readerr};

// endpoints

static int ep_close(struct fid *fid)
{
    struct endpoint *endpoint = (struct endpoint *)fid;
    FAIL("fi_close_ep");
    pthread_mutex_lock(&lock);
    if (endpoint->bound > 0) {
        complain("an endpoint was closed before what is bound to it");
        pthread_mutex_unlock(&lock);
        return -FI_EBUSY;
    }
    note(STANDIN_EP_CLOSED, endpoint->domain->nic, false, 0, NULL);
    endpoints[endpoint->number] = NULL;
    if (endpoint->cq != NULL)
        endpoint->cq->endpoint = NULL;
    self.open--;
    pthread_mutex_unlock(&lock);
    free(endpoint);
    return 0;
}

static int ep_bind(struct fid *fid, struct fid *other, uint64_t flags)
{
    struct endpoint *endpoint = (struct endpoint *)fid;
    (void)flags;
    FAIL("fi_ep_bind");
    if (other->fclass == FI_CLASS_AV)
        endpoint->av = (const struct av *)other;
    if (other->fclass == FI_CLASS_CQ) {
        endpoint->cq = (struct cq *)other;
        endpoint->cq->endpoint = endpoint;
    }
    return 0;
}

static int ep_control(struct fid *fid, int command, void *argument)
{
    struct endpoint *endpoint = (struct endpoint *)fid;
    (void)argument;
    FAIL("fi_enable");
    if (command != FI_ENABLE || !endpoint->av || endpoint->cq == NULL)
        return -FI_EINVAL;
    endpoint->enabled = true;
    return 0;
}

static struct fi_ops ep_fid_ops = {
    .size = sizeof(struct fi_ops), .close = ep_close, .bind = ep_bind, .control = ep_control};

static int ep_getname(fid_t fid, void *address, size_t *length)
{
    FAIL("fi_getname");
    if (*length < sizeof(uint64_t))
        return -FI_ETOOSMALL;
    memcpy(address, &((struct endpoint *)fid)->number, sizeof(uint64_t));
    *length = sizeof(uint64_t);
    return 0;
}

static int ep_setopt(fid_t fid, int level, int name, const void *value, size_t length)
{
    (void)fid, (void)level, (void)name, (void)value, (void)length;
    return -FI_ENOPROTOOPT;
}

// As EFA's provider does: a word of another length is refused.
static int ep_getopt(fid_t fid, int level, int name, void *value, size_t *length)
{
    enum { EMULATED_READ = -(0xefa << 16) + 1, EMULATED_WRITE };
    (void)fid;
    if (!self.efa || level != FI_OPT_ENDPOINT || (name != EMULATED_READ && name != EMULATED_WRITE))
        return -FI_ENOPROTOOPT;
    if (*length < sizeof(bool))
        return -FI_ETOOSMALL;
    *(bool *)value = name == EMULATED_READ ? self.emulates_reads : self.emulates_writes;
    *length = sizeof(bool);
    return 0;
}

static struct fi_ops_cm cm_ops = {.size = sizeof(struct fi_ops_cm), .getname = ep_getname};
static struct fi_ops_ep ep_ops = {
    .size = sizeof(struct fi_ops_ep), .setopt = ep_setopt, .getopt = ep_getopt};

static int open_endpoint(struct fid_domain *domain, struct fi_info *info, struct fid_ep **made,
                         void *context)
{
    (void)info, (void)context;
    FAIL("fi_endpoint");
    pthread_mutex_lock(&lock);
    struct endpoint *endpoint = make(sizeof(*endpoint), FI_CLASS_EP);
    endpoint->fid.fid.ops = &ep_fid_ops;
    endpoint->fid.cm = &cm_ops;
    endpoint->fid.ops = &ep_ops;
    endpoint->fid.rma = &rma_ops;
    endpoint->domain = (struct domain *)domain;
    endpoint->number = endpoints_count++ % EPS;
    endpoints[endpoint->number] = endpoint;
    pthread_mutex_unlock(&lock);
    *made = &endpoint->fid;
    return 0;
}

// An address that is there keeps its number.
static size_t number_of(struct av *av, uint64_t address)
{
    size_t i = 0;
    while (i < av->count && av->addresses[i] != address)
        i++;
    if (i == av->count && i < EPS)
        av->addresses[av->count++] = address;
    return i;
}

static int av_insert(struct fid_av *fid, const void *addresses, size_t count, fi_addr_t *addr,
                     uint64_t flags, void *context)
{
    (void)flags, (void)context;
    if (fails("fi_av_insert"))
        return 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t address;
        memcpy(&address, (const char *)addresses + i * sizeof(address), sizeof(address));
        addr[i] = number_of((struct av *)fid, address);
    }
    return (int)count;
}

static int av_lookup(struct fid_av *fid, fi_addr_t addr, void *address, size_t *bytes)
{
    const struct av *av = (const struct av *)fid;
    FAIL("fi_av_lookup");
    if (addr >= av->count || *bytes < sizeof(uint64_t))
        return -FI_EINVAL;
    memcpy(address, &av->addresses[addr], sizeof(uint64_t));
    *bytes = sizeof(uint64_t);
    return 0;
}

static struct fi_ops_av av_ops = {
    .size = sizeof(struct fi_ops_av), .insert = av_insert, .lookup = av_lookup};

static int open_av(struct fid_domain *domain, struct fi_av_attr *attr, struct fid_av **made,
                   void *context)
{
    (void)domain, (void)attr, (void)context;
    FAIL("fi_av_open");
    struct av *av = make(sizeof(*av), FI_CLASS_AV);
    av->fid.ops = &av_ops;
    *made = &av->fid;
    return 0;
}

static int open_cq(struct fid_domain *domain, struct fi_cq_attr *attr, struct fid_cq **made,
                   void *context)
{
    (void)domain, (void)context;
    FAIL("fi_cq_open");
    if (attr->format != FI_CQ_FORMAT_CONTEXT)
        complain("this stand-in knows one format of completions");
    struct cq *cq = make(sizeof(*cq), FI_CLASS_CQ);
    cq->fid.ops = &cq_ops;
    *made = &cq->fid;
    return 0;
}

static struct fi_ops_domain domain_ops = {.size = sizeof(struct fi_ops_domain),
                                          .av_open = open_av,
                                          .cq_open = open_cq,
                                          .endpoint = open_endpoint};

static int open_domain(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **made,
                       void *context)
{
    (void)fabric, (void)context;
    FAIL("fi_domain");
    struct domain *domain = make(sizeof(*domain), FI_CLASS_DOMAIN);
    domain->fid.ops = &domain_ops;
    domain->fid.mr = &domain_mr_ops;
    domain->nic = (unsigned)atoi(info->domain_attr->name + strlen("nic"));
    *made = &domain->fid;
    return 0;
}

static struct fi_ops_fabric fabric_ops = {.size = sizeof(struct fi_ops_fabric),
                                          .domain = open_domain};

// what libfabric exports

uint32_t fi_version(void)
{
    return self.version;
}

const char *fi_strerror(int code)
{
    return code == FI_EHOSTUNREACH ? "no such host" : "as told";
}

static void *copy_of(const void *data, size_t bytes)
{
    void *copy = calloc(1, bytes);
    if (data != NULL)
        memcpy(copy, data, bytes);
    return copy;
}

static char *text_of(const char *text)
{
    return text != NULL ? strdup(text) : NULL;
}

struct fi_info *fi_dupinfo(const struct fi_info *info)
{
    struct fi_info *copy = copy_of(info, sizeof(*info));
    copy->next = NULL;
    copy->src_addr = copy->dest_addr = NULL;
    copy->src_addrlen = copy->dest_addrlen = 0;
    copy->tx_attr = copy_of(info ? info->tx_attr : NULL, sizeof(*copy->tx_attr));
    copy->rx_attr = copy_of(info ? info->rx_attr : NULL, sizeof(*copy->rx_attr));
    copy->ep_attr = copy_of(info ? info->ep_attr : NULL, sizeof(*copy->ep_attr));
    copy->domain_attr = copy_of(info ? info->domain_attr : NULL, sizeof(*copy->domain_attr));
    copy->fabric_attr = copy_of(info ? info->fabric_attr : NULL, sizeof(*copy->fabric_attr));
    copy->domain_attr->name = text_of(copy->domain_attr->name);
    copy->fabric_attr->name = text_of(copy->fabric_attr->name);
    copy->fabric_attr->prov_name = text_of(copy->fabric_attr->prov_name);
    return copy;
}

void fi_freeinfo(struct fi_info *info)
{
    while (info != NULL) {
        struct fi_info *next = info->next;
        free(info->domain_attr->name);
        free(info->fabric_attr->name);
        free(info->fabric_attr->prov_name);
        free(info->tx_attr);
        free(info->rx_attr);
        free(info->ep_attr);
        free(info->domain_attr);
        free(info->fabric_attr);
        free(info);
        info = next;
    }
}

static bool refuses(const struct fi_info *hints)
{
    return (self.refuses_auto && hints->domain_attr->data_progress == FI_PROGRESS_AUTO) ||
           (self.refuses_completion && hints->domain_attr->threading == FI_THREAD_COMPLETION) ||
           (self.refuses_delivery && (hints->tx_attr->op_flags & FI_DELIVERY_COMPLETE)) ||
           (!self.hmem && (hints->caps & FI_HMEM)) ||
           (self.mr_mode & ~hints->domain_attr->mr_mode) != 0;
}

// NICs and their bus ids are chosen elsewhere; here they are found by name.
int fi_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags,
               const struct fi_info *hints, struct fi_info **info)
{
    (void)node, (void)service, (void)flags;
    FAIL("fi_getinfo");
    *info = NULL;
    if (version > self.version)
        return -FI_ENOSYS;
    for (unsigned i = self.nics; !refuses(hints) && i-- > 0;) {
        struct fi_info *one = fi_dupinfo(hints);
        char name[32];
        free(one->domain_attr->name);
        free(one->fabric_attr->name);
        free(one->fabric_attr->prov_name);
        snprintf(name, sizeof(name), "nic%u", i);
        one->domain_attr->name = strdup(name);
        snprintf(name, sizeof(name), "fabric%u", i / 2);
        one->fabric_attr->name = strdup(name);
        one->fabric_attr->prov_name = strdup(self.efa ? "efa" : "cxi");
        one->domain_attr->mr_mode = self.mr_mode;
        one->domain_attr->mr_key_size = self.key_size;
        one->domain_attr->av_type = FI_AV_UNSPEC;
        one->ep_attr->max_msg_size = self.max_msg_size;
        one->tx_attr->size = self.tx_size;
        one->tx_attr->msg_order = self.msg_order;
        one->mode = 0;
        one->next = *info;
        *info = one;
    }
    return *info != NULL ? 0 : -FI_ENODATA;
}

int fi_fabric(struct fi_fabric_attr *attr, struct fid_fabric **made, void *context)
{
    (void)attr, (void)context;
    FAIL("fi_fabric");
    struct fid_fabric *fabric = make(sizeof(*fabric), FI_CLASS_FABRIC);
    fabric->ops = &fabric_ops;
    *made = fabric;
    return 0;
}

struct standin *standin_reset(void);
struct standin *standin_reset(void)
{
    int open = self.open;
    self = (struct standin){
        .nics = 4,
        .version = FI_VERSION(1, 18),
        .key_size = 8,
        .max_msg_size = SIZE_MAX,
        .tx_size = 256,
        .msg_order = FI_ORDER_RAW,
        .open = open,
    };
    return &self;
}
