// SPDX-License-Identifier: BSD-3-Clause
// fabrail info: the NICs of this machine and the GPU that each is nearest to, as the kernel has
// them; libfabric's providers; and which rails the library would open for each GPU, where it was
// built with module rail. Libfabric is asked in a process of its own, since providers may print,
// wait and worse when they look around.
#include "config.h"

#include "fabrail/rail.h"
#include "info.h"

#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef FR_HAVE_RAILS
#include <rdma/fabric.h>
#endif

enum { PROBE_SECONDS = 60, MOST_PROVIDERS = 32 };

#define SAYS_PROVIDER "fabrail-probe provider "
#define SAYS_BUILT    "fabrail-probe rails"
#define SAYS_RAIL     "fabrail-probe rail " // GPU, NIC, provider

#ifdef FR_HAVE_RAILS
static void print_providers(const struct fi_info *list)
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
}

static int probe_providers(void)
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
        print_providers(list);
    else
        fprintf(stderr, "libfabric finds no provider (error %d)\n", -result);
    return result == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
#else
static int probe_providers(void)
{
    fprintf(stderr, "built without the headers of libfabric or hwloc\n");
    return EXIT_FAILURE;
}
#endif

// The rails of a GPU by its PCI bus id, of the first rank on it.
static bool print_rails(const char *index, const char *gpu)
{
    struct fr_rail_options options = fr_rail_options();
    struct fr_rails *rails = NULL;
    options.gpu = gpu;
    enum fr_status status = fr_rail_open(&options, &rails);
    if (status == FR_ERR_UNSUPPORTED)
        return false;
    for (unsigned i = 0; status == FR_OK && i < fr_rail_count(rails); i++) {
        struct fr_rail_counters rail;
        fr_rail_counters(rails, i, &rail);
        printf(SAYS_RAIL "%s %s %s\n", index, rail.name, rail.provider);
    }
    if (status == FR_OK)
        fr_rail_close(rails);
    return true;
}

int fr_info_probe_fabric(int count, char **gpus)
{
    bool built = false;
    for (int i = 0; i + 1 < count; i += 2)
        built = print_rails(gpus[i], strcmp(gpus[i], "-1") == 0 ? NULL : gpus[i + 1]) || built;
    if (built)
        puts(SAYS_BUILT);
    fflush(stdout);
    return probe_providers();
}

static void take_provider(struct fr_info_rails *rails, const char *name, int length)
{
    size_t used = strlen(rails->providers);
    snprintf(rails->providers + used, sizeof(rails->providers) - used, "%s%.*s", used ? ", " : "",
             length, name);
}

static void take_rail(struct fr_info_rails *rails, const char *text)
{
    struct fr_info_rail *rail = &rails->rails[rails->rail_count];
    if (rails->rail_count < FR_INFO_MOST_RAILS &&
        sscanf(text, "%d %63s %31s", &rail->gpu, rail->nic, rail->provider) == 3)
        rails->rail_count++;
}

static void take_lines(struct fr_info_rails *rails, char *output)
{
    const char *other = "";
    int other_length = 0;
    for (char *line = output; line != NULL && *line != '\0';) {
        size_t length = strcspn(line, "\n");
        if (strncmp(line, SAYS_PROVIDER, strlen(SAYS_PROVIDER)) == 0)
            take_provider(rails, line + strlen(SAYS_PROVIDER),
                          (int)(length - strlen(SAYS_PROVIDER)));
        else if (strncmp(line, SAYS_RAIL, strlen(SAYS_RAIL)) == 0)
            take_rail(rails, line + strlen(SAYS_RAIL));
        else if (strncmp(line, SAYS_BUILT, strlen(SAYS_BUILT)) == 0)
            rails->built = true;
        else {
            other = line;
            other_length = (int)length;
        }
        line += length + (line[length] != '\0');
    }
    if (rails->providers[0] == '\0')
        snprintf(rails->providers, sizeof(rails->providers), "none: %.*s", other_length, other);
}

// Arguments are pairs of a GPU's index and its PCI bus id; without a GPU, of host memory.
static void ask_libfabric(struct fr_info_rails *rails, const struct fr_info_gpus *gpus)
{
    char own[FR_FILE_NAME_BYTES], quiet[] = "FI_LOG_LEVEL=warn";
    char *const assignments[] = {quiet, NULL};
    struct fr_words words = {.list = NULL};
    struct fr_child_result result = {.output = NULL};
    ssize_t length = readlink("/proc/self/exe", own, sizeof(own) - 1);
    if (length <= 0)
        return;
    own[length] = '\0';
    fr_words_add(&words, "%s", own);
    fr_words_add(&words, "--probe-fabric");
    for (int i = 0; i < gpus->count; i++) {
        fr_words_add(&words, "%d", i);
        fr_words_add(&words, "%s", gpus->gpus[i].pci);
    }
    if (gpus->count == 0) {
        fr_words_add(&words, "-1");
        fr_words_add(&words, "host");
    }
    if (!words.failed)
        fr_child_run(words.list, assignments, PROBE_SECONDS, &result);
    take_lines(rails, result.output);
    free(result.output);
    fr_words_free(&words);
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
        nic->by_itself = strcmp(folder, "net") != 0;
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
    ask_libfabric(rails, gpus);
    add_nics("infiniband", rails, gpus);
    add_nics("cxi", rails, gpus);
    add_nics("net", rails, gpus);
}
