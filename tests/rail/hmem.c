// SPDX-License-Identifier: BSD-3-Clause
// A provider for libfabric, loaded by FI_PROVIDER_PATH, whose NICs reach device memory: those of a
// provider over sockets, with the simulated driver's memory open to the CPU (FRSIM_HOST_ACCESS=1).
// It stands for no NIC's speed or order; it is strict about registrations. Memory that is read into
// has to be registered as what it is, and to be the very allocation that was registered: if not,
// the double says so and ends the process.
//
// FRHMEM_LAX=1: memory that is registered as what it is not is refused, and nothing ends; for runs
// in which the driver fails to say what memory is, and what the CPU can read passes for the host's.
// FRHMEM_RANKS=0,2: the NICs of other ranks reach host memory alone. FRHMEM_FAIL=N: the Nth
// registration of device memory fails, with N+ all from it on. FRHMEM_LOG=FILE: gets a line for
// each registration of device memory that is made or closed, and for each read into it; %p is the
// pid.
#include <cuda.h>
#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/providers/fi_prov.h>

#include <dlfcn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum { REGISTRATIONS = 4096 };

static const char *const inner_names[] = {"net", "tcp", "tcp;ofi_rxm"};
static const char *inner; // the one that serves, once known

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    const void *desc;
    uintptr_t base;
    size_t bytes;
    unsigned long long id; // of device memory, 0 for host memory
} registrations[REGISTRATIONS];
static unsigned registered_count; // of device memory, ever

static __typeof__(cuPointerGetAttribute) *get_attribute;

// The library that has loaded this, which need not be there when it is built.
static struct {
    __typeof__(fi_getinfo) *getinfo;
    __typeof__(fi_freeinfo) *freeinfo;
    __typeof__(fi_dupinfo) *dupinfo;
    __typeof__(fi_fabric) *fabric;
} libfabric;

static struct fi_provider provider;
static struct fi_ops_fabric fabric_ops;
static struct fi_ops_domain domain_ops, inner_domain_ops;
static struct fi_ops_mr mr_ops, inner_mr_ops;
static struct fi_ops_rma rma_ops, inner_rma_ops;
static struct fi_ops mr_fid_ops, inner_mr_fid_ops;
static int (*inner_domain)(struct fid_fabric *, struct fi_info *, struct fid_domain **, void *);

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *format, ...)
{
    const char *name = getenv("FRHMEM_LOG"), *mark;
    char path[4096];
    va_list list;
    if (name == NULL)
        return;
    mark = strstr(name, "%p");
    snprintf(path, sizeof(path), "%.*s%ld", mark != NULL ? (int)(mark - name) : (int)strlen(name),
             name, (long)getpid());
    FILE *file = fopen(path, "a");
    if (file == NULL)
        return;
    va_start(list, format);
    vfprintf(file, format, list);
    va_end(list);
    fclose(file);
}

static void complain(const char *what, const void *address)
{
    fprintf(stderr, "not ok - the provider frhmem: %s at %p\n", what, address);
    fflush(stderr);
    abort();
}

static bool serves_this_rank(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"};
    const char *ranks = getenv("FRHMEM_RANKS"), *rank = NULL;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && rank == NULL; i++)
        rank = getenv(names[i]);
    if (ranks == NULL || rank == NULL)
        return true;
    char all[256], one[32];
    snprintf(all, sizeof(all), ",%s,", ranks);
    snprintf(one, sizeof(one), ",%s,", rank);
    return strstr(all, one) != NULL;
}

// ---- memory

// The BUFFER_ID of device memory that is not managed; 0 for other memory.
static unsigned long long id_of(const void *address)
{
    CUmemorytype type = 0;
    unsigned managed = 0;
    unsigned long long id = 0;
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)address;
    if (get_attribute == NULL) {
        void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
        if (driver == NULL)
            return 0;
        get_attribute = (__typeof__(cuPointerGetAttribute) *)dlsym(driver, "cuPointerGetAttribute");
    }
    if (get_attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at) != CUDA_SUCCESS ||
        type != CU_MEMORYTYPE_DEVICE ||
        get_attribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, at) != CUDA_SUCCESS || managed ||
        get_attribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, at) != CUDA_SUCCESS)
        return 0;
    return id;
}

static bool is_to_fail(void)
{
    const char *fail = getenv("FRHMEM_FAIL");
    unsigned nth = 0, count = __atomic_add_fetch(&registered_count, 1, __ATOMIC_RELAXED);
    if (fail == NULL || sscanf(fail, "%u", &nth) != 1 || nth == 0)
        return false;
    return count == nth || (count > nth && strchr(fail, '+') != NULL);
}

