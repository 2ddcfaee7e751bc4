// SPDX-License-Identifier: BSD-3-Clause
// fabrail info: what was found out, as a person reads it and as JSON.
#include "config.h"

#include "info.h"

#include "command.h"
#include "fabrail/ipc/tuned.h"
#include "json_write.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CODE_NO_START = FR_TOOL_NO_LETTER, CODE_NO_TRY, CODE_LIBRARY, CODE_CHECK };

const struct fr_tool_option fabrail_info_options[] = {
    {"json", 'j', NULL, NULL, "print JSON"},
    {"settings", 's', NULL, NULL, "print the settings with their defaults and sources alone"},
    {"check", CODE_CHECK, NULL, NULL,
     "print what costs speed on this machine, and what mends it; status 1 if anything does"},
    {"no-start", CODE_NO_START, NULL, NULL, "start no rank to ask an MPI what it is"},
    {"no-try", CODE_NO_TRY, NULL, NULL, "make no GPU memory to see which handles it can have"},
    {"library", CODE_LIBRARY, "FILE", FR_TOOL_FILES, "look at this build of Fabrail"},
    {NULL, 0, NULL, NULL, NULL},
};

static const char *answer_name(enum fr_info_answer answer)
{
    return answer == FR_INFO_YES ? "yes" : answer == FR_INFO_NO ? "no" : "unknown";
}

static const char *const served[] = {"MPI standard ABI", "Open MPI", "MPICH"};

static void print_gpu(int index, const struct fr_info_gpus *gpus)
{
    const struct fr_info_gpu *gpu = &gpus->gpus[index];
    char clique[64];
    printf("  GPU %d      %s, %zu MiB, %s", index, gpu->name, gpu->bytes >> 20, gpu->pci);
    if (gpu->nvlinks >= 0)
        printf(", %d NVLinks", gpu->nvlinks);
    if (gpu->clique.valid) {
        fr_info_clique_text(&gpu->clique, clique, sizeof(clique));
        printf(", clique %s", clique);
    }
    printf("%s\n", gpu->dma_buf ? ", dma-buf" : gpu->rdma ? ", GPUDirect RDMA" : "");
}

// One line where all reach all, else a line a GPU.
static void print_reach(const struct fr_info_gpus *gpus)
{
    int pairs = 0, by_nvlink = 0, all = gpus->count * (gpus->count - 1);
    for (int a = 0; a < gpus->count; a++) {
        for (int b = 0; b < gpus->count; b++) {
            pairs += gpus->gpus[a].reaches[b];
            by_nvlink += gpus->gpus[a].by_nvlink[b];
        }
    }
    if (gpus->count < 2)
        return;
    if (pairs == 0 || pairs == all)
        printf("  reach      %s\n", pairs == 0           ? "no GPU can map another one's memory"
                                    : by_nvlink == pairs ? "all map each other's memory, by NVLink"
                                    : by_nvlink == 0
                                        ? "all map each other's memory, not by NVLink"
                                        : "all map each other's memory, some by NVLink");
    for (int a = 0; a < gpus->count && pairs > 0 && pairs < all; a++) {
        printf("  reach      GPU %d maps", a);
        for (int b = 0; b < gpus->count; b++) {
            if (gpus->gpus[a].reaches[b])
                printf(" %d%s", b, gpus->gpus[a].by_nvlink[b] ? " (NVLink)" : "");
        }
        putchar('\n');
    }
}

// GPUs of a host are nearly always alike; those that are not have lines of their own.
static void print_handles(const struct fr_info_gpus *gpus)
{
    for (int h = 0; h < FR_INFO_HANDLES; h++) {
        const struct fr_info_try *first = &gpus->gpus[0].handles[h];
        for (int i = 0; i < gpus->count; i++) {
            const struct fr_info_try *one = &gpus->gpus[i].handles[h];
            bool alike = one->works == first->works && strcmp(one->why_not, first->why_not) == 0;
            if (i > 0 && alike)
                continue;
            printf("  handle     %s: ", fr_info_handle_name((enum fr_info_handle)h));
            if (i > 0)
                printf("GPU %d ", i);
            printf("%s%s\n", one->works ? "yes" : "no: ", one->works ? "" : one->why_not);
        }
    }
}

