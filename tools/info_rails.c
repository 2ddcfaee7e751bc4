// SPDX-License-Identifier: BSD-3-Clause
// fabrail info: the NICs of this machine, the GPU that each is nearest to, and libfabric's
// providers. NICs are the kernel's; libfabric is asked in a process of its own, since providers may
// print, wait and worse when they look around.
#include "config.h"

#include "info.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined __has_include
#if __has_include(<rdma/fabric.h>)
#include <rdma/fabric.h>
#define HAS_LIBFABRIC_HEADER 1
#endif
#endif

enum { PROBE_SECONDS = 30, MOST_PROVIDERS = 32 };

#define SAYS_PROVIDER "fabrail-probe provider "

#ifdef HAS_LIBFABRIC_HEADER
static int print_providers(const struct fi_info *list)
{
    const char *seen[MOST_PROVIDERS];
    int count = 0;
    for (const struct fi_info *info = list; info != NULL && count < MOST_PROVIDERS;
         info = info->next) {
        const char *name = info->fabric_attr != NULL ? info->fabric_attr->prov_name : NULL;
        bool again = name == NULL;
        for (int i = 0; i < count && !again; i++)
            again = strcmp(seen[i], name) == 0;
        if (again)
            continue;
        seen[count++] = name;
        printf(SAYS_PROVIDER "%s\n", name);
    }
    return EXIT_SUCCESS;
}

int fr_info_probe_fabric(void)
{
    void *library = dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL);
    __typeof__(fi_getinfo) *getinfo = NULL;
    struct fi_info *list = NULL;
    if (library != NULL)
        getinfo = (__typeof__(fi_getinfo) *)dlsym(library, "fi_getinfo");
    if (getinfo == NULL) {
        fprintf(stderr, "libfabric.so.1 is not here\n");
        return EXIT_FAILURE;
    }
    int result = getinfo(FI_VERSION(1, 17), NULL, NULL, 0, NULL, &list);
    if (result == 0)
        return print_providers(list);
    fprintf(stderr, "libfabric finds no provider (error %d)\n", -result);
    return EXIT_FAILURE;
}
#else
int fr_info_probe_fabric(void)
{
    fprintf(stderr, "built without libfabric's headers\n");
    return EXIT_FAILURE;
}
#endif

static void ask_libfabric(struct fr_info_rails *rails)
{
    char own[FR_FILE_NAME_BYTES];
    char option[] = "--probe-fabric", quiet[] = "FI_LOG_LEVEL=warn";
    char *const assignments[] = {quiet, NULL};
    struct fr_child_result result;
    ssize_t length = readlink("/proc/self/exe", own, sizeof(own) - 1);
    if (length <= 0)
        return;
    own[length] = '\0';
    char *const argv[] = {own, option, NULL};
    fr_child_run(argv, assignments, PROBE_SECONDS, &result);
    size_t used = 0;
    for (char *line = result.output;
         line != NULL && (line = strstr(line, SAYS_PROVIDER)) != NULL;) {
        line += strlen(SAYS_PROVIDER);
        if (used < sizeof(rails->providers))
            used += (size_t)snprintf(rails->providers + used, sizeof(rails->providers) - used,
                                     "%s%.*s", used ? ", " : "", (int)strcspn(line, "\n"), line);
    }
    if (used == 0)
        snprintf(rails->providers, sizeof(rails->providers), "none: %.*s",
                 result.output != NULL ? (int)strcspn(result.output, "\n") : 0,
                 result.output != NULL ? result.output : "");
    free(result.output);
}

// The way from the CPU to a device, as the kernel names it: bridge by bridge.
static bool find_way(const char *link, char way[PATH_MAX])
{
    return realpath(link, way) != NULL && strstr(way, "/pci") != NULL;
}

// How many of its steps two ways share, from the CPU on.
static int shared_steps(const char *a, const char *b)
{
    int steps = 0;
    for (; *a != '\0' && *a == *b; a++, b++)
        steps += *a == '/';
    return steps + ((*a == '\0' || *a == '/') && (*b == '\0' || *b == '/'));
}

// The GPU whose way parts from this one last, -1 when all part at the CPU or even before.
static int nearest_gpu(const char *way, const struct fr_info_gpus *gpus)
{
    int best = -1, most = 0;
    const char *root = strstr(way, "/pci"); // "/sys/devices/pci0000:00/..."
    for (int i = 0; i < gpus->count; i++) {
        char link[128], gpu_way[PATH_MAX], pci[32];
        snprintf(pci, sizeof(pci), "%s", gpus->gpus[i].pci);
        for (char *c = pci; *c != '\0'; c++)
            *c = (char)(*c >= 'A' && *c <= 'F' ? *c + 'a' - 'A' : *c);
        snprintf(link, sizeof(link), "/sys/bus/pci/devices/%s", pci);
        if (!find_way(link, gpu_way))
            continue;
        int steps = shared_steps(root, strstr(gpu_way, "/pci"));
        if (steps > most) {
            most = steps;
            best = i;
        }
    }
    return best;
}

static void read_line(const char *path, char *text, size_t room)
{
    FILE *file = fopen(path, "r");
    text[0] = '\0';
    if (file == NULL)
        return;
    if (fgets(text, (int)room, file) != NULL)
        text[strcspn(text, "\n")] = '\0';
    fclose(file);
}

static void describe_link(const char *folder, const char *name, char *text, size_t room)
{
    char path[PATH_MAX], speed[24];
    if (strcmp(folder, "infiniband") == 0) {
        snprintf(path, sizeof(path), "/sys/class/infiniband/%.64s/ports/1/rate", name);
        read_line(path, text, room);
        return;
    }
    snprintf(path, sizeof(path), "/sys/class/net/%.64s/speed", name);
    read_line(path, speed, sizeof(speed));
    if (atoi(speed) > 0)
        snprintf(text, room, "%d Mb/sec", atoi(speed));
}

static void add_nics(const char *folder, struct fr_info_rails *rails,
                     const struct fr_info_gpus *gpus)
{
    char path[PATH_MAX], way[PATH_MAX];
    snprintf(path, sizeof(path), "/sys/class/%s", folder);
    DIR *entries = opendir(path);
    if (entries == NULL)
        return;
    for (struct dirent *entry; (entry = readdir(entries)) != NULL;) {
        if (entry->d_name[0] == '.' || rails->count == FR_INFO_MOST_NICS)
            continue;
        snprintf(path, sizeof(path), "/sys/class/%s/%.64s/device", folder, entry->d_name);
        if (access(path, F_OK) != 0)
            continue; // no hardware: a loopback, a bridge
        struct fr_info_nic *nic = &rails->nics[rails->count++];
        memset(nic, 0, sizeof(*nic));
        snprintf(nic->name, sizeof(nic->name), "%.63s", entry->d_name);
        describe_link(folder, entry->d_name, nic->link, sizeof(nic->link));
        nic->gpu = -1;
        if (find_way(path, way)) {
            snprintf(nic->pci, sizeof(nic->pci), "%.31s", strrchr(way, '/') + 1);
            nic->gpu = nearest_gpu(way, gpus);
        }
    }
    closedir(entries);
}

void fr_info_rails_find(struct fr_info_rails *rails, const struct fr_info_gpus *gpus)
{
    memset(rails, 0, sizeof(*rails));
    ask_libfabric(rails);
    add_nics("infiniband", rails, gpus);
    add_nics("net", rails, gpus);
}