// The place of a descriptor, or a free one.
static unsigned place_of(const void *desc)
{
    unsigned at = 0;
    while (at < REGISTRATIONS && registrations[at].desc != desc)
        at++;
    return at;
}

static void remember(const struct fid_mr *mr, const struct iovec *iov, unsigned long long id)
{
    pthread_mutex_lock(&lock);
    unsigned at = place_of(NULL);
    if (at < REGISTRATIONS) {
        registrations[at].desc = mr->mem_desc;
        registrations[at].base = (uintptr_t)iov->iov_base;
        registrations[at].bytes = iov->iov_len;
        registrations[at].id = id;
    }
    pthread_mutex_unlock(&lock);
    if (id != 0)
        say("register %p %zu %llu\n", iov->iov_base, iov->iov_len, id);
}

static int mr_close(struct fid *fid)
{
    pthread_mutex_lock(&lock);
    unsigned at = place_of(((struct fid_mr *)fid)->mem_desc);
    unsigned long long id = at < REGISTRATIONS ? registrations[at].id : 0;
    if (at < REGISTRATIONS)
        registrations[at].desc = NULL;
    pthread_mutex_unlock(&lock);
    if (id != 0)
        say("close %llu\n", id);
    return inner_mr_fid_ops.close(fid);
}

static int mr_regattr(struct fid *fid, const struct fi_mr_attr *attr, uint64_t flags,
                      struct fid_mr **mr)
{
    struct fi_mr_attr as_host = *attr;
    const struct iovec *iov = attr->mr_iov;
    unsigned long long first = id_of(iov->iov_base);
    unsigned long long last = id_of((char *)iov->iov_base + iov->iov_len - 1);
    bool on_device = attr->iface == FI_HMEM_CUDA;
    bool wrong = on_device != (first != 0) || first != last;
    if (wrong && getenv("FRHMEM_LAX") != NULL)
        return -FI_EINVAL;
    if (wrong)
        complain("memory was registered as what it is not", iov->iov_base);
    if (on_device && !serves_this_rank())
        complain("device memory was registered with a NIC that does not reach it", iov->iov_base);
    if (on_device && is_to_fail())
        return -FI_EINVAL;
    as_host.iface = FI_HMEM_SYSTEM;
    int code = inner_mr_ops.regattr(fid, &as_host, flags, mr);
    if (code != 0)
        return code;
    inner_mr_fid_ops = mr_fid_ops = *(*mr)->fid.ops;
    mr_fid_ops.close = mr_close;
    (*mr)->fid.ops = &mr_fid_ops;
    remember(*mr, iov, first);
    return 0;
}

// Checks that a NIC would write to the memory that was registered, and not to something else by
// now.
static void check_local(const struct iovec *iov, const void *desc)
{
    pthread_mutex_lock(&lock);
    unsigned at = desc != NULL ? place_of(desc) : REGISTRATIONS;
    bool known =
        at < REGISTRATIONS && (uintptr_t)iov->iov_base >= registrations[at].base &&
        (uintptr_t)iov->iov_base + iov->iov_len <= registrations[at].base + registrations[at].bytes;
    unsigned long long id = known ? registrations[at].id : 0;
    pthread_mutex_unlock(&lock);
    if (!known)
        complain("a read goes beyond its registration", iov->iov_base);
    if (id != id_of(iov->iov_base))
        complain("a read goes to memory that was registered once, and is another now",
                 iov->iov_base);
    say("read %llu %zu\n", id, iov->iov_len);
}

static ssize_t readmsg(struct fid_ep *ep, const struct fi_msg_rma *message, uint64_t flags)
{
    if (message->iov_count > 0 && message->msg_iov[0].iov_len > 0)
        check_local(&message->msg_iov[0], message->desc != NULL ? message->desc[0] : NULL);
    return inner_rma_ops.readmsg(ep, message, flags);
}

// ---- objects of the provider inside, some of whose functions are replaced

static struct fi_info *inner_info(const struct fi_info *info)
{
    struct fi_info *copy = libfabric.dupinfo(info);
    copy->caps &= ~FI_HMEM;
    copy->domain_attr->mr_mode &= ~FI_MR_HMEM;
    free(copy->fabric_attr->prov_name);
    copy->fabric_attr->prov_name = strdup(inner);
    return copy;
}

