// SPDX-License-Identifier: BSD-3-Clause
// fabrail info --settings: each setting with its value, its default, and where the value comes
// from. With --check: what costs speed on this machine, and the command that mends it.
#include "config.h"

#include "info.h"

#include "fabrail/ipc/tuned.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

// Finds the tuned size that a setting overrides. Returns false if it is of none.
static bool find_size(const char *name, struct fr_policy_crossover *size)
{
    static const char prefix[] = "FABRAIL_";
    char lower[64];
    size_t length = 0;
    for (const char *at = name + sizeof(prefix) - 1; *at && length < sizeof(lower) - 1; at++)
        lower[length++] = (char)tolower((unsigned char)*at);
    lower[length] = '\0';
    for (int i = 0; i < FR_SIZE_COUNT; i++) {
        if (strcmp(fr_policy_tuning_name((enum fr_policy_size)i), lower) == 0) {
            *size = fr_ipc_tuned_because((enum fr_policy_size)i);
            return true;
        }
    }
    return false;
}

void fr_info_print_settings(void)
{
    struct fr_core_setting setting;
    printf("%-25s %-22s %-22s %s\n", "setting", "value", "default", "from");
    for (size_t i = 0; fr_core_setting_at(i, &setting); i++) {
        struct fr_policy_crossover size;
        char text[FR_BYTES_TEXT];
        const char *value = setting.value, *from = setting.is_given ? "environment" : "default";
        if (!setting.is_given && strcmp(value, "auto") == 0 && find_size(setting.name, &size)) {
            value = fr_core_bytes_text(size.bytes, text);
            from = size.reason;
        }
        printf("%-25s %-22s %-22s %s\n", setting.name, *value ? value : "-",
               *setting.default_text ? setting.default_text : "-", from);
    }
}

// Says what is amiss, what that costs, and what mends it. Returns 1, the number of such things.
static int tell(const char *what, const char *cost, const char *mend)
{
    printf("amiss      %s\n  costs    %s\n  mend     %s\n", what, cost, mend);
    return 1;
}

static int check_gpus(const struct fr_info_gpus *gpus)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (gpus->count == 0)
        return tell(gpus->problem, "Fabrail has nothing to do",
                    visible ? "unset CUDA_VISIBLE_DEVICES, or name GPUs that nvidia-smi -L shows"
                            : "nvidia-smi, and in containers --gpus all");
    const struct fr_info_try *handles = gpus->gpus[0].handles;
    int found = 0;
    // Only NVLink to other hosts, or an MPI that has it, takes the channel.
    if (gpus->gpus[0].clique.valid && strstr(handles[FR_INFO_FABRIC].why_not, "IMEX"))
        found += tell(handles[FR_INFO_FABRIC].why_not,
                      "no NVLink between hosts, and no fabric-allocated memory",
                      "option NVreg_CreateImexChannel0=1 of the module nvidia; in containers "
                      "--device /dev/nvidia-caps-imex-channels/channel0");
    if (*handles[FR_INFO_IPC].why_not && gpus->count > 1)
        found += tell(handles[FR_INFO_IPC].why_not,
                      "memory of cudaMalloc is staged through a workspace between ranks",
                      "run the ranks of a host in one container, with --ipc=host");
    if (visible && gpus->count == 1 && !getenv("SLURM_PROCID"))
        found += tell("CUDA_VISIBLE_DEVICES shows one GPU",
                      "ranks that inherit it share that GPU, by slices of time",
                      "unset CUDA_VISIBLE_DEVICES, and choose by the rank on the host");
    return found;
}

static int check_shared_memory(void)
{
    enum { LEAST_MIB = 256 };
    struct statvfs fs;
    char what[64];
    if (statvfs("/dev/shm", &fs) != 0)
        return tell("/dev/shm is missing", "no messages over NVLink on one host",
                    "sudo mount -t tmpfs tmpfs /dev/shm");
    unsigned long mib = (unsigned long)((uint64_t)fs.f_blocks * fs.f_frsize >> 20);
    if (mib >= LEAST_MIB)
        return 0;
    snprintf(what, sizeof(what), "/dev/shm holds %lu MiB", mib);
    return tell(what, "ranks fall back to slower ways, or MPI fails to start",
                "sudo mount -o remount,size=1g /dev/shm; in containers --shm-size=1g");
}

static int check_nics(const struct fr_info *info)
{
    const struct fr_info_rails *rails = &info->rails;
    struct rlimit locked;
    int found = 0;
    bool by_themselves = false; // over sockets the CPU moves all bytes, and nothing is pinned
    for (int i = 0; i < rails->count; i++)
        by_themselves = by_themselves || rails->nics[i].by_itself;
    bool reached = access("/sys/module/nvidia_peermem", F_OK) == 0;
    for (int i = 0; i < info->gpus.count; i++)
        reached = reached || info->gpus.gpus[i].dma_buf;
    if (!by_themselves)
        return 0;
    if (getrlimit(RLIMIT_MEMLOCK, &locked) == 0 && locked.rlim_cur != RLIM_INFINITY)
        found += tell("memory that NICs may use is limited (ulimit -l)",
                      "registration fails, and large messages go slower",
                      "ulimit -l unlimited, and memlock in /etc/security/limits.conf");
    if (info->gpus.count > 0 && !reached)
        found += tell("NICs do not reach GPU memory: neither dma-buf nor nvidia_peermem",
                      "each message between hosts is copied through host memory",
                      "sudo modprobe nvidia-peermem");
    return found;
}

// Not amiss: all works without, and few machines have it. The costs are the published ones of
// GDRCopy, and those of copies by the driver on an H100.
static void tell_cpu_access(const struct fr_info_gpus *gpus)
{
    if (gpus->count == 0)
        return;
    if (gpus->cpu_way)
        printf("note       the CPU reads and writes GPU memory itself, by %s; memory is pinned for "
               "that when it is used again, which takes about 1.4 ms\n",
               gpus->cpu_way);
    else if (fr_core_settings()->cpu_access == FR_CPU_ACCESS_OFF)
        puts("note       the driver copies short messages, in 6 to 8 us each; "
             "FABRAIL_CPU_ACCESS=auto has the CPU copy them, where GDRCopy is there or a driver of "
             "CUDA 13.3");
    else
        printf(
            "note       the CPU does not reach GPU memory (%s): the driver copies short messages, "
            "in 6 to 8 us each in place of 1 to 3; GDRCopy would do, or a driver of CUDA 13.3\n",
            gpus->cpu_why_not ? gpus->cpu_why_not : "not asked");
}

int fr_info_check(const struct fr_info *info)
{
    int found = 0;
    if (!info->library_found)
        found += tell("the library is not where it should be", "nothing is served",
                      "fabrail info --library=FILE");
    found += check_gpus(&info->gpus) + check_shared_memory() + check_nics(info);
    tell_cpu_access(&info->gpus);
    if (access("/dev/gdrdrv", F_OK) != 0)
        puts("note       no GDRCopy: MPIs that are GPU-aware are slower at short messages");
    if (info->gpus.count > 0 && access("/tmp/nvidia-mps/control", F_OK) != 0)
        puts("note       no MPS: ranks that share a GPU take turns; nvidia-cuda-mps-control -d "
             "starts it");
    if (found == 0)
        puts("nothing is amiss");
    return found;
}
