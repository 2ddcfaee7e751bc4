// SPDX-License-Identifier: BSD-3-Clause
// Counting by call site and communicator. The tables are bounded: their last row has what finds no
// room. Sums may be made in a signal handler.
#include "config.h"

#include "fabrail/job.h"
#include "report/report_int.h"

#include <string.h>

enum { LABELS = 64, OTHERS = FR_SITES - 1, NAME_BYTES = 512 };

#define SITE_KEY(fn, label) ((uint32_t)(label) << 16 | (uint32_t)(fn))
#define SITE_FN(key)        ((key)&0xffffu)
#define SITE_LABEL(key)     ((key) >> 16)
_Static_assert(FR_FN_STUB_COUNT < 1 << 16, "takes 16 bits");

static struct fr_site *find_row(struct fr_sites *table, uint32_t key, uintptr_t site)
{
    uint64_t hash =
        (site ^ (uint64_t)key << 40) * 0x9e3779b97f4a7c15u; // 2^64 over the golden ratio
    unsigned first = (unsigned)(hash >> 32);
    for (unsigned i = 0; i < FR_SITE_TRIES && site; i++) {
        struct fr_site *row = &table->rows[(first + i) % OTHERS];
        if (FR_LIKELY(row->taken)) {
            if (row->key == key && row->site == site)
                return row;
            continue;
        }
        row->key = key;
        row->site = site;
        atomic_store_explicit(&row->taken, true, memory_order_release);
        return row;
    }
    struct fr_site *others = &table->rows[OTHERS];
    if (!others->taken)
        others->key = SITE_KEY(FR_FN_STUB_COUNT, 0);
    atomic_store_explicit(&others->taken, true, memory_order_release);
    return others;
}

struct fr_site *fr_report_site(struct fr_sites *table, enum fr_fn fn, uintptr_t site,
                               unsigned label)
{
    uint32_t key = SITE_KEY(fn, label);
    struct fr_site **last = &table->last[fn], *row = *last;
    if (FR_LIKELY(row && row->key == key && row->site == site))
        return row;
    return *last = find_row(table, key, site);
}

static struct fr_lock lock = FR_LOCK_INIT;
static struct fr_report_label labels[LABELS]; // written under the lock
static _Atomic unsigned label_count;          // those below it do not change

// Returns the label of a name and a size. The last label is for all that find no room.
static unsigned label_for(const char *name, int ranks)
{
    struct fr_report_label label = {.ranks = ranks};
    memcpy(label.name, name, strnlen(name, sizeof(label.name) - 1));
    fr_core_lock(&lock);
    unsigned count = label_count ? label_count : 1, found = 1;
    while (found < count &&
           (labels[found].ranks != ranks || strcmp(labels[found].name, label.name)))
        found++;
    if (found == LABELS - 1)
        label = (struct fr_report_label){.name = "other communicators"};
    if (found == count && found < LABELS) {
        labels[found] = label;
        atomic_store_explicit(&label_count, found + 1, memory_order_release);
    }
    fr_core_unlock(&lock);
    return found < LABELS ? found : LABELS - 1;
}

// Asks MPI for name and size of a communicator. Neither waits for other processes.
static __attribute__((noinline, cold)) unsigned make_label(fr_word comm)
{
    char name[NAME_BYTES] = "";
    int length = 0, ranks = 0;
    if (FR_MPI(Comm_size, comm, FR_PTR(&ranks)) != fr_abi_mpi.SUCCESS ||
        FR_MPI(Comm_get_name, comm, FR_PTR(name), FR_PTR(&length)) != fr_abi_mpi.SUCCESS)
        return 0;
    return label_for(name, ranks);
}

unsigned fr_report_label_of(enum fr_fn fn, const fr_word *args)
{
    if (!args || fr_abi_rows[fn].comm < 0)
        return 0;
    fr_word comm = fr_abi_comm(fn, args);
    _Atomic uint32_t *word = fr_job_comm_label(comm);
    if (!word)
        return 0;
    unsigned label = atomic_load_explicit(word, memory_order_relaxed);
    if (FR_UNLIKELY(!label)) {
        label = make_label(comm);
        atomic_store_explicit(word, label, memory_order_relaxed);
    }
    return label;
}

