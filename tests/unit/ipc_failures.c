// SPDX-License-Identifier: BSD-3-Clause
// Sharing memory while one call of the driver fails, each in turn, in the exporting and in the
// importing process: nothing crashes or hangs, what is said to be mapped holds the right bytes, and
// nothing is left mapped or open but what the failing call itself was to give back.
#include "config.h"

#include "ipc_pair.h"

#include <fcntl.h>

enum { BYTES = 50000, KINDS = 3, REPORTED = 3, LEFT_BEHIND = 4 };

static const enum fr_device_kind kinds[KINDS] = {FR_KIND_MALLOC, FR_KIND_VMM_FD,
                                                 FR_KIND_VMM_FABRIC};
static unsigned refused; // calls of the module that failed

struct offer {
    struct fr_ipc_handle handle;
    enum fr_status status;
};

// Counts the pieces of memory files that a process has mapped, which are device memory of its own
// and of others.
static unsigned count_mapped(void)
{
    char line[512];
    unsigned count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps != NULL && fgets(line, sizeof(line), maps) != NULL)
        count += strstr(line, "frsim-device-memory") != NULL;
    if (maps != NULL)
        fclose(maps);
    return count;
}

static unsigned count_descriptors(void)
{
    unsigned count = 0;
    for (int i = 0; i < 1024; i++)
        count += fcntl(i, F_GETFD) != -1;
    return count;
}

static void allocate_all(struct driver_memory memories[KINDS])
{
    for (unsigned i = 0; i < KINDS; i++) {
        if (!driver_allocate(kinds[i], 0, BYTES, &memories[i]))
            exit(CHECK_SKIP);
        pair_fill(&memories[i], 0, BYTES, i);
    }
}

// As driver_free does, but any call may fail.
static void free_all(const struct driver_memory memories[KINDS])
{
    for (unsigned i = 0; i < KINDS; i++) {
        CUdeviceptr address = driver_pointer(memories[i].address);
        if (kinds[i] == FR_KIND_MALLOC) {
            (void)cu.cuMemFree_v2(address);
            continue;
        }
        (void)cu.cuMemUnmap(address, memories[i].bytes);
        (void)cu.cuMemRelease(memories[i].handle);
        (void)cu.cuMemAddressFree(address, memories[i].bytes);
    }
}

static unsigned mapped_before, descriptors_before;

// Everything up to here is the test's own; the failing call comes after. Memory that stays the
// driver's, such as its heap, is there before anything is counted.
static void set_up(struct driver_memory memories[KINDS])
{
    pair_begin(0);
    if (!driver_is_simulated())
        pair_skip("a real driver fails no call on request");
    if (process_rank == 0) {
        allocate_all(memories);
        free_all(memories);
    }
    mapped_before = count_mapped();
    descriptors_before = count_descriptors();
    if (process_rank == 0)
        allocate_all(memories);
}

static void export_all(const struct driver_memory memories[KINDS],
                       const struct fr_job_process *other)
{
    struct offer offers[KINDS];
    for (unsigned i = 0; i < KINDS; i++) {
        offers[i].status = pair_export(memories[i].address, BYTES, &offers[i].handle);
        if (offers[i].status == FR_OK)
            offers[i].status = fr_ipc_send_descriptor(&offers[i].handle, other, 1, false);
        refused += offers[i].status != FR_OK;
    }
    process_say(1, offers, sizeof(offers));
}

static enum fr_status import_one(const struct offer *offer, unsigned i)
{
    static unsigned char host[BYTES];
    struct fr_ipc_mapping mapping;
    if (offer->status != FR_OK)
        return offer->status;
    enum fr_status status = pair_import(&offer->handle, 0, &mapping);
    refused += status != FR_OK;
    if (status != FR_OK)
        return status;
    if (cu.cuMemcpyDtoH_v2(host, mapping.address, BYTES) == CUDA_SUCCESS)
        CHECK(check_first_difference(host, BYTES, i) == BYTES, "%s memory",
              fr_device_kind_name(kinds[i]));
    fr_ipc_unpin(&mapping);
    return FR_OK;
}

