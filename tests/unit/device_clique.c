// SPDX-License-Identifier: BSD-3-Clause
// The NVLink clique of devices and of the host: what makes one valid, several cliques on one host,
// renumbered devices, and an NVML that is old, broken or missing. Each case runs in a process of
// its own, which has loaded neither driver nor NVML before.
//
// By hand and without top_builddir it prints what the machine's own NVML says.
#include "config.h"

#include "driver.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define UUID_A "00112233-4455-6677-8899-aabbccddeeff"
#define UUID_B "00112233-4455-6677-8899-aabbccddee00"

static const unsigned char bytes_a[16] = {0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77,
                                          0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff};

enum { NONE = -1, DEVICES = 4 };

// A case: settings, the clique of cluster A that the host is in, and that of each device; NONE for
// none.
struct variant {
    const char *name;
    const char *settings[6];
    int host;
    int devices[DEVICES];
};
static const struct variant variants[] = {
    {"one clique", {"FRSIM_CLUSTER_UUID=" UUID_A, "FRSIM_CLIQUE=7"}, 7, {7, 7, 7, 7}},
    {"clique 0", {"FRSIM_CLUSTER_UUID=" UUID_A}, 0, {0, 0, 0, 0}},
    {"last clique",
     {"FRSIM_CLUSTER_UUID=" UUID_A, "FRSIM_CLIQUE=0x7fffffff"},
     0x7fffffff,
     {0x7fffffff, 0x7fffffff, 0x7fffffff, 0x7fffffff}},
    {"no NVML", {"FRSIM_CLUSTER_UUID=" UUID_A, "FRSIM_NVML=0"}, NONE, {NONE, NONE, NONE, NONE}},
    {"old NVML",
     {"FRSIM_CLUSTER_UUID=" UUID_A, "FRSIM_CLIQUE=7/7/8", "FRSIM_NVML=2"},
     NONE,
     {7, 7, 8, 8}},
    {"old NVML, state 2",
     {"FRSIM_CLUSTER_UUID=" UUID_A, "FRSIM_FABRIC_STATE=2/3", "FRSIM_NVML=2"},
     0,
     {NONE, 0, 0, 0}},
    {"no fabric", {"FRSIM_CLUSTER_UUID=" UUID_A, "FRSIM_NVML=3"}, NONE, {NONE, NONE, NONE, NONE}},
    {"zero UUID", {"FRSIM_CLIQUE=7"}, NONE, {NONE, NONE, NONE, NONE}},
    {"state 0",
     {"FRSIM_CLUSTER_UUID=" UUID_A, "FRSIM_FABRIC_STATE=0"},
     NONE,
     {NONE, NONE, NONE, NONE}},
    {"state 1",
     {"FRSIM_CLUSTER_UUID=" UUID_A, "FRSIM_FABRIC_STATE=1"},
     NONE,
     {NONE, NONE, NONE, NONE}},
    {"state 2",
     {"FRSIM_CLUSTER_UUID=" UUID_A, "FRSIM_FABRIC_STATE=2"},
     NONE,
     {NONE, NONE, NONE, NONE}},
    {"status 999",
     {"FRSIM_CLUSTER_UUID=" UUID_A, "FRSIM_FABRIC_STATUS=999"},
     NONE,
     {NONE, NONE, NONE, NONE}},
    {"several cliques", {"FRSIM_CLUSTER_UUID=" UUID_A, "FRSIM_CLIQUE=1/1/2"}, NONE, {1, 1, 2, 2}},
    {"one other clique",
     {"FRSIM_CLUSTER_UUID=" UUID_A, "FRSIM_CLIQUE=1/1/1/2"},
     NONE,
     {1, 1, 1, 2}},
    {"one device down",
     {"FRSIM_CLUSTER_UUID=" UUID_A, "FRSIM_FABRIC_STATE=3/1/3"},
     0,
     {0, NONE, 0, 0}},
    {"one device of another clique down",
     {"FRSIM_CLUSTER_UUID=" UUID_A, "FRSIM_CLIQUE=4/5/4", "FRSIM_FABRIC_STATUS=0/15/0"},
     4,
     {4, NONE, 4, 4}},
    {"one device without cluster", {"FRSIM_CLUSTER_UUID=0/" UUID_A}, 0, {NONE, 0, 0, 0}},
    {"devices in another order",
     {"FRSIM_CLUSTER_UUID=" UUID_A, "FRSIM_CLIQUE=5/6/7/8", "CUDA_VISIBLE_DEVICES=2,0"},
     NONE,
     {7, 5, NONE, NONE}},
    {"devices by UUID",
     {"FRSIM_CLUSTER_UUID=" UUID_A, "FRSIM_CLIQUE=5/6/7/8",
      "CUDA_VISIBLE_DEVICES=GPU-46525349-4d00-4000-8000-000000000004,"
      "GPU-46525349-4d00-4000-8000-000000000002"},
     NONE,
     {8, 6, NONE, NONE}},
    {"hidden devices count for the host",
     {"FRSIM_CLUSTER_UUID=" UUID_A, "FRSIM_CLIQUE=5/5/5/6", "CUDA_VISIBLE_DEVICES=0"},
     NONE,
     {5, NONE, NONE, NONE}},
    {"second rank",
     {"FRSIM_CLUSTER_UUID=0," UUID_A, "FRSIM_CLIQUE=1/2,3/4/3", "PMI_RANK=1"},
     NONE,
     {3, 4, 3, 3}},
    {"no devices",
     {"FRSIM_CLUSTER_UUID=" UUID_A, "FRSIM_DEVICES=0"},
     NONE,
     {NONE, NONE, NONE, NONE}},
};

