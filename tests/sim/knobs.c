// SPDX-License-Identifier: BSD-3-Clause
// Settings of the simulated driver and of NVML, from the environment. Compiled into both libraries.
#include "config.h"

#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

static struct sim_knobs knobs;

static int rank_of_process(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK",
                                        "SLURM_PROCID"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *text = getenv(names[i]);
        if (text && *text)
            return atoi(text);
    }
    return 0;
}

// Copies one element of a list. The last element stands for all that would follow.
static void pick(const char *list, char separator, int index, char *out, size_t bytes)
{
    const char *end = strchr(list, separator);
    for (; index > 0 && end; index--) {
        list = end + 1;
        end = strchr(list, separator);
    }
    size_t length = end ? (size_t)(end - list) : strlen(list);
    if (length >= bytes)
        length = bytes - 1;
    memcpy(out, list, length);
    out[length] = '\0';
}

// Copies the element of a list "a,b,c" that belongs to this process's rank. Returns false when the
// variable is unset or empty.
static bool read_text(const char *name, char *out, size_t bytes)
{
    const char *text = getenv(name);
    if (!text || !*text)
        return false;
    pick(text, ',', rank_of_process(), out, bytes);
    return true;
}

static unsigned long long number_of(const char *text)
{
    char *end;
    unsigned long long value = strtoull(text, &end, 0);
    switch (*end) {
    case 'G':
    case 'g':
        return value << 30;
    case 'M':
    case 'm':
        return value << 20;
    case 'K':
    case 'k':
        return value << 10;
    default:
        return value;
    }
}

static unsigned long long read_number(const char *name, unsigned long long fallback)
{
    char text[64];
    return read_text(name, text, sizeof(text)) ? number_of(text) : fallback;
}

// Copies the element of the rank's value "a/b/c" that belongs to a physical device.
static bool read_device_text(const char *name, int physical, char *out, size_t bytes)
{
    char all[SIM_MAX_DEVICES * 40];
    if (!read_text(name, all, sizeof(all)))
        return false;
    pick(all, '/', physical, out, bytes);
    return true;
}

static unsigned read_device_number(const char *name, int physical, unsigned fallback)
{
    char text[64];
    bool given = read_device_text(name, physical, text, sizeof(text));
    return given ? (unsigned)number_of(text) : fallback;
}

// Reads 32 hexadecimal digits, with dashes between them or not. Bytes without digits are 0.
static void read_device_uuid(const char *name, int physical, unsigned char uuid[16])
{
    char text[80];
    memset(uuid, 0, 16);
    if (!read_device_text(name, physical, text, sizeof(text)))
        return;
    size_t digits = 0;
    for (const char *at = text; *at && digits < 32; at++) {
        const char digit[2] = {*at, '\0'};
        char *end;
        unsigned value = (unsigned)strtoul(digit, &end, 16);
        if (*end || *at == ' ')
            continue;
        uuid[digits / 2] |= (unsigned char)(value << (digits % 2 ? 0 : 4));
        digits++;
    }
}

void sim_device_uuid(int physical, unsigned char uuid[16])
{
    memcpy(uuid, "FRSIM\0\0\0", 8);
    memset(uuid + 8, 0, 7);
    uuid[6] = 0x40; // version 4, where tools look for it
    uuid[8] = 0x80;
    uuid[15] = (unsigned char)(physical + 1);
}

void sim_device_pci_id(int physical, char *text, size_t bytes)
{
    snprintf(text, bytes, "0000:%02X:00.0", (SIM_FIRST_BUS + (unsigned)physical) & 0xff);
}

void sim_device_uuid_text(int physical, char text[48])
{
    unsigned char uuid[16];
    sim_device_uuid(physical, uuid);
    size_t at = (size_t)snprintf(text, 48, "GPU-");
    for (int byte = 0; byte < 16; byte++) {
        const char *dash = byte == 4 || byte == 6 || byte == 8 || byte == 10 ? "-" : "";
        at += (size_t)snprintf(text + at, 48 - at, "%s%02x", dash, uuid[byte]);
    }
}

// Finds a device by any unambiguous beginning of its uuid. All uuids differ in the last digits
// only.
static int physical_by_uuid(const char *text, size_t length)
{
    for (int i = 0; i < knobs.devices; i++) {
        char name[48];
        sim_device_uuid_text(i, name);
        if (length > 4 && length <= strlen(name) && strncasecmp(name, text, length) == 0)
            return i;
    }
    return -1;
}

