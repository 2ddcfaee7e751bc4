// SPDX-License-Identifier: BSD-3-Clause
// The trace: the last operations of each thread with their times, in a ring. It is written at the
// end, in the format of Chrome's trace viewer, which Perfetto reads too.
#include "config.h"

#include "report/out.h"
#include "report/report_int.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    SHORT_NS = 1000,
    GAP_NS = 100000,
    RING_EVENTS = 1 << 15,
    OUT_BYTES = 1 << 16
}; // 2 MiB a thread

struct ring {
    struct ring *next;
    int thread;
    _Atomic uint64_t used; // number of events so far
    struct fr_report_event events[RING_EVENTS];
};

static const char in_mpi[] = "MPI library", waiting[] = "waiting";
static bool tracing;
static struct ring *_Atomic rings;
static FR_TLS struct ring *own;

static struct ring *make_ring(void)
{
    struct ring *ring =
        mmap(NULL, sizeof(*ring), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (ring == MAP_FAILED)
        return NULL;
    ring->thread = (int)syscall(SYS_gettid);
    ring->next = rings;
    while (!atomic_compare_exchange_weak(&rings, &ring->next, ring)) {
    }
    own = ring;
    return ring;
}

static uint64_t ticks_of(uint64_t ns)
{
    return ns * (uint64_t)1000000 / (fr_report_ns(1000000) + 1);
}

// Returns whether two events belong to one loop that polls and does nothing else for long. Such a
// loop is one event, and may call several functions.
static bool is_continued(const struct fr_report_event *last, const struct fr_report_event *next)
{
    return next->polls && last->polls && next->begin < last->end + ticks_of(GAP_NS);
}

void fr_report_trace_add(const struct fr_report_event *event)
{
    struct ring *ring = own ? own : make_ring();
    if (!ring)
        return;
    uint64_t used = atomic_load_explicit(&ring->used, memory_order_relaxed);
    struct fr_report_event *last = &ring->events[(used - 1) % RING_EVENTS];
    if (used && is_continued(last, event)) {
        last->name = last->name == event->name ? last->name : "polling";
        last->end = event->end;
        last->polls++;
        return;
    }
    ring->events[used % RING_EVENTS] = *event;
    atomic_store_explicit(&ring->used, used + 1, memory_order_release);
}

void fr_report_trace_waited(uint64_t begin, int rank)
{
    uint64_t used = own ? atomic_load_explicit(&own->used, memory_order_relaxed) : 0;
    for (uint64_t i = used; i > 0 && used - i < RING_EVENTS - 1; i--) {
        struct fr_report_event *event = &own->events[(i - 1) % RING_EVENTS];
        if (event->begin < begin)
            return;
        if (event->name == in_mpi) {
            event->name = waiting;
            event->peer = rank;
        }
    }
}

void fr_report_trace_message(bool leaves, int sender, uint64_t number)
{
    if (!tracing)
        return;
    uint64_t now = fr_core_ticks();
    fr_report_trace_add(&(struct fr_report_event){
        .name = "message",
        .begin = now,
        .end = now,
        .bytes = number,
        .peer = sender,
        .arrow = leaves ? FR_REPORT_ARROW_BEGINS : FR_REPORT_ARROW_ENDS,
    });
}

// Adds a span of the meter, which lies within the operation that follows it. Short spans would push
// everything else out of the ring.
static void add_span(enum fr_meter_kind kind, uint64_t begin, uint64_t end)
{
    static const char *const names[FR_METER_COUNT] = {
        [FR_METER_MPI] = in_mpi, [FR_METER_COPY] = "copy", [FR_METER_WAIT] = waiting};
    static fr_count short_ticks;
    uint64_t least = fr_count_get(&short_ticks);
    if (FR_UNLIKELY(!least)) {
        least = ticks_of(SHORT_NS);
        atomic_store_explicit(&short_ticks, least, memory_order_relaxed);
    }
    if (end < begin + least)
        return;
    fr_report_trace_add(&(struct fr_report_event){
        .name = names[kind],
        .begin = begin,
        .end = end,
        .peer = -1,
    });
}

bool fr_report_trace_start(void)
{
    tracing = fr_report_trace_target[0];
    if (tracing)
        fr_core_meter_hook = add_span;
    return tracing;
}

// Writes an end of an arrow. Viewers draw it to or from the slice that it lies in. Its number is
// one that a double holds.
static void write_arrow(struct fr_report_out *out, const struct ring *ring,
                        const struct fr_report_event *event)
{
    const uint64_t most = (uint64_t)1 << 36; // messages of a rank, in the steps that they have
    fr_report_put(out,
                  ",\n{\"ph\": %q, %s\"name\": \"message\", \"cat\": \"message\", \"id\": %u, "
                  "\"pid\": %i, \"tid\": %i, \"ts\": %t}",
                  event->arrow == FR_REPORT_ARROW_BEGINS ? "s" : "f",
                  event->arrow == FR_REPORT_ARROW_BEGINS ? "" : "\"bp\": \"e\", ",
                  (uint64_t)event->peer * most + event->bytes % most, fr_report_rank(),
                  ring->thread, fr_report_ns(event->begin - fr_report_start_ticks()));
}

static void write_event(struct fr_report_out *out, const struct ring *ring,
                        const struct fr_report_event *event)
{
    uint64_t start = fr_report_start_ticks();
    if (event->begin < start || event->end < event->begin) // torn, or not yet complete
        return;
    if (event->arrow != FR_REPORT_NO_ARROW) {
        write_arrow(out, ring, event);
        return;
    }
    fr_report_put(out,
                  ",\n{\"ph\": \"X\", \"name\": %q, \"cat\": %q, \"pid\": %i, \"tid\": %i, "
                  "\"ts\": %t, \"dur\": %t",
                  event->name, event->path ? event->path : "part", fr_report_rank(), ring->thread,
                  fr_report_ns(event->begin - start), fr_report_ns(event->end - event->begin));
    if (event->path) {
        fr_report_put(out, ", \"args\": {\"path\": %q, \"bytes\": %u", event->path, event->bytes);
        if (event->scheme)
            fr_report_put(out, ", \"scheme\": %q", event->scheme);
        if (event->peer >= 0)
            fr_report_put(out, ", \"peer\": %i", event->peer);
        fr_report_put(out, "}");
    }
    if (event->name == waiting && event->peer >= 0)
        fr_report_put(out, ", \"args\": {\"rank\": %i}", event->peer);
    if (event->polls > 1)
        fr_report_put(out, ", \"args\": {\"calls\": %u}", (uint64_t)event->polls);
    fr_report_put(out, "}");
}

static uint64_t write_ring(struct fr_report_out *out, const struct ring *ring)
{
    uint64_t used = atomic_load_explicit(&ring->used, memory_order_acquire);
    uint64_t first = used > RING_EVENTS ? used - RING_EVENTS : 0;
    fr_report_put(out,
                  ",\n{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": %i, \"tid\": %i, "
                  "\"args\": {\"name\": \"thread %i\"}}",
                  fr_report_rank(), ring->thread, ring->thread);
    for (uint64_t i = first; i < used; i++)
        write_event(out, ring, &ring->events[i % RING_EVENTS]);
    return first;
}

static void write_trace(struct fr_report_out *out)
{
    uint64_t lost = 0;
    fr_report_put(out,
                  "{\"traceEvents\": [\n{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": %i, "
                  "\"tid\": 0, \"args\": {\"name\": \"rank %i\"}},\n{\"ph\": \"M\", \"name\": "
                  "\"process_sort_index\", \"pid\": %i, \"tid\": 0, \"args\": {\"sort_index\": "
                  "%i}},\n{\"ph\": \"M\", \"name\": \"process_labels\", \"pid\": %i, \"tid\": 0, "
                  "\"args\": {\"labels\": %q}}",
                  fr_report_rank(), fr_report_rank(), fr_report_rank(), fr_report_rank(),
                  fr_report_rank(), fr_report_host());
    for (const struct ring *ring = rings; ring; ring = ring->next)
        lost += write_ring(out, ring);
    fr_report_put(out,
                  "\n],\n\"displayTimeUnit\": \"ns\",\n\"otherData\": {\"format\": "
                  "\"fabrail-trace\", \"version\": %i, \"fabrail\": %q, \"job\": %q, \"rank\": %i, "
                  "\"size\": %i, \"host\": %q, \"started_unix_ns\": %u, \"lost_events\": %u}}\n",
                  FR_REPORT_VERSION, PACKAGE_VERSION, fr_report_job_name(), fr_report_rank(),
                  fr_report_size(), fr_report_host(), fr_report_started_unix_ns(), lost);
}

void fr_report_trace_write(void)
{
    static char buffer[OUT_BYTES], name[PATH_MAX];
    struct fr_report_out out;
    if (!tracing)
        return;
    if (!fr_report_expand(fr_report_trace_target, fr_report_rank(), name, sizeof(name)) ||
        !fr_report_out_open(&out, name, buffer, sizeof(buffer))) {
        fr_report_complain("FABRAIL_TRACE", name, "cannot be written");
        return;
    }
    write_trace(&out);
    if (!fr_report_out_close(&out, name))
        fr_report_complain("FABRAIL_TRACE", name, "was not written completely");
}