const struct fr_report_label *fr_report_label(unsigned label)
{
    unsigned count = atomic_load_explicit(&label_count, memory_order_acquire);
    return label > 0 && label < count ? &labels[label] : NULL;
}

static struct fr_report_site sums[FR_SITES];
static struct fr_core_site found_sites[FR_SITES];
static unsigned sum_count;

// Returns the sum of a site. The first one is for all that find no room.
static struct fr_report_site *sum_of(const struct fr_site *row)
{
    const struct fr_report_site site = {
        .fn = (enum fr_fn)SITE_FN(row->key), .site = row->site, .label = SITE_LABEL(row->key)};
    for (unsigned i = 0; i < sum_count; i++) {
        if (sums[i].site == site.site && sums[i].fn == site.fn && sums[i].label == site.label)
            return &sums[i];
    }
    if (sum_count == FR_SITES)
        return &sums[0];
    sums[sum_count] = site;
    return &sums[sum_count++];
}

static void add_row(const struct fr_site *row, double ns_a_tick)
{
    struct fr_report_site *sum = sum_of(row);
    sum->calls += fr_count_get(&row->calls);
    sum->ns += (uint64_t)((double)fr_count_get(&row->ticks) * ns_a_tick);
    sum->copies_ns += (uint64_t)((double)fr_count_get(&row->metered[FR_METER_COPY]) * ns_a_tick);
    sum->mpi_ns += (uint64_t)((double)fr_count_get(&row->metered[FR_METER_MPI]) * ns_a_tick);
    sum->wait_ns += (uint64_t)((double)fr_count_get(&row->metered[FR_METER_WAIT]) * ns_a_tick);
    for (unsigned path = 0; path < FR_PATH_COUNT; path++)
        sum->bytes[path] += fr_count_get(&row->bytes[path]);
}

static void sort(void) // not qsort, which may allocate
{
    for (unsigned i = 1; i < sum_count; i++) {
        struct fr_report_site moved = sums[i];
        unsigned at = i;
        for (; at > 0 && sums[at - 1].ns < moved.ns; at--)
            sums[at] = sums[at - 1];
        sums[at] = moved;
    }
}

// Returns whether nothing was counted for a site. Threads of Fabrail's count bytes outside of
// calls.
static bool is_empty(const struct fr_report_site *site)
{
    uint64_t bytes = 0;
    for (unsigned path = 0; path < FR_PATH_COUNT; path++)
        bytes += site->bytes[path];
    return site->calls == 0 && bytes == 0;
}

void fr_report_sites_sum_up(double ns_a_tick)
{
    sums[0] = (struct fr_report_site){.fn = FR_FN_STUB_COUNT};
    sum_count = 1;
    for (const struct fr_slab *slab = fr_report_slabs(); slab; slab = slab->next) {
        for (unsigned i = 0; i < FR_SITES; i++) {
            const struct fr_site *row = &slab->sites.rows[i];
            if (atomic_load_explicit(&row->taken, memory_order_acquire))
                add_row(row, ns_a_tick);
        }
    }
    if (is_empty(&sums[0]))
        sums[0] = sums[--sum_count];
    sort();
    for (unsigned i = 0; i < sum_count; i++)
        found_sites[i] = (struct fr_core_site){.call = sums[i].site};
}

void fr_report_sites_name(bool in_signal)
{
    fr_core_sites_find(found_sites, sum_count, in_signal);
}

const struct fr_report_site *fr_report_sites(const struct fr_core_site **found, unsigned *count)
{
    *found = found_sites;
    *count = sum_count;
    return sums;
}

const char *fr_report_site_function(const struct fr_report_site *site)
{
    return site->fn < FR_FN_STUB_COUNT ? fr_abi_rows[site->fn].name : "other calls";
}

uint64_t fr_report_site_within(const struct fr_report_site *site)
{
    uint64_t elsewhere = site->copies_ns + site->mpi_ns + site->wait_ns;
    return site->ns > elsewhere ? site->ns - elsewhere : 0;
}