static void print_gpus(const struct fr_info_gpus *gpus)
{
    puts("\nGPUs");
    if (gpus->count == 0) {
        printf("  none       %s\n", gpus->problem);
        return;
    }
    printf("  driver     %s, CUDA %d.%d%s\n", *gpus->driver ? gpus->driver : "unknown",
           gpus->cuda_version / 1000, gpus->cuda_version % 1000 / 10,
           gpus->simulated ? "; SIMULATED, there is no GPU" : "");
    for (int i = 0; i < gpus->count; i++)
        print_gpu(i, gpus);
    print_reach(gpus);
    if (gpus->cpu_way)
        printf("  CPU access by %s: the CPU copies short messages itself\n", gpus->cpu_way);
    else
        printf("  CPU access no: %s\n", gpus->cpu_why_not ? gpus->cpu_why_not : "not asked");
    const struct fr_info_try *tried = gpus->gpus[0].handles;
    if (tried[FR_INFO_IPC].works || *tried[FR_INFO_IPC].why_not)
        print_handles(gpus);
}

static void print_mpi(const struct fr_info *info, const struct fr_info_mpi *mpi)
{
    struct fr_info_path paths[FR_INFO_MOST_PATHS];
    printf("\n%s\n  launcher   %s, settings by %s\n", mpi->launcher.version, mpi->launcher.path,
           mpi->launcher.family == FR_LAUNCH_OPENMPI ? "-x"
           : mpi->launcher.family == FR_LAUNCH_MPICH ? "-genv"
                                                     : "--export");
    if (mpi->launcher.family == FR_LAUNCH_SLURM)
        return;
    if (mpi->started)
        printf("  library    %s\n  GPU-aware  %s\n  Fabrail    %s\n", mpi->library,
               answer_name(mpi->gpu_aware),
               mpi->served != FR_INFO_YES     ? "does NOT serve it"
               : !fr_core_settings()->disable ? "works with it"
                                              : "works with it, but FABRAIL_DISABLE is set");
    else
        printf("  GPU-aware  unknown, %s%s; taken for no\n",
               *mpi->problem ? "a rank did not start: " : "not asked", mpi->problem);
    int count = fr_info_paths(info, mpi, paths);
    for (int i = 0; i < count; i++)
        printf("  %-6s     %s%s\n", paths[i].name, paths[i].used ? "" : "no: ", paths[i].why);
}

// As a job on this machine finds them.
static void print_tuning(void)
{
    puts("\nSizes from or beyond which bytes move in another way");
    for (int i = 0; i < FR_SIZE_COUNT; i++) {
        char text[FR_BYTES_TEXT];
        struct fr_policy_crossover one = fr_ipc_tuned_because((enum fr_policy_size)i);
        printf("  %-17s %s, %s\n", fr_policy_tuning_name((enum fr_policy_size)i),
               fr_core_bytes_text(one.bytes, text), one.reason);
    }
}

static void print_rails(const struct fr_info_rails *rails)
{
    puts("\nNICs");
    printf("  libfabric  %s\n", rails->providers);
    for (int i = 0; i < rails->count; i++) {
        const struct fr_info_nic *nic = &rails->nics[i];
        printf("  NIC        %s%s%s%s%s", nic->name, *nic->pci ? ", " : "", nic->pci,
               *nic->link ? ", " : "", nic->link);
        if (nic->gpu >= 0)
            printf(", nearest to GPU %d", nic->gpu);
        putchar('\n');
    }
    for (int i = 0; i < rails->rail_count; i++) {
        const struct fr_info_rail *rail = &rails->rails[i];
        if (rail->gpu >= 0)
            printf("  rail       GPU %d: %s, %s\n", rail->gpu, rail->nic, rail->provider);
        else
            printf("  rail       host memory: %s, %s\n", rail->nic, rail->provider);
    }
    if (rails->count == 0)
        puts("  NIC        none that the kernel shows hardware of");
}

static void print(const struct fr_info *info)
{
    printf("Fabrail %s\n  library    %s%s\n  serves     ", PACKAGE_VERSION, info->library,
           info->library_found ? "" : ", which is NOT there");
    for (size_t i = 0; i < FR_ARRAY_LENGTH(served); i++)
        printf("%s%s", i ? ", " : "", served[i]);
    putchar('\n');
    print_gpus(&info->gpus);
    for (int i = 0; i < info->mpis.count; i++)
        print_mpi(info, &info->mpis.mpis[i]);
    if (info->mpis.count == 0)
        puts("\nMPI\n  none       no mpirun, mpiexec or srun is on the path");
    print_rails(&info->rails);
    print_tuning();
}

