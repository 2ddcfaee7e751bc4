// SPDX-License-Identifier: BSD-3-Clause
// Tuned sizes, from the settings and the tuning file, and which of both counts for each size.
//
// Several threads may look for the file at once. They hold no lock, since looking can load NVML.
// All find the same, and the first to finish counts.
#include "config.h"

#include "fabrail/ipc/tuned.h"

#include "fabrail/core/files.h"
#include "fabrail/device.h"
#include "fabrail/job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct fr_lock publish_lock = FR_LOCK_INIT;
struct fr_policy_crossover fr_ipc_tuned_sizes[FR_SIZE_COUNT];
atomic_bool fr_ipc_tuned_is_known;

// Looks up the sizes in the text of a file. Returns FR_ERR_NOT_FOUND when another file may know
// more.
static enum fr_status look_up(const char *path, const char *text, size_t bytes,
                              struct fr_policy_tuning *tuning)
{
    char machine[FR_DEVICE_MACHINE_BYTES];
    struct fr_policy_tuning_file file;
    enum fr_status status = fr_device_machine_text(machine);
    if (status != FR_OK) {
        fr_debug("tuning: neither NVML nor the driver says what machine this is");
        return FR_ERR_UNSUPPORTED;
    }
    status = fr_policy_tuning_read(text, bytes, machine, &file);
    if (status == FR_ERR_INVALID)
        fr_warn_once("the tuning file %s is broken, and nothing in it counts: line %u: %s", path,
                     file.fault_line, file.fault);
    else
        fr_debug("tuning: %s has %s section [%s]", path, status == FR_OK ? "the" : "no", machine);
    *tuning = file.tuning;
    return status;
}

// Reads a file. One that cannot be read counts as none; the user is warned if it `is_named`.
static enum fr_status read_file(const char *path, bool is_named, struct fr_policy_tuning *tuning)
{
    char *text = NULL;
    size_t bytes = 0;
    enum fr_status status = fr_core_file_read(path, FR_TUNING_MAX_BYTES, &text, &bytes);
    if (status != FR_OK) {
        if (is_named)
            fr_warn_once("the tuning file %s cannot be read: %m", path);
        else
            fr_debug("the tuning file %s cannot be read: %m", path);
        return FR_ERR_NOT_FOUND;
    }
    status = look_up(path, text, bytes, tuning);
    free(text);
    return status;
}

// Writes the name of the file that counts to `path`, which is empty where none has a section of
// this machine.
static void read_tuning(struct fr_policy_tuning *tuning, char path[FR_FILE_NAME_BYTES])
{
    const char *name = fr_core_settings()->tuning;
    enum fr_status status = FR_ERR_NOT_FOUND;
    *tuning = fr_policy_untuned;
    if (*name != '\0' && strcmp(name, "auto") != 0) {
        snprintf(path, FR_FILE_NAME_BYTES, "%s", name);
        status = read_file(path, true, tuning);
    } else if (*name != '\0') {
        if (fr_core_file_of_user("tuning", path))
            status = read_file(path, false, tuning);
        if (status == FR_ERR_NOT_FOUND && fr_core_file_of_system("tuning", path))
            status = read_file(path, false, tuning);
    }
    if (status != FR_OK)
        path[0] = '\0';
}

// Returns what the user has set for a size.
static size_t set_bytes(enum fr_policy_size size)
{
    const struct fr_settings *settings = fr_core_settings();
    switch (size) {
    case FR_SIZE_BCAST_SPLIT:
        return settings->bcast_split_min_bytes;
    case FR_SIZE_REDUCE_SHARE:
        return settings->reduce_share_min_bytes;
    case FR_SIZE_PACK_FIRST:
        return settings->pack_first_min_bytes;
    case FR_SIZE_RAIL:
        return settings->rail_min_bytes;
    case FR_SIZE_COMBINE:
        return settings->combine_min_bytes;
    case FR_SIZE_CPU_READ:
        return settings->cpu_read_max_bytes;
    case FR_SIZE_CPU_WRITE:
        return settings->cpu_write_max_bytes;
    default:
        return settings->peer_ce_min_bytes;
    }
}

static bool are_all_set(void)
{
    int size = 0;
    while (size < FR_SIZE_COUNT && set_bytes((enum fr_policy_size)size) != FR_BYTES_AUTO)
        size++;
    return size == FR_SIZE_COUNT;
}

void fr_ipc_tuned_learn(void)
{
    struct fr_policy_crossover found[FR_SIZE_COUNT];
    struct fr_policy_tuning tuning = fr_policy_untuned;
    char path[FR_FILE_NAME_BYTES] = "";
    if (!are_all_set())
        read_tuning(&tuning, path);
    for (int i = 0; i < FR_SIZE_COUNT; i++) {
        enum fr_policy_size size = (enum fr_policy_size)i;
        found[i] = fr_policy_crossover(size, set_bytes(size), &tuning);
    }
    fr_core_lock(&publish_lock);
    bool is_first = !atomic_load_explicit(&fr_ipc_tuned_is_known, memory_order_relaxed);
    for (int i = 0; i < FR_SIZE_COUNT && is_first; i++)
        fr_ipc_tuned_sizes[i] = found[i];
    atomic_store_explicit(&fr_ipc_tuned_is_known, true, memory_order_release);
    fr_core_unlock(&publish_lock);
    if (is_first && fr_job_rank() == 0)
        fr_info("sizes from %s", path[0] ? path : "no tuning file, by default");
    for (int i = 0; i < FR_SIZE_COUNT && is_first; i++)
        fr_debug("tuning: %s %zu bytes, %s", fr_policy_tuning_name((enum fr_policy_size)i),
                 found[i].bytes, found[i].reason);
}

void fr_ipc_tuned_cpu(size_t *read_bytes, size_t *write_bytes)
{
    *read_bytes = fr_ipc_tuned(FR_SIZE_CPU_READ);
    *write_bytes = fr_ipc_tuned(FR_SIZE_CPU_WRITE);
}