static void import_all(void)
{
    struct offer offers[KINDS];
    enum fr_status first[KINDS];
    process_hear(0, offers, sizeof(offers));
    for (unsigned i = 0; i < KINDS; i++)
        first[i] = import_one(&offers[i], i);
    for (unsigned i = 0; i < KINDS; i++) { // from the cache; a lack of memory is over, though
        enum fr_status again = import_one(&offers[i], i);
        CHECK(offers[i].status != FR_OK || first[i] != FR_ERR_NO_MEMORY || again == FR_OK,
              "%s memory: %s", fr_device_kind_name(kinds[i]), fr_core_status_text(again));
    }
}

static void run_all(void)
{
    struct driver_memory memories[KINDS];
    struct fr_job_process other;
    set_up(memories);
    pair_greet(1 - process_rank, &other);
    if (process_rank == 0)
        export_all(memories, &other);
    else
        import_all();
    process_meet();
    fr_ipc_release();
    struct memory_usage usage = memory_usage();
    CHECK(usage.exports == 0 && usage.mappings == 0 && usage.mapped_bytes == 0);
    process_meet();
    if (process_rank == 0)
        free_all(memories);
    bool left = count_mapped() != mapped_before || count_descriptors() != descriptors_before;
    fr_device_release();
    int outcome = left ? LEFT_BEHIND : refused > 0 ? REPORTED : CHECK_PASS;
    exit(check_result() == CHECK_PASS ? outcome : CHECK_FAIL);
}

static void run_set_up(void)
{
    struct driver_memory memories[KINDS];
    set_up(memories);
}

// Returns how many calls of the driver a process made in a case, 0 on failure.
static unsigned count_calls(const struct process_case *all, int rank)
{
    struct process_case counted = *all;
    char variable[96], file[64], text[32] = "";
    snprintf(file, sizeof(file), "peer-failures-%d.count", (int)getpid());
    snprintf(variable, sizeof(variable), "FRSIM_COUNT_FILE=%s", file);
    counted.own[rank][0] = variable;
    int code = process_run(&counted);
    if (code == CHECK_SKIP)
        exit(CHECK_SKIP);
    CHECK(code == CHECK_PASS, "%s without a failing call ended with %d", all->name, code);
    FILE *stream = fopen(file, "r");
    if (stream == NULL)
        return 0;
    bool read = fgets(text, sizeof(text), stream) != NULL;
    fclose(stream);
    unlink(file);
    return read ? (unsigned)atoi(text) : 0;
}

// With the code that the setting gives, NULL for the simulated driver's own.
static void fail_each_call(const struct process_case *cases, int rank, const char *code_setting)
{
    unsigned reported = 0, left_behind = 0;
    unsigned last = count_calls(&cases[0], rank);
    unsigned first = count_calls(&cases[1], rank) + 1;
    for (unsigned nth = first; nth <= last; nth++) {
        struct process_case failing = cases[0];
        char variable[32];
        snprintf(variable, sizeof(variable), "FRSIM_FAIL_NTH=%u", nth);
        failing.own[rank][0] = variable;
        failing.own[rank][1] = code_setting;
        int code = process_run(&failing);
        CHECK(code == CHECK_PASS || code == REPORTED || code == LEFT_BEHIND,
              "call %u of process %d: %d", nth, rank, code);
        reported += code == REPORTED;
        left_behind += code == LEFT_BEHIND;
    }
    printf("process %d: calls %u to %u failed, %u were reported, %u could not be undone\n", rank,
           first, last, reported, left_behind);
    CHECK(first < last && reported >= 5, "the calls that matter have not failed");
    // Those that unmap, release or free, and those that lead up to them.
    CHECK(left_behind <= 16, "%u", left_behind);
}

int main(int count, char **arguments)
{
    static const struct process_case cases[] = {
        {.name = "all", .count = 2, .run = run_all, .common = {"FABRAIL_LOG=error"}},
        {.name = "set-up", .count = 2, .run = run_set_up},
        {.name = NULL},
    };
    if (count > 1)
        return process_main(cases, count, arguments);
    for (int rank = 0; rank < 2; rank++)
        fail_each_call(cases, rank, NULL);
    fail_each_call(cases, 1, "FRSIM_FAIL_CODE=2"); // out of memory
    return check_result();
}
