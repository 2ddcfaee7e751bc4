// SPDX-License-Identifier: BSD-3-Clause
// Counting: the rows and sizes of a thread, and the time of its calls.
//
// To read the clock takes 7 to 12 ns, four times a call. So on average only one short call in
// SKIP_MEAN is timed, at random, and it stands for those before it. After a call of LONG_NS or more
// the next call of its function is timed too, since the clock does not matter then.
#include "config.h"

#include "fabrail/job.h"
#include "report/report_int.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SKIP_MEAN = 32, LONG_NS = 4000, WARM_CALLS = 64 };

bool fr_report_on;
static bool traced; // every call is an event, and so each is timed
static bool with_nvtx;
static fr_count long_ticks; // LONG_NS in ticks, once known
static struct fr_slab *_Atomic slabs;
static pthread_key_t slab_key;

// The call that the thread is in.
struct call {
    bool open;
    bool timed;
    enum fr_fn fn;
    unsigned path;
    const char *scheme;
    struct fr_row *row; // to which its time goes, once a buffer was counted
    uintptr_t site;     // to which it returns
    const fr_word *args;
    unsigned label;       // of the communicator that it names, once asked for
    unsigned first_label; // of its first buffer's communicator
    uint64_t begin;
    uint64_t bytes;
    int peer;
};
static FR_TLS struct call current;
static FR_TLS struct fr_slab *own_slab;
static FR_TLS uint32_t random_state;

static void leave_slab(void *slab)
{
    own_slab = NULL;
    atomic_store_explicit(&((struct fr_slab *)slab)->used, false, memory_order_release);
}

const char *fr_report_target = "";
const char *fr_report_trace_target = "";

// Puts the current folder in front of a relative name, since the application may change it later,
// and each process to one of its own.
static const char *complete_name(const char *target, char name[PATH_MAX])
{
    if (!target[0] || target[0] == '/' || strcmp(target, "text") == 0 || !getcwd(name, PATH_MAX))
        return target;
    size_t folder = strlen(name), length = strlen(target);
    if (folder + 1 + length >= PATH_MAX)
        return target;
    name[folder] = '/';
    memcpy(name + folder + 1, target, length + 1);
    return name;
}

void fr_report_start(void)
{
    static char report[PATH_MAX], trace[PATH_MAX];
    const struct fr_settings *settings = fr_core_settings();
    fr_report_target = complete_name(settings->report, report);
    fr_report_trace_target = complete_name(settings->trace, trace);
    bool reports = fr_report_target[0];
    traced = fr_report_trace_start();
    with_nvtx = fr_report_nvtx_start();
    if (settings->disable || !(reports || traced || with_nvtx) ||
        pthread_key_create(&slab_key, leave_slab))
        return;
    (void)fr_report_start_ticks();
    fr_report_on = true;
}

// Takes over the slab of a thread that has ended, whose counts go on. Returns NULL if there is
// none.
static struct fr_slab *take_over_slab(void)
{
    for (struct fr_slab *slab = slabs; slab; slab = slab->next) {
        bool used = false;
        if (atomic_compare_exchange_strong(&slab->used, &used, true))
            return slab;
    }
    return NULL;
}

