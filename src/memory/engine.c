// SPDX-License-Identifier: BSD-3-Clause
// The choice between kernels and copy engines, and the tuning file that it goes by.
//
// Several threads may look for the file at once, under no lock, since that can load NVML; they find
// the same, and the first to finish counts.
#include "config.h"

#include "core/files.h"
#include "memory/engine.h"
#include "policy/tuning.h"

#include <stdlib.h>
#include <string.h>

static struct fr_lock publish_lock = FR_LOCK_INIT;
// Written before `is_known` says so, constant from then on.
static size_t ce_min_bytes[FR_TRANSFER_COUNT];
static atomic_bool is_known;

static const struct fr_policy_tuning untuned = {{FR_BYTES_AUTO, FR_BYTES_AUTO}};

// Returns FR_ERR_NOT_FOUND when another file may know more.
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

// A file that cannot be read is as good as none; the user hears of one that is `is_named`.
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

static void read_tuning(struct fr_policy_tuning *tuning)
{
    const char *name = fr_core_settings()->tuning;
    char path[FR_FILE_NAME_BYTES];
    *tuning = untuned;
    if (*name == '\0')
        return;
    if (strcmp(name, "auto") != 0) {
        (void)!read_file(name, true, tuning);
        return;
    }
    if (fr_core_file_of_user("tuning", path) && read_file(path, false, tuning) != FR_ERR_NOT_FOUND)
        return;
    if (fr_core_file_of_system("tuning", path))
        (void)!read_file(path, false, tuning);
}

static void learn(void)
{
    struct fr_policy_crossover found[FR_TRANSFER_COUNT];
    struct fr_policy_tuning tuning = untuned;
    size_t set_bytes = fr_core_settings()->peer_ce_min_bytes;
    if (set_bytes == FR_BYTES_AUTO)
        read_tuning(&tuning);
    for (int t = 0; t < FR_TRANSFER_COUNT; t++)
        found[t] = fr_policy_crossover((enum fr_policy_transfer)t, set_bytes, &tuning);
    fr_core_lock(&publish_lock);
    bool is_first = !atomic_load_explicit(&is_known, memory_order_relaxed);
    for (int t = 0; t < FR_TRANSFER_COUNT && is_first; t++)
        ce_min_bytes[t] = found[t].ce_min_bytes;
    atomic_store_explicit(&is_known, true, memory_order_release);
    fr_core_unlock(&publish_lock);
    for (int t = 0; t < FR_TRANSFER_COUNT && is_first; t++)
        fr_debug("tuning: %s %zu bytes, %s", fr_policy_tuning_name((enum fr_policy_transfer)t),
                 found[t].ce_min_bytes, found[t].reason);
}

static enum fr_device_engine choose(enum fr_policy_transfer transfer, size_t bytes)
{
    if (FR_UNLIKELY(!atomic_load_explicit(&is_known, memory_order_acquire)))
        learn();
    bool by_engines = fr_policy_engine(bytes, ce_min_bytes[transfer]) == FR_POLICY_COPY_ENGINES;
    return by_engines ? FR_ENGINE_CE : FR_ENGINE_SM;
}

enum fr_device_engine fr_memory_engine_for_exchange(size_t largest_bytes)
{
    return choose(FR_TRANSFER_EXCHANGE, largest_bytes);
}

enum fr_device_engine fr_memory_engine_for_message(size_t bytes)
{
    return choose(FR_TRANSFER_MESSAGE, bytes);
}