static int open_endpoint(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep,
                         void *context)
{
    const char *name = info->fabric_attr->prov_name;
    if (name == NULL || strcmp(name, provider.name) != 0) // the provider inside opens its own, too
        return inner_domain_ops.endpoint(domain, info, ep, context);
    struct fi_info *copy = inner_info(info);
    int code = inner_domain_ops.endpoint(domain, copy, ep, context);
    libfabric.freeinfo(copy);
    if (code != 0)
        return code;
    inner_rma_ops = rma_ops = *(*ep)->rma;
    rma_ops.readmsg = readmsg;
    (*ep)->rma = &rma_ops;
    return 0;
}

static int open_domain(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **domain,
                       void *context)
{
    struct fi_info *copy = inner_info(info);
    int code = inner_domain(fabric, copy, domain, context);
    libfabric.freeinfo(copy);
    if (code != 0)
        return code;
    inner_domain_ops = domain_ops = *(*domain)->ops;
    domain_ops.endpoint = open_endpoint;
    (*domain)->ops = &domain_ops;
    inner_mr_ops = mr_ops = *(*domain)->mr;
    mr_ops.regattr = mr_regattr;
    (*domain)->mr = &mr_ops;
    return 0;
}

static int open_fabric(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context)
{
    struct fi_fabric_attr copy = *attr;
    copy.prov_name = (char *)inner;
    int code = inner != NULL ? libfabric.fabric(&copy, fabric, context) : -FI_ENODEV;
    if (code != 0)
        return code;
    fabric_ops = *(*fabric)->ops;
    inner_domain = fabric_ops.domain;
    fabric_ops.domain = open_domain;
    (*fabric)->ops = &fabric_ops;
    return 0;
}

// ---- what libfabric asks

static int ask(uint32_t version, const struct fi_info *hints, struct fi_info **info)
{
    int code = -FI_ENODATA;
    for (size_t i = 0; i < sizeof(inner_names) / sizeof(inner_names[0]) && code != 0; i++) {
        if (inner != NULL && strcmp(inner, inner_names[i]) != 0)
            continue;
        struct fi_info *copy = libfabric.dupinfo(hints);
        copy->caps &= ~FI_HMEM;
        copy->domain_attr->mr_mode &= ~FI_MR_HMEM;
        free(copy->fabric_attr->prov_name);
        copy->fabric_attr->prov_name = strdup(inner_names[i]);
        code = libfabric.getinfo(version, NULL, NULL, 0, copy, info);
        libfabric.freeinfo(copy);
        if (code == 0)
            inner = inner_names[i];
    }
    return code;
}

// Only for who names the provider.
static int get_info(uint32_t version, const char *node, const char *service, uint64_t flags,
                    const struct fi_info *hints, struct fi_info **info)
{
    (void)node, (void)service, (void)flags;
    if (hints == NULL || hints->fabric_attr == NULL || hints->fabric_attr->prov_name == NULL ||
        strcmp(hints->fabric_attr->prov_name, "frhmem") != 0)
        return -FI_ENODATA;
    bool hmem = (hints->caps & FI_HMEM) != 0;
    if (hmem && !serves_this_rank())
        return -FI_ENODATA;
    int code = ask(version, hints, info);
    for (struct fi_info *at = code == 0 ? *info : NULL; at != NULL; at = at->next) {
        free(at->fabric_attr->prov_name);
        at->fabric_attr->prov_name = NULL; // libfabric writes it
        at->caps |= hmem ? FI_HMEM : 0;
        at->domain_attr->mr_mode |= FI_MR_LOCAL | (hmem ? FI_MR_HMEM : 0);
    }
    return code;
}

static void clean_up(void)
{
}

static struct fi_provider provider = {
    .version = FI_VERSION(1, 0),
    .fi_version = FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION),
    .name = "frhmem",
    .getinfo = get_info,
    .fabric = open_fabric,
    .cleanup = clean_up,
};

static bool find_libfabric(void)
{
    void *handle = dlopen("libfabric.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (handle == NULL)
        return false;
    libfabric.getinfo = (__typeof__(fi_getinfo) *)dlsym(handle, "fi_getinfo");
    libfabric.freeinfo = (__typeof__(fi_freeinfo) *)dlsym(handle, "fi_freeinfo");
    libfabric.dupinfo = (__typeof__(fi_dupinfo) *)dlsym(handle, "fi_dupinfo");
    libfabric.fabric = (__typeof__(fi_fabric) *)dlsym(handle, "fi_fabric");
    return libfabric.getinfo != NULL && libfabric.freeinfo != NULL && libfabric.dupinfo != NULL &&
           libfabric.fabric != NULL;
}

FI_EXT_INI; // libfabric's headers declare it nowhere
FI_EXT_INI
{
    return find_libfabric() ? &provider : NULL;
}