static struct fr_slab *make_slab(void)
{
    struct fr_slab *slab = take_over_slab();
    if (!slab) {
        slab =
            mmap(NULL, sizeof(*slab), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (slab == MAP_FAILED)
            return NULL;
        slab->used = true;
        slab->next = slabs;
        while (!atomic_compare_exchange_weak(&slabs, &slab->next, slab)) {
        }
    }
    own_slab = slab;
    pthread_setspecific(slab_key, slab);
    return slab;
}

// Returns the slab of the calling thread, NULL if memory is short.
static struct fr_slab *slab_of_thread(void)
{
    return FR_LIKELY(own_slab) ? own_slab : make_slab();
}

struct fr_slab *fr_report_slabs(void)
{
    return slabs;
}

static struct fr_row *find_row(struct fr_slab *slab, uint32_t key, const char *scheme)
{
    unsigned hash = key * 2654435761u ^ (unsigned)((uintptr_t)scheme >> 3);
    for (unsigned i = 0; i < FR_ROWS; i++) {
        struct fr_row *row = &slab->rows[(hash + i) % FR_ROWS];
        if (FR_LIKELY(row->taken)) {
            if (row->key == key && row->scheme == scheme)
                return row;
            continue;
        }
        row->key = key;
        row->scheme = scheme;
        atomic_store_explicit(&row->taken, true, memory_order_release);
        return row;
    }
    fr_count_add(&slab->lost, 1);
    return NULL;
}

// Returns the row of a function, path and scheme. Returns NULL when the table is full, which is
// counted.
static inline struct fr_row *row_of(struct fr_slab *slab, uint32_t key, const char *scheme)
{
    struct fr_row **last = &slab->last[FR_ROW_FN(key)], *row = *last;
    if (FR_LIKELY(row && row->key == key && row->scheme == scheme))
        return row;
    return *last = find_row(slab, key, scheme);
}

static void add(struct fr_cell *cell, uint64_t bytes)
{
    fr_count_add(&cell->buffers, 1);
    fr_count_add(&cell->bytes, bytes);
}

__attribute__((always_inline)) static inline struct fr_row *count(struct fr_slab *slab,
                                                                  const struct fr_report_buffer *b)
{
    uint64_t bytes = b->in_bytes + b->out_bytes;
    unsigned size_class = bytes ? 63u - (unsigned)__builtin_clzll(bytes) : 0;
    struct fr_row *row = row_of(slab, FR_ROW_KEY(b->fn, b->path, b->kind), b->scheme);
    if (row) {
        add(&row->data, bytes);
        atomic_store_explicit(&row->reason, b->reason, memory_order_relaxed);
    }
    add(&slab->sizes[b->path][size_class], bytes);
    return row;
}

// Notes a buffer for the current call. A buffer that an earlier call posted says nothing of a call
// that has buffers of its own.
static void note(const struct fr_report_buffer *buffer, struct fr_row *row)
{
    if (buffer->posted && (current.row || buffer->fn == current.fn))
        return;
    current.path = buffer->path;
    current.scheme = buffer->scheme;
    current.row = buffer->fn == current.fn ? row : NULL;
    current.bytes += buffer->in_bytes + buffer->out_bytes;
}

unsigned fr_report_find_label(void)
{
    if (current.open && !current.label)
        current.label = fr_report_label_of(current.fn, current.args);
    return current.open ? current.label : 0;
}

// Counts a buffer's bytes where the current call was made. Progress outside of calls was made
// nowhere.
static void count_site(struct fr_slab *slab, const struct fr_report_buffer *buffer)
{
    bool inside = current.open;
    unsigned label = fr_report_find_label();
    label = label ? label : buffer->label;
    struct fr_site *site =
        fr_report_site(&slab->sites, current.fn, inside ? current.site : 0, label);
    fr_count_add(&site->bytes[buffer->path], buffer->in_bytes + buffer->out_bytes);
    current.first_label = current.first_label ? current.first_label : label;
}

void fr_report_count_buffer(const struct fr_report_buffer *buffer)
{
    struct fr_slab *slab = slab_of_thread();
    if (!slab)
        return;
    note(buffer, count(slab, buffer));
    count_site(slab, buffer);
    if (buffer->args && buffer->in_bytes)
        current.peer = fr_report_count_peers(slab, buffer);
}

void fr_report_touch(enum fr_policy_path path, unsigned label)
{
    if (!fr_report_on || current.path != FR_NO_PATH)
        return;
    current.path = path;
    current.first_label = label;
}

// Returns how many calls to leave out. It is random, lest a pattern of the application goes unseen.
// The generator is xorshift (Marsaglia, 2003).
static uint16_t draw_skip(void)
{
    uint32_t x = random_state ? random_state : 2463534242u;
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    random_state = x;
    return (uint16_t)(x % (2 * SKIP_MEAN - 1));
}

static bool is_timed(struct fr_slab *slab, enum fr_fn fn)
{
    if (FR_UNLIKELY(traced) || slab->skip[fn] == 0)
        return true;
    slab->skip[fn]--;
    return false;
}

void fr_report_begin(enum fr_fn fn, uintptr_t site, const fr_word *args)
{
    struct fr_slab *slab = slab_of_thread();
    if (!slab)
        return;
    bool timed = is_timed(slab, fn);
    if (FR_UNLIKELY(with_nvtx && current.open)) // the application left that call by longjmp
        fr_report_nvtx_pop();
    current = (struct call){.open = true,
                            .timed = timed,
                            .fn = fn,
                            .path = FR_NO_PATH,
                            .site = site,
                            .args = args,
                            .peer = -1};
    if (FR_UNLIKELY(with_nvtx))
        fr_report_nvtx_push(fr_abi_rows[fn].name);
    fr_core_meter.inside = false; // it may be set by a call that was abandoned by longjmp
    fr_core_meter.on = timed;
    if (!timed)
        return;
    memset(fr_core_meter.ticks, 0, sizeof(fr_core_meter.ticks));
    current.begin = fr_core_ticks();
}

static uint64_t find_long_ticks(void)
{
    uint64_t ticks = fr_count_get(&long_ticks);
    if (FR_LIKELY(ticks))
        return ticks;
    ticks = LONG_NS * (uint64_t)1000000 / (fr_report_ns(1000000) + 1);
    atomic_store_explicit(&long_ticks, ticks, memory_order_relaxed);
    return ticks;
}

// Adds the time of the current call to its row, and to its site unless that is NULL.
static void add_time(struct fr_slab *slab, struct fr_row *row, struct fr_site *site, uint64_t ticks)
{
    uint64_t weight = 1u + slab->drawn[current.fn];
    fr_count_add(&row->timed_calls, 1);
    fr_count_add(&row->ticks, weight * ticks);
    for (int kind = 0; kind < FR_METER_COUNT; kind++)
        fr_count_add(&row->metered[kind], weight * fr_core_meter.ticks[kind]);
    if (site) {
        fr_count_add(&site->ticks, weight * ticks);
        for (int kind = 0; kind < FR_METER_COUNT; kind++)
            fr_count_add(&site->metered[kind], weight * fr_core_meter.ticks[kind]);
    }
    bool warm = fr_count_get(&row->timed_calls) > WARM_CALLS;
    slab->drawn[current.fn] = warm && ticks < find_long_ticks() ? draw_skip() : 0;
    slab->skip[current.fn] = slab->drawn[current.fn];
}

void fr_report_count_wait(int rank)
{
    struct fr_slab *slab = own_slab;
    uint64_t ticks = fr_core_meter_waited();
    if (ticks && current.open && traced)
        fr_report_trace_waited(current.begin, rank);
    if (ticks && slab && current.open && rank >= 0)
        fr_report_count_wait_for(slab, rank, (1u + slab->drawn[current.fn]) * ticks);
}

static void tell(uint64_t end)
{
    if (with_nvtx)
        fr_report_nvtx_pop();
    if (!traced)
        return;
    const struct fr_report_event event = {
        .name = fr_abi_rows[current.fn].name,
        .path = current.path == FR_NO_PATH ? NULL : fr_policy_path_name(current.path),
        .scheme = current.scheme,
        .begin = current.begin,
        .end = end,
        .bytes = current.bytes,
        .peer = current.peer,
        .polls = current.path == FR_NO_PATH && fr_abi_is_poll(current.fn),
    };
    fr_report_trace_add(&event);
}

void fr_report_end(void)
{
    struct fr_slab *slab = own_slab;
    if (!slab || !current.open)
        return;
    uint64_t end = current.timed ? fr_core_ticks() : 0;
    struct fr_row *row = current.row;
    if (!row)
        row = row_of(slab, FR_ROW_KEY(current.fn, current.path, FR_KIND_HOST), current.scheme);
    struct fr_site *site = NULL;
    if (current.path != FR_NO_PATH)
        site = fr_report_site(&slab->sites, current.fn, current.site, current.first_label);
    fr_core_meter.on = false;
    current.open = false;
    if (site)
        fr_count_add(&site->calls, 1);
    if (row) {
        fr_count_add(&row->calls, 1);
        if (current.timed)
            add_time(slab, row, site, end > current.begin ? end - current.begin : 0);
    }
    if (FR_UNLIKELY(traced || with_nvtx))
        tell(end);
}