static void check_clique(const char *name, int device, const struct fr_device_clique *clique,
                         int wanted)
{
    static const struct fr_device_clique none;
    if (wanted == NONE) {
        CHECK(memcmp(clique, &none, sizeof(none)) == 0, "%s: device %d is in clique %u, valid %u",
              name, device, clique->clique, clique->valid);
        return;
    }
    CHECK(clique->valid == 1 && clique->clique == (unsigned)wanted,
          "%s: device %d is in clique %u, valid %u, not in %d", name, device, clique->clique,
          clique->valid, wanted);
    CHECK(memcmp(clique->cluster, bytes_a, sizeof(bytes_a)) == 0, "%s: device %d: cluster", name,
          device);
}

static void check_host(const char *name, int wanted)
{
    struct fr_device_clique clique;
    memset(&clique, 0xa5, sizeof(clique));
    fr_device_clique_of_host(&clique);
    check_clique(name, -1, &clique, wanted);
}

static void check_device(const char *name, int device, int wanted)
{
    struct fr_device_clique clique;
    memset(&clique, 0xa5, sizeof(clique));
    fr_device_clique_of(device, &clique);
    check_clique(name, device, &clique, wanted);
}

// The simulated NVML of the build, found afterwards by its name as the real one would be.
static void *load_nvml(void)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/tests/sim/libnvidia-ml.so.1", getenv("top_builddir"));
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    CHECK(handle != NULL, "%s", dlerror());
    return handle;
}

static void run_variant(const struct variant *variant)
{
    for (int i = 0; i < 6 && variant->settings[i]; i++)
        putenv((char *)(uintptr_t)variant->settings[i]);
    load_nvml();
    check_host(variant->name, variant->host); // needs no driver
    check_device(variant->name, 0, NONE);
    CHECK(driver_load());
    check_device(variant->name, 0, NONE); // not initialised
    bool has_devices = cu.cuInit(0) == CUDA_SUCCESS;
    for (int round = 0; round < 2; round++) {
        for (int device = 0; device < DEVICES; device++)
            check_device(variant->name, device, has_devices ? variant->devices[device] : NONE);
        check_device(variant->name, -1, NONE);
        check_device(variant->name, 1000, NONE);
        check_host(variant->name, variant->host);
    }
}