static void write_paths(struct fr_json_out *out, const struct fr_info *info,
                        const struct fr_info_mpi *mpi)
{
    struct fr_info_path paths[FR_INFO_MOST_PATHS];
    int count = fr_info_paths(info, mpi, paths);
    fr_json_open(out, "paths", '[');
    for (int i = 0; i < count; i++) {
        fr_json_open(out, NULL, '{');
        fr_json_text(out, "path", paths[i].name);
        fr_json_truth(out, "used", paths[i].used);
        fr_json_text(out, "reason", paths[i].why);
        fr_json_close(out, '}');
    }
    fr_json_close(out, ']');
}

static void write_handles(struct fr_json_out *out, const struct fr_info_gpu *gpu)
{
    static const char *const keys[FR_INFO_HANDLES] = {"ipc", "fd", "fabric"};
    fr_json_open(out, "handles", '{');
    for (int h = 0; h < FR_INFO_HANDLES; h++) {
        const struct fr_info_try *one = &gpu->handles[h];
        bool tried = one->works || *one->why_not;
        fr_json_text(out, keys[h], !tried ? "not tried" : one->works ? "yes" : one->why_not);
    }
    fr_json_close(out, '}');
}

static void write_gpu(struct fr_json_out *out, const struct fr_info_gpus *gpus, int index)
{
    const struct fr_info_gpu *gpu = &gpus->gpus[index];
    char clique[64], capability[16];
    fr_info_clique_text(&gpu->clique, clique, sizeof(clique));
    snprintf(capability, sizeof(capability), "%d.%d", gpu->major, gpu->minor);
    fr_json_open(out, NULL, '{');
    fr_json_number(out, "index", index);
    fr_json_text(out, "name", gpu->name);
    fr_json_text(out, "uuid", gpu->uuid);
    fr_json_text(out, "pci", gpu->pci);
    fr_json_number(out, "bytes", (int64_t)gpu->bytes);
    fr_json_text(out, "compute_capability", capability);
    fr_json_truth(out, "gpudirect_rdma", gpu->rdma);
    fr_json_truth(out, "dma_buf", gpu->dma_buf);
    if (gpu->nvlinks >= 0)
        fr_json_number(out, "nvlinks", gpu->nvlinks);
    fr_json_text(out, "nvlink_clique", gpu->clique.valid ? clique : NULL);
    for (int nvlink = 0; nvlink < 2; nvlink++) {
        fr_json_open(out, nvlink ? "reaches_by_nvlink" : "reaches", '[');
        for (int other = 0; other < gpus->count; other++) {
            if (nvlink ? gpu->by_nvlink[other] : gpu->reaches[other])
                fr_json_number(out, NULL, other);
        }
        fr_json_close(out, ']');
    }
    write_handles(out, gpu);
    fr_json_close(out, '}');
}

static void write_mpi(struct fr_json_out *out, const struct fr_info *info,
                      const struct fr_info_mpi *mpi)
{
    fr_json_open(out, NULL, '{');
    fr_json_text(out, "launcher", mpi->launcher.path);
    fr_json_text(out, "family", fr_launch_family_name(mpi->launcher.family));
    fr_json_text(out, "version", mpi->launcher.version);
    fr_json_text(out, "library", mpi->started ? mpi->library : NULL);
    fr_json_text(out, "gpu_aware", answer_name(mpi->gpu_aware));
    fr_json_text(out, "served", answer_name(mpi->served));
    fr_json_text(out, "problem", *mpi->problem ? mpi->problem : NULL);
    write_paths(out, info, mpi);
    fr_json_close(out, '}');
}

static void write_tuning(struct fr_json_out *out)
{
    fr_json_open(out, "tuning", '[');
    for (int i = 0; i < FR_SIZE_COUNT; i++) {
        struct fr_policy_crossover one = fr_ipc_tuned_because((enum fr_policy_size)i);
        fr_json_open(out, NULL, '{');
        fr_json_text(out, "name", fr_policy_tuning_name((enum fr_policy_size)i));
        fr_json_number(out, "bytes", (int64_t)one.bytes);
        fr_json_text(out, "reason", one.reason);
        fr_json_close(out, '}');
    }
    fr_json_close(out, ']');
}