// Reads CUDA_VISIBLE_DEVICES. As with the real driver, the list ends at its first entry that names
// no device.
static void read_visible(void)
{
    const char *text = getenv("CUDA_VISIBLE_DEVICES");
    if (!text) {
        for (int i = 0; i < knobs.devices; i++)
            knobs.visible[i] = i;
        knobs.visible_count = knobs.devices;
        return;
    }
    while (*text && knobs.visible_count < knobs.devices) {
        size_t length = strcspn(text, ",");
        char *end;
        long index = strtol(text, &end, 10);
        if (end == text)
            index = physical_by_uuid(text, length);
        if (index < 0 || index >= knobs.devices)
            return;
        for (int i = 0; i < knobs.visible_count; i++)
            if (knobs.visible[i] == index) {
                knobs.visible_count = 0; // a device named twice hides them all
                return;
            }
        knobs.visible[knobs.visible_count++] = (int)index;
        text += length;
        text += *text == ',';
    }
}

// Runs before any other thread can call in.
__attribute__((constructor)) static void read_knobs(void)
{
    unsigned long long devices = read_number("FRSIM_DEVICES", 4);
    knobs.devices = devices > SIM_MAX_DEVICES ? SIM_MAX_DEVICES : (int)devices;
    knobs.memory_bytes = read_number("FRSIM_MEMORY", 1ull << 30);
    char text[32];
    knobs.eager = read_text("FRSIM_ASYNC", text, sizeof(text)) && strcmp(text, "eager") == 0;
    knobs.record = read_text("FRSIM_HOST_ACCESS", text, sizeof(text)) && !strcmp(text, "record");
    knobs.managed_trap = knobs.record || read_number("FRSIM_MANAGED_TRAP", 0);
    knobs.host_access = knobs.record || read_number("FRSIM_HOST_ACCESS", 0);
    knobs.imex = read_number("FRSIM_IMEX", 1);
    knobs.batch = read_number("FRSIM_BATCH", 1);
    knobs.fabric = read_number("FRSIM_FABRIC", 1);
    knobs.mps = read_number("FRSIM_MPS", 1);
    knobs.dmabuf = (unsigned)read_number("FRSIM_DMABUF", SIM_DMABUF_NONE);
    knobs.nvml = (unsigned)read_number("FRSIM_NVML", SIM_NVML_NEW);
    knobs.log = read_number("FRSIM_LOG", 0);
    knobs.event_ns = read_number("FRSIM_EVENT_MS", 0) * 1000000u;
    knobs.gate_ns = read_number("FRSIM_GATE_MS", 0) * 1000000u;
    knobs.fail_nth = read_number("FRSIM_FAIL_NTH", 0);
    knobs.fail_code = (CUresult)read_number("FRSIM_FAIL_CODE", CUDA_ERROR_UNKNOWN);
    knobs.count_fabrail_only =
        read_text("FRSIM_FAIL_SCOPE", text, sizeof(text)) && strcmp(text, "fabrail") == 0;
    knobs.count_file = getenv("FRSIM_COUNT_FILE");
    knobs.host_copies_file = getenv("FRSIM_HOST_COPIES_FILE");
    knobs.touch_file = getenv("FRSIM_TOUCH_FILE");
    (void)read_text("FRSIM_REFUSE_KERNELS", knobs.refused_kernels, sizeof(knobs.refused_kernels));
    (void)read_text("FRSIM_HOST_NAME", knobs.host_name, sizeof(knobs.host_name));
    for (int i = 0; i < SIM_MAX_DEVICES; i++) {
        struct sim_fabric *fabric = &knobs.fabrics[i];
        fabric->clique = read_device_number("FRSIM_CLIQUE", i, 0);
        fabric->state = read_device_number("FRSIM_FABRIC_STATE", i, 3);
        fabric->status = read_device_number("FRSIM_FABRIC_STATUS", i, 0);
        read_device_uuid("FRSIM_CLUSTER_UUID", i, fabric->cluster_uuid);
    }
    read_visible();
}

uint64_t sim_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

FILE *sim_open_for_process(const char *pattern)
{
    char path[4096];
    if (!pattern || !*pattern)
        return NULL;
    const char *pid = strstr(pattern, "%p");
    if (pid)
        snprintf(path, sizeof(path), "%.*s%d%s", (int)(pid - pattern), pattern, (int)getpid(),
                 pid + 2);
    else
        snprintf(path, sizeof(path), "%s", pattern);
    return fopen(path, "w");
}

const struct sim_knobs *sim_knobs(void)
{
    return &knobs;
}