// Two clusters that differ in their last byte, with cliques of the same number.
static void run_clusters(void)
{
    struct fr_device_clique first, second;
    putenv((char *)(uintptr_t) "FRSIM_CLUSTER_UUID=" UUID_A "/" UUID_B);
    load_nvml();
    CHECK(driver_load() && cu.cuInit(0) == CUDA_SUCCESS);
    check_host("two clusters", NONE);
    check_device("two clusters", 0, 0);
    fr_device_clique_of(0, &first);
    fr_device_clique_of(1, &second);
    CHECK(first.valid && second.valid && first.clique == second.clique);
    CHECK(memcmp(first.cluster, second.cluster, 15) == 0 && second.cluster[15] == 0);
}

static void *ask(void *unused)
{
    check_host("threads", 3);
    for (int device = 0; device < DEVICES; device++)
        check_device("threads", device, 3);
    return unused;
}

static void run_threads(void)
{
    enum { THREADS = 8 };
    pthread_t threads[THREADS];
    putenv((char *)(uintptr_t) "FRSIM_CLUSTER_UUID=" UUID_A);
    putenv((char *)(uintptr_t) "FRSIM_CLIQUE=3");
    load_nvml();
    CHECK(driver_load() && cu.cuInit(0) == CUDA_SUCCESS);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, ask, NULL) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

// Once told, an answer takes neither NVML nor the driver.
static void run_remembered(void)
{
    putenv((char *)(uintptr_t) "FRSIM_CLUSTER_UUID=" UUID_A);
    putenv((char *)(uintptr_t) "FRSIM_CLIQUE=3");
    void *handle = load_nvml();
    int (*shut_down)(void) = (int (*)(void))dlsym(handle, "nvmlShutdown");
    CHECK(driver_load() && cu.cuInit(0) == CUDA_SUCCESS);
    check_host("before", 3);
    check_device("before", 1, 3);
    CHECK(shut_down && shut_down() == 0, "NVML was not initialised, or more than once");
    CHECK(shut_down && shut_down() != 0, "NVML was initialised more than once");
    check_host("after", 3);
    check_device("after", 1, 3);
    check_device("never asked", 2, NONE);
}

// As on a machine without NVML: the dynamic loader can open no file.
static void run_missing(void)
{
    struct rlimit files;
    CHECK(driver_load() && cu.cuInit(0) == CUDA_SUCCESS);
    CHECK(getrlimit(RLIMIT_NOFILE, &files) == 0);
    files.rlim_cur = 0;
    CHECK(setrlimit(RLIMIT_NOFILE, &files) == 0);
    CHECK(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL) == NULL, "NVML could be loaded");
    check_host("missing", NONE);
    check_device("missing", 0, NONE);
}

// In a child, so that each case finds the process as it was at the start.
static void in_child(const char *name, const struct variant *variant, void (*run)(void))
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        if (variant != NULL)
            run_variant(variant);
        else
            run();
        _exit(check_result());
    }
    int status = -1;
    waitpid(pid, &status, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == CHECK_PASS, "%s: status 0x%x", name,
          (unsigned)status);
}

static void print_clique(const char *name, const struct fr_device_clique *clique)
{
    printf("%s: clique %u, valid %u, cluster ", name, clique->clique, clique->valid);
    for (size_t i = 0; i < sizeof(clique->cluster); i++)
        printf("%02x", clique->cluster[i]);
    printf("\n");
}

static int print_machine(void)
{
    struct fr_device_clique clique;
    int count = 0;
    fr_device_clique_of_host(&clique);
    print_clique("host", &clique);
    if (!driver_load() || cu.cuInit(0) != CUDA_SUCCESS)
        return CHECK_SKIP;
    CU(cuDeviceGetCount(&count));
    for (int device = 0; device < count; device++) {
        fr_device_clique_of(device, &clique);
        print_clique("device", &clique);
    }
    return check_result();
}

int main(void)
{
    if (getenv("top_builddir") == NULL)
        return print_machine();
    for (size_t i = 0; i < sizeof(variants) / sizeof(variants[0]); i++)
        in_child(variants[i].name, &variants[i], NULL);
    in_child("clusters", NULL, run_clusters);
    in_child("threads", NULL, run_threads);
    in_child("remembered", NULL, run_remembered);
    in_child("missing", NULL, run_missing);
    return check_result();
}