static void write_rails(struct fr_json_out *out, const struct fr_info_rails *rails)
{
    fr_json_truth(out, "rails_built", rails->built);
    fr_json_text(out, "libfabric_providers", rails->providers);
    fr_json_open(out, "rails", '[');
    for (int i = 0; i < rails->rail_count; i++) {
        fr_json_open(out, NULL, '{');
        if (rails->rails[i].gpu >= 0)
            fr_json_number(out, "gpu", rails->rails[i].gpu);
        fr_json_text(out, "nic", rails->rails[i].nic);
        fr_json_text(out, "provider", rails->rails[i].provider);
        fr_json_close(out, '}');
    }
    fr_json_close(out, ']');
    fr_json_open(out, "nics", '[');
    for (int i = 0; i < rails->count; i++) {
        const struct fr_info_nic *nic = &rails->nics[i];
        fr_json_open(out, NULL, '{');
        fr_json_text(out, "name", nic->name);
        fr_json_text(out, "pci", *nic->pci ? nic->pci : NULL);
        fr_json_text(out, "link", *nic->link ? nic->link : NULL);
        if (nic->gpu >= 0)
            fr_json_number(out, "nearest_gpu", nic->gpu);
        fr_json_close(out, '}');
    }
    fr_json_close(out, ']');
}

static void write_json(const struct fr_info *info, FILE *file)
{
    struct fr_json_out out = {.file = file};
    fr_json_open(&out, NULL, '{');
    fr_json_text(&out, "fabrail", PACKAGE_VERSION);
    fr_json_text(&out, "library", info->library);
    fr_json_truth(&out, "library_found", info->library_found);
    fr_json_open(&out, "serves", '[');
    for (size_t i = 0; i < FR_ARRAY_LENGTH(served); i++)
        fr_json_text(&out, NULL, served[i]);
    fr_json_close(&out, ']');
    fr_json_text(&out, "driver", *info->gpus.driver ? info->gpus.driver : NULL);
    fr_json_number(&out, "cuda_version", info->gpus.cuda_version);
    fr_json_truth(&out, "simulated", info->gpus.simulated);
    fr_json_text(&out, "no_gpu_because", *info->gpus.problem ? info->gpus.problem : NULL);
    fr_json_text(&out, "cpu_access", info->gpus.cpu_way);
    fr_json_text(&out, "no_cpu_access_because", info->gpus.cpu_way ? NULL : info->gpus.cpu_why_not);
    fr_json_open(&out, "gpus", '[');
    for (int i = 0; i < info->gpus.count; i++)
        write_gpu(&out, &info->gpus, i);
    fr_json_close(&out, ']');
    fr_json_open(&out, "mpis", '[');
    for (int i = 0; i < info->mpis.count; i++)
        write_mpi(&out, info, &info->mpis.mpis[i]);
    fr_json_close(&out, ']');
    write_tuning(&out);
    write_rails(&out, &info->rails);
    fr_json_close(&out, '}');
}

// Finds out and prints everything, or only what costs speed.
static int show(const char *library, bool json, bool check, bool start, bool try)
{
    static struct fr_info info;
    info.library_found = fr_launch_find_library(info.library);
    if (library != NULL) {
        snprintf(info.library, sizeof(info.library), "%s", library);
        info.library_found = access(library, R_OK) == 0;
    }
    fr_info_gpus_find(&info.gpus, try);
    if (!check)
        fr_info_mpis_find(&info.mpis, start, info.library);
    fr_info_rails_find(&info.rails, &info.gpus);
    if (check)
        return fr_info_check(&info) > 0 ? EXIT_FAILURE : EXIT_SUCCESS;
    if (json)
        write_json(&info, stdout);
    else
        print(&info);
    return EXIT_SUCCESS;
}

int fabrail_info(int argc, char **argv)
{
    bool json = false, settings = false, check = false, start = true, try = true;
    const char *library = NULL;
    for (int code = 0; (code = fr_tool_next(argc, argv)) != FR_TOOL_END;) {
        switch (code) {
        case 'j':
            json = true;
            break;
        case 's':
            settings = true;
            break;
        case CODE_CHECK:
            check = true;
            break;
        case CODE_NO_START:
            start = false;
            break;
        case CODE_NO_TRY:
            try = false;
            break;
        case CODE_LIBRARY:
            library = optarg;
            break;
        default:
            return fr_tool_status(code);
        }
    }
    if (optind < argc)
        return fr_tool_misuse("\"%s\" is one argument too many", argv[optind]);
    if (!settings)
        return show(library, json, check, start, try);
    fr_info_print_settings();
    return EXIT_SUCCESS;
}
