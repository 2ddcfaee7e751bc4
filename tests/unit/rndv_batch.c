// SPDX-License-Identifier: BSD-3-Clause
// Many messages that are received together: the driver calls that this takes, and what becomes of
// the others where one cannot be received. Rank 0 sends windows of messages from a few allocations.
// Rank 1 receives each into an allocation of its own. A pair of sockets is their MPI.
#include "config.h"

#include "../sim/calls.h"
#include "bytes_layout.h"
#include "fabrail/device/aperture.h"
#include "fabrail/device/classify.h"
#include "fabrail/rndv/progress.h"
#include "fabrail/rndv/receive.h"
#include "ipc/ipc_int.h"
#include "ipc_pair.h"
#include "rndv_host.h"

#include <sched.h>

enum { MOST = 64, SOURCES = 3, SLOT_BYTES = 70000, GUARDS = 64, WARM = 200 };
_Static_assert((int)MOST == (int)FR_RNDV_AT_ONCE, "a window is one batch");

struct letter {
    unsigned char rts[RTS_BYTES];
};

// Rank 1's answer for a window: which messages have come, and whether all did by scheme get.
struct answer {
    uint64_t came;
    bool all_got;
};
static struct driver_memory sources[SOURCES], targets[MOST], host_target;
static frsim_calls_fn *calls;
static unsigned long most_launches; // 1, or 0 where the library was built without kernels
static frsim_fail_fn *fail;
static uint64_t seed;

// Sizes differ, and none but the first are aligned.
static size_t bytes_of(unsigned message)
{
    return message == 0 ? SLOT_BYTES : 41 + (size_t)message * 997;
}

static uint64_t seed_of(unsigned message)
{
    return seed * MOST + message;
}

// Hears from the other process, and makes progress for it until then.
static void hear(void *data, size_t bytes)
{
    char byte;
    int other = 1 - process_rank;
    struct fr_device_range range;
    CHECK(fr_device_query(process_rank == 0 ? sources[0].address : targets[0].address, &range) ==
          FR_OK);
    while (recv(process_socket(other), &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN) {
        fr_rndv_progress(&range);
        sched_yield();
    }
    process_hear(other, data, bytes);
}

static struct fr_staging_view view_of(uintptr_t address, struct fr_staging_view_block *block)
{
    struct fr_staging_view view = {.base = address, .blocks = block, .block_count = 1};
    fr_staging_view_measure(&view);
    return view;
}

// ---- the sender

static struct fr_rndv_send *start(unsigned i)
{
    struct fr_staging_view_block block = {
        .count = bytes_of(i), .layout = &bytes_layout, .in = true};
    const struct driver_memory *memory = &sources[i % SOURCES];
    size_t at = (size_t)(i / SOURCES) * SLOT_BYTES;
    pair_fill(memory, at, bytes_of(i), seed_of(i));
    struct fr_staging_view view = view_of((uintptr_t)memory->address + at, &block);
    const struct fr_rndv_message message = {
        .call = "MPI_Isend", .address = {.to = 1, .tag = (int)i}, .view = &view, .parts = true};
    struct fr_policy_scheme_choice choice;
    struct fr_rndv_send *send = NULL;
    while (send == NULL && check_failures == 0) { // the receiver may have to map a workspace first
        CHECK(fr_rndv_send_start(&message, &send, &choice) == FR_OK);
        fr_rndv_progress(NULL);
        sched_yield();
    }
    if (send == NULL)
        _exit(CHECK_FAIL);
    return send;
}

static bool lets_go; // the receiver lets go of a window while devices copy it

// Has every other message that the receiver has let go of leave its buffer, whose memory the
// program then writes.
static void leave_buffers(struct fr_rndv_send *const *sends, unsigned count)
{
    uint64_t let_go;
    hear(&let_go, sizeof(let_go));
    for (unsigned i = 0; i < count; i += 2) {
        CHECK(fr_rndv_send_leave(sends[i]) == (let_go >> i & 1), "message %u", i);
        if (let_go >> i & 1)
            pair_fill(&sources[i % SOURCES], (size_t)(i / SOURCES) * SLOT_BYTES, bytes_of(i),
                      ~seed_of(i));
    }
    process_say(1, &let_go, sizeof(let_go));
}

// Sends a window. A send is asked for its end only when the receiver has all, so that none leaves
// its buffer. Returns whether all came by scheme get.
static bool send_window(unsigned count)
{
    struct fr_rndv_send *sends[MOST];
    struct answer answer;
    for (unsigned i = 0; i < count; i++) {
        struct letter letter;
        sends[i] = start(i);
        size_t length;
        memcpy(letter.rts, fr_rndv_send_rts(sends[i], &length), sizeof(letter.rts));
        CHECK(length <= FR_RNDV_RTS_PRIME, "%zu bytes for a receiver without threads", length);
        process_say(1, &letter, sizeof(letter));
        fr_rndv_send_sent(sends[i], true);
        CHECK(fr_rndv_send_push(sends[i]) == FR_OK);
    }
    if (lets_go)
        leave_buffers(sends, count);
    hear(&answer, sizeof(answer));
    for (unsigned i = 0; i < count; i++) {
        bool came = answer.came >> i & 1;
        CHECK(fr_rndv_ledger_state(sends[i]->index) == (came ? FR_RNDV_PULLED : FR_RNDV_FAILED),
              "message %u", i);
        while (!host_send_is_over(sends[i]))
            sched_yield();
        fr_rndv_send_free(sends[i], false);
    }
    fr_rndv_progress(NULL);
    return answer.all_got;
}

// ---- the receiver

struct window {
    struct fr_staging_view views[MOST];
    struct fr_staging_view_block blocks[MOST];
    struct fr_rndv_incoming incoming[MOST];
    struct fr_rndv_recv recvs[MOST];
};

static void take(struct window *window, unsigned i, const struct driver_memory *target)
{
    struct letter letter;
    hear(&letter, sizeof(letter));
    CHECK(fr_rndv_incoming_read(letter.rts, &window->incoming[i]), "message %u", i);
    window->blocks[i] =
        (struct fr_staging_view_block){.count = bytes_of(i), .layout = &bytes_layout, .out = true};
    window->views[i] = view_of((uintptr_t)target->address + GUARDS, &window->blocks[i]);
    window->recvs[i] =
        (struct fr_rndv_recv){.view = &window->views[i], .incoming = &window->incoming[i]};
}

static void check_target(const struct driver_memory *target, unsigned i)
{
    static unsigned char data[SLOT_BYTES + 2 * GUARDS];
    size_t bytes = bytes_of(i);
    struct driver_memory part = *target;
    driver_read(data, &part, bytes + 2 * GUARDS);
    size_t at = check_first_difference(data + GUARDS, bytes, seed_of(i));
    CHECK(at == bytes, "message %u, byte %zu of %zu", i, at, bytes);
    for (size_t g = 0; g < GUARDS; g++)
        CHECK(data[g] == 0x5a && data[GUARDS + bytes + g] == 0x5a, "message %u, guard %zu", i, g);
}

static void blank(const struct driver_memory *target)
{
    static unsigned char data[SLOT_BYTES + 2 * GUARDS];
    memset(data, 0x5a, sizeof(data));
    driver_write(target, data, sizeof(data));
}

static const struct driver_memory *target_of(unsigned i, unsigned on_host)
{
    return i == on_host ? &host_target : &targets[i];
}

enum { NONE = MOST, ANY };

static unsigned long launches_so_far(void)
{
    return calls("cuLaunchKernel") + calls("cuGraphLaunch");
}

static bool waits = true; // in place of beginning to receive, and looking again and again
static bool was_at_once;  // such receives were over at the first look

static void let_go_of(struct fr_rndv_recv *recvs, unsigned count)
{
    uint64_t let_go = 0;
    for (unsigned i = 0; i < count; i++)
        let_go |= (uint64_t)fr_rndv_receive_let_go(&recvs[i]) << i;
    CHECK(was_at_once ? let_go == 0 : let_go != 0);
    process_say(0, &let_go, sizeof(let_go));
    hear(&let_go, sizeof(let_go));
}

static void receive(struct fr_rndv_recv *recvs, unsigned count)
{
    if (waits) {
        fr_rndv_receive(recvs, count);
        return;
    }
    for (unsigned i = 0; i < count; i++) { // those of one memory share its mapping
        recvs[i].before = i >= SOURCES ? &recvs[i - SOURCES] : NULL;
        fr_rndv_receive_begin(&recvs[i]);
    }
    was_at_once = fr_rndv_receive_poll(recvs, count);
    if (lets_go)
        let_go_of(recvs, count);
    if (count > 2)
        (void)fr_rndv_receive_land(recvs + 1, count - 2);
    for (unsigned i = count; i-- > 0;) { // the last first
        while (!fr_rndv_receive_poll(&recvs[i], 1))
            fr_rndv_progress(NULL);
    }
}

// Receives a window, in which `on_host` goes to host memory. `prepare` is called just before, for
// what shall fail. Message `lost` is to fail, no other; with ANY any of them may. Returns how often
// the driver was called, and writes how many of these were launches.
static unsigned long receive_window(unsigned count, unsigned on_host, void (*prepare)(void),
                                    unsigned lost, unsigned long *launches)
{
    static struct window window;
    struct answer answer = {.all_got = true};
    for (unsigned i = 0; i < count; i++)
        blank(target_of(i, on_host));
    for (unsigned i = 0; i < count; i++)
        take(&window, i, target_of(i, on_host));
    fr_device_begin_call();
    if (prepare != NULL)
        prepare();
    unsigned long before = calls(NULL), launched = launches_so_far();
    receive(window.recvs, count);
    *launches = launches_so_far() - launched;
    unsigned long used = calls(NULL) - before;
    for (unsigned i = 0; i < count; i++) {
        const struct fr_rndv_recv *recv = &window.recvs[i];
        CHECK(lost == ANY || (recv->status == FR_OK) == (i != lost), "message %u: %s", i,
              fr_core_status_text(recv->status));
        if (recv->status == FR_OK)
            check_target(target_of(i, on_host), i);
        answer.came |= (uint64_t)(recv->status == FR_OK) << i;
        answer.all_got = answer.all_got && recv->incoming->location.scheme == FR_SCHEME_GET;
    }
    process_say(0, &answer, sizeof(answer));
    return used;
}

// ---- cases

static void open_both(void)
{
    CUcontext context;
    if (!driver_load() || !driver_start(&context))
        exit(CHECK_SKIP);
    *(void **)&calls = driver_symbol("frsim_calls");
    *(void **)&fail = driver_symbol("frsim_fail");
    if (calls == NULL || fail == NULL)
        pair_skip("wants the simulated driver");
    (void)fr_ipc_self();
    job_introduce();
    const struct fr_job_control_job job = {.rank = process_rank,
                                           .size = process_count,
                                           .secret = job_secret,
                                           .processes = job_processes};
    CHECK(rndv_host_open(&job));
    const size_t source_bytes = (size_t)SLOT_BYTES * (MOST / SOURCES + 1);
    const size_t target_bytes = SLOT_BYTES + 2 * GUARDS;
    for (unsigned i = 0; i < SOURCES && process_rank == 0; i++)
        CHECK(driver_allocate(i == 0 ? FR_KIND_VMM_FD : FR_KIND_MALLOC, 0, source_bytes,
                              &sources[i]));
    for (unsigned i = 0; i < MOST && process_rank == 1; i++)
        CHECK(driver_allocate(FR_KIND_MALLOC, 0, target_bytes, &targets[i]));
    CHECK(driver_allocate(FR_KIND_HOST, 0, target_bytes, &host_target));
    struct fr_device_range range;
    CHECK(fr_device_query(process_rank == 0 ? sources[0].address : targets[0].address, &range) ==
          FR_OK);
    most_launches = fr_device_has_kernels(&range, FR_IMAGE_PUSH);
    process_meet();
}

static void close_both(void)
{
    driver_free(&host_target);
    for (unsigned i = 0; i < MOST && process_rank == 1; i++)
        driver_free(&targets[i]);
    host_close_all();
    for (unsigned i = 0; i < SOURCES && process_rank == 0; i++)
        driver_free(&sources[i]);
    pair_end();
}

// One window, on either side. Both know whether all came by scheme get.
static bool exchange(unsigned count, unsigned on_host, void (*prepare)(void), unsigned lost,
                     unsigned long *used, unsigned long *launches)
{
    bool got = false;
    seed++;
    if (process_rank == 0) {
        got = send_window(count);
        process_say(1, &got, sizeof(got));
    } else {
        *used = receive_window(count, on_host, prepare, lost, launches);
        hear(&got, sizeof(got));
        fr_rndv_progress(NULL);
    }
    if (check_failures != 0)
        _exit(CHECK_FAIL); // nobody waits for it
    return got;
}

// Sends windows until the receiver has mapped all that they come from.
static void warm_up(void)
{
    unsigned long used, launches;
    for (unsigned i = 0; i < WARM; i++) {
        if (exchange(MOST, NONE, NULL, NONE, &used, &launches))
            return;
    }
    CHECK(false, "the memory is not mapped");
}

static void run_counts(void)
{
    const unsigned counts[] = {2, 3, 8, 9, MOST - 1, MOST};
    unsigned long used = 0, first = 0, launches = 0;
    open_both();
    warm_up();
    for (size_t i = 0; i < FR_ARRAY_LENGTH(counts); i++) {
        CHECK(exchange(counts[i], NONE, NULL, NONE, &used, &launches));
        first = i == 0 ? used : first;
        unsigned extra = SOURCES - (counts[i] < SOURCES ? counts[i] : SOURCES);
        bool few = most_launches == 0 || used <= first + SOURCES - extra;
        CHECK(process_rank == 0 || (launches == most_launches && few),
              "%u messages: %lu launches, %lu calls, %lu for 2", counts[i], launches, used, first);
    }
    CHECK(exchange(1, NONE, NULL, NONE, &used, &launches));
    close_both();
}

// One message of a window into host memory, which copy engines do.
static void run_mixed(void)
{
    unsigned long used = 0, launches = 0;
    open_both();
    warm_up();
    CHECK(exchange(MOST, 5, NULL, NONE, &used, &launches));
    CHECK(process_rank == 0 || launches == most_launches, "%lu launches", launches);
    CHECK(exchange(3, 0, NULL, NONE, &used, &launches));
    CHECK(process_rank == 0 || launches == most_launches, "%lu launches", launches);
    close_both();
}

static void fail_launch(void)
{
    fail("cuLaunchKernel", 1, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
}

// The one launch of a window fails. The messages are then received one by one.
static void run_launch_fails(void)
{
    unsigned long used = 0, launches = 0;
    open_both();
    warm_up();
    CHECK(exchange(MOST, NONE, fail_launch, NONE, &used, &launches));
    CHECK(exchange(MOST, NONE, NULL, NONE, &used, &launches));
    CHECK(process_rank == 0 || launches == most_launches, "%lu launches", launches);
    close_both();
}

// Receives that are begun go together as well, and each ends by itself.
static void run_begun(void)
{
    unsigned long used = 0, launches = 0;
    open_both();
    warm_up();
    waits = false;
    CHECK(exchange(MOST, NONE, NULL, NONE, &used, &launches));
    CHECK(process_rank == 0 || launches == most_launches, "%lu launches", launches);
    CHECK(!was_at_once);
    CHECK(exchange(MOST, 5, NULL, NONE, &used, &launches));
    CHECK(process_rank == 0 || launches == most_launches, "%lu launches", launches);
    CHECK(exchange(MOST, NONE, fail_launch, NONE, &used, &launches));
    close_both();
}

// A receiver lets go of what its device copies. What its sender then takes out of the buffer comes
// from elsewhere, and the program may write the buffer meanwhile.
static void run_let_go(void)
{
    unsigned long used = 0, launches = 0;
    open_both();
    warm_up();
    waits = false;
    lets_go = true;
    CHECK(!exchange(MOST, NONE, NULL, NONE, &used, &launches), "none has left its buffer");
    CHECK(process_rank == 0 || launches > most_launches, "%lu launches", launches);
    CHECK(!exchange(3, NONE, NULL, NONE, &used, &launches));
    lets_go = false;
    CHECK(exchange(MOST, NONE, NULL, NONE, &used, &launches));
    close_both();
}

static const char *failing_graph_call;
static void fail_graph(void)
{
    fail(failing_graph_call, 1, CUDA_ERROR_UNKNOWN);
}

// Windows go by graph after some time. Where a call for that fails, the kernel is launched plainly,
// and from then on always.
static void run_graphs(void)
{
    enum { MANY = 40 };
    unsigned long used = 0, launches = 0;
    open_both();
    warm_up();
    for (unsigned way = 0; way < 2; way++) {
        unsigned count = way == 0 ? MOST : 5; // each has a kernel of its own
        for (unsigned i = 0; i < MANY; i++)
            CHECK(exchange(count - i % 3, NONE, NULL, NONE, &used, &launches));
        unsigned long plain = calls("cuLaunchKernel"), by_graph = calls("cuGraphLaunch");
        CHECK(exchange(count, NONE, NULL, NONE, &used, &launches));
        CHECK(process_rank == 0 || (calls("cuLaunchKernel") == plain &&
                                    calls("cuGraphLaunch") == by_graph + most_launches));
        failing_graph_call = way == 0 ? "cuGraphLaunch" : "cuGraphExecKernelNodeSetParams_v2";
        CHECK(exchange(count, NONE, fail_graph, NONE, &used, &launches));
        CHECK(process_rank == 0 || calls("cuLaunchKernel") == plain + most_launches);
        CHECK(exchange(count, NONE, NULL, NONE, &used, &launches));
        CHECK(process_rank == 0 || calls("cuLaunchKernel") == plain + 2 * most_launches);
    }
    close_both();
}

static unsigned failing_call;
static const char *const failing_names[] = {"cuStreamQuery", "cuCtxGetCurrent", "cuMemcpyAsync",
                                            "cuStreamSynchronize", "cuPointerGetAttributes"};
enum { FAILING_NAMES = FR_ARRAY_LENGTH(failing_names) };

static void fail_some(void)
{
    fail(failing_names[failing_call % FAILING_NAMES], 1 + failing_call / FAILING_NAMES,
         CUDA_ERROR_UNKNOWN);
}

// Any call of a window fails once. The loss is reported, and later windows come whole.
static void run_any_fails(void)
{
    unsigned long used = 0, launches = 0;
    open_both();
    warm_up();
    for (failing_call = 0; failing_call < 2 * FAILING_NAMES; failing_call++) {
        (void)exchange(9, NONE, fail_some, ANY, &used, &launches);
        fail(failing_names[failing_call % FAILING_NAMES], 0, CUDA_SUCCESS); // no more
        warm_up();
    }
    close_both();
}

static void run_any_begun(void)
{
    waits = false;
    run_any_fails();
}

static void fail_wait(void)
{
    fail("cuStreamSynchronize", 1, CUDA_ERROR_UNKNOWN);
}

// The application's work on one target cannot be waited for. That message is lost, and no other.
static void run_one_fails(void)
{
    enum { LOST = 4 };
    unsigned long used = 0, launches = 0;
    open_both();
    warm_up();
    if (process_rank == 1) { // new memory has to be waited for
        size_t bytes = targets[LOST].bytes;
        driver_free(&targets[LOST]);
        CHECK(driver_allocate(FR_KIND_MALLOC, 0, bytes, &targets[LOST]));
    }
    CHECK(exchange(MOST, NONE, fail_wait, LOST, &used, &launches));
    CHECK(process_rank == 0 || launches == most_launches, "%lu launches", launches);
    CHECK(exchange(MOST, NONE, NULL, NONE, &used, &launches));
    close_both();
}

// ---- what is kept from one message to the next

enum { SHORT = 2000, LONG = 2 * SHORT + 1000, KEPT_MOST = 16 }; // looks at a receiver's device

static bool reads; // the CPU reads device memory itself
bool __wrap_fr_device_aperture_may_read(const struct fr_device_range *range, uintptr_t address,
                                        size_t bytes);

bool __wrap_fr_device_aperture_may_read(const struct fr_device_range *range, uintptr_t address,
                                        size_t bytes)
{
    (void)range;
    (void)address;
    return reads && bytes <= SHORT;
}

// Returns the scheme of a message from the first source, which is not sent then.
static enum fr_policy_scheme chosen(int to, size_t bytes)
{
    struct fr_staging_view_block block = {.count = bytes, .layout = &bytes_layout, .in = true};
    struct fr_staging_view view = view_of((uintptr_t)sources[0].address, &block);
    const struct fr_rndv_message message = {
        .call = "MPI_Isend", .address = {.to = to}, .view = &view, .parts = true};
    struct fr_policy_scheme_choice choice;
    struct fr_rndv_send *send = NULL;
    CHECK(fr_rndv_send_start(&message, &send, &choice) == FR_OK);
    if (send != NULL)
        fr_rndv_send_sent(send, false);
    fr_rndv_send_free(send, false);
    return choice.scheme;
}

static bool is_got(int to, size_t bytes)
{
    return chosen(to, bytes) == FR_SCHEME_GET;
}

// The choice depends on the length of the message, on how many are under way, and on whether the
// CPU reads it.
static void check_kept_facts(void)
{
    static struct host_message crowd[FR_RNDV_FIRST_SLOTS];
    CHECK(is_got(1, SHORT) && is_got(1, LONG) && is_got(1, SHORT));
    for (int i = 0; i < FR_RNDV_FIRST_SLOTS; i++)
        crowd[i] = host_advertise(1, 100 + i, 1, 1);
    CHECK(!is_got(1, SHORT) && is_got(1, LONG) && !is_got(1, SHORT));
    for (int i = 0; i < FR_RNDV_FIRST_SLOTS; i++)
        host_free(&crowd[i]);
    CHECK(is_got(1, SHORT));
    atomic_store(&fr_device_aperture_most_read, LONG);
    CHECK(is_got(1, SHORT));
    reads = true;
    CHECK(!is_got(1, SHORT) && is_got(1, LONG));
    reads = false;
    CHECK(is_got(1, SHORT));
}

static void use_device(uint64_t name)
{
    atomic_store(&fr_rndv_ledger_own()->device, name);
    atomic_store(&fr_rndv_ledger_of(1)->device, name);
}

// The receiver begins to use the sender's device, for which processes take turns, and ends that.
static void check_kept_turns(void)
{
    use_device(5);
    int count = 0;
    while (is_got(1, SHORT) && count < 2 * KEPT_MOST)
        count++;
    CHECK(count <= KEPT_MOST, "%d", count);
    use_device(0);
    for (count = 0; !is_got(1, SHORT) && count < 2 * KEPT_MOST;)
        count++;
    CHECK(count <= KEPT_MOST, "%d", count);
}

// Another receiver has not mapped the memory, nor has this one once it says so, nor has anybody
// mapped other memory at the same address.
static void check_kept_mapping(void)
{
    struct fr_device_range range;
    CHECK(fr_device_query(sources[0].address, &range) == FR_OK);
    CHECK(is_got(1, SHORT) && !is_got(2, SHORT) && is_got(1, SHORT));
    fr_ipc_importers_heard(1, range.buffer_id, false);
    CHECK(!is_got(1, SHORT));
    fr_ipc_importers_heard(1, range.buffer_id, true);
    CHECK(is_got(1, SHORT));
    size_t bytes = sources[0].bytes;
    const void *before = sources[0].address;
    driver_free(&sources[0]);
    CHECK(driver_allocate(FR_KIND_VMM_FD, 0, bytes, &sources[0]));
    CHECK(sources[0].address != before || !is_got(1, SHORT));
    CHECK(sources[0].address == before, "not tried");
}

// A message that is like the one before it asks less, as long as nothing has changed.
static void run_kept(void)
{
    open_both();
    if (process_rank < 2)
        warm_up();
    process_meet();
    if (process_rank == 0) {
        check_kept_facts();
        check_kept_turns();
        check_kept_mapping();
    }
    close_both();
}

int main(int count, char **arguments)
{
    static const struct process_case cases[] = {
        {.name = "counts", .count = 2, .run = run_counts, .common = {"FABRAIL_TUNING="}},
        {.name = "mixed", .count = 2, .run = run_mixed, .common = {"FABRAIL_TUNING="}},
        {.name = "launch", .count = 2, .run = run_launch_fails, .common = {"FABRAIL_TUNING="}},
        {.name = "graphs", .count = 2, .run = run_graphs, .common = {"FABRAIL_TUNING="}},
        {.name = "any", .count = 2, .run = run_any_fails, .common = {"FABRAIL_TUNING="}},
        {.name = "begun", .count = 2, .run = run_begun, .common = {"FABRAIL_TUNING="}},
        {.name = "let-go", .count = 2, .run = run_let_go, .common = {"FABRAIL_TUNING="}},
        {.name = "any-begun", .count = 2, .run = run_any_begun, .common = {"FABRAIL_TUNING="}},
        {.name = "one", .count = 2, .run = run_one_fails, .common = {"FABRAIL_TUNING="}},
        {.name = "kept", .count = 3, .run = run_kept, .common = {"FABRAIL_TUNING="}},
        {.name = NULL},
    };
    return process_main(cases, count, arguments);
}
