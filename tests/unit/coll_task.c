// SPDX-License-Identifier: BSD-3-Clause
// Collectives as tasks: one thread plays both ranks of several groups, in shared and in device
// memory, and goes on with the tasks of all of them in turn, in many orders. So nothing may wait
// for another rank. Tasks that end badly leave their group as it was, and those of other groups
// alone. Tasks in queues go on by the thread of the queues, and by any others.
#include "config.h"

#include "coll/mapset.h"
#include "fabrail/coll/alltoall.h"
#include "fabrail/coll/bcast.h"
#include "fabrail/coll/clone.h"
#include "fabrail/coll/host_reduce.h"
#include "fabrail/coll/queue.h"
#include "fabrail/coll/reduction.h"
#include "fabrail/coll/shm_slots.h"
#include "fabrail/job/control.h"

#include "ipc_pair.h"

#include <pthread.h>
#include <time.h>

enum { RANKS = 2, BYTES = 6000, PART = BYTES / RANKS };

// The MPI messages of groups in device memory. The linker has the library's calls come here.
static unsigned given_up;

extern bool __wrap_fr_coll_team_message_has_notice(const struct fr_coll_meeting *meeting);
extern void __wrap_fr_coll_team_message_notify(const struct fr_coll_meeting *meeting);
bool __wrap_fr_coll_team_message_has_notice(const struct fr_coll_meeting *meeting)
{
    (void)meeting;
    return false;
}
void __wrap_fr_coll_team_message_notify(const struct fr_coll_meeting *meeting)
{
    given_up += meeting->call == FR_COLL_MEET_END;
}

// Read by the thread sanitizer. Each rank maps a segment for itself, so the sanitizer does not see
// that the segment's words order posts, where threads of one process play several ranks.
__attribute__((visibility("default"))) extern const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
    return "race:fr_coll_segment_post\n"
           "race:fr_coll_agree_decide\n"
           "race:fr_coll_agree_compare\n";
}

// Two ranks, with memory to send from and to receive into.
struct pair {
    struct fr_coll_team teams[RANKS];
    struct fr_job_process processes[RANKS];
    struct driver_memory from[RANKS], to[RANKS];
};

static bool in_slabs;

static void open_segments(struct pair *pair)
{
    struct fr_job_secret secret;
    CHECK(fr_job_secret_draw(&secret) == FR_OK);
    for (int rank = 0; rank < RANKS; rank++)
        CHECK(fr_coll_segment_open(&secret, rank, RANKS, fr_coll_team_segment_bytes(RANKS),
                                   &pair->teams[rank].segment) == FR_OK);
    for (int rank = 0; rank < RANKS; rank++)
        CHECK(fr_coll_segment_seal(pair->teams[rank].segment));
}

static void open_slabs(struct pair *pair)
{
    struct fr_ipc_handle handles[RANKS];
    for (int rank = 0; rank < RANKS; rank++) {
        enum fr_status status = fr_coll_slab_make(0, rank, RANKS, fr_coll_team_post_bytes(RANKS),
                                                  &pair->teams[rank].slab, &handles[rank]);
        if (status == FR_ERR_UNSUPPORTED)
            pair_skip("no fabric memory");
        CHECK(status == FR_OK, "%s", fr_core_status_text(status));
    }
    for (int rank = 0; rank < RANKS; rank++)
        CHECK(fr_coll_slab_map(pair->teams[rank].slab, handles) == FR_OK);
}

// Allocates fabric memory, or what reaches as far as the ranks of one host where there is none.
static void allocate(struct driver_memory *memory)
{
    CHECK(driver_allocate(FR_KIND_VMM_FABRIC, 0, BYTES, memory) ||
          driver_allocate(FR_KIND_VMM_FD, 0, BYTES, memory));
}

static void open_pair(struct pair *pair)
{
    memset(pair, 0, sizeof(*pair));
    for (int rank = 0; rank < RANKS; rank++) {
        pair->processes[rank] = *fr_ipc_self();
        pair->teams[rank] =
            (struct fr_coll_team){.rank = rank, .size = RANKS, .processes = pair->processes};
        allocate(&pair->from[rank]);
        allocate(&pair->to[rank]);
    }
    if (in_slabs)
        open_slabs(pair);
    else
        open_segments(pair);
    if (check_failures > 0)
        exit(CHECK_FAIL);
}

static void close_pair(struct pair *pair)
{
    for (int rank = 0; rank < RANKS; rank++)
        fr_coll_mapset_destroy(&pair->teams[rank]);
    for (int rank = 0; rank < RANKS; rank++) {
        if (pair->teams[rank].segment)
            fr_coll_segment_done(pair->teams[rank].segment, UINT64_MAX);
        fr_coll_segment_close(pair->teams[rank].segment);
        fr_coll_slab_close(pair->teams[rank].slab, false);
        driver_free(&pair->from[rank]);
        driver_free(&pair->to[rank]);
    }
}

static struct fr_coll_buffer buffer_of(const struct driver_memory *memory)
{
    struct fr_coll_buffer buffer = {.low = (uintptr_t)memory->address, .bytes = BYTES};
    CHECK(fr_device_query(memory->address, &buffer.range) == FR_OK);
    return buffer;
}

// One operation on both ranks.
enum kind { ALLTOALL, REDUCE, SCATTER, BCAST, KINDS };
enum { FIRST_PART = 2001 }; // of a scattered result, rank 0's
struct operation {
    enum kind kind;
    struct pair *pair;
    uint64_t seed;
    bool is_queued; // a reduction that calls need not wait for
    struct fr_coll_task tasks[RANKS];
    struct fr_coll_slot sends[RANKS][RANKS], receives[RANKS][RANKS];
    struct fr_coll_alltoall alltoalls[RANKS];
    struct fr_coll_reduce reduces[RANKS];
    struct fr_coll_bcast bcasts[RANKS];
};

static void begin_alltoall(struct operation *op, int rank)
{
    struct pair *pair = op->pair;
    for (int other = 0; other < RANKS; other++) {
        uintptr_t at = (uintptr_t)other * PART;
        op->sends[rank][other] = (struct fr_coll_slot){
            .address = (uintptr_t)pair->from[rank].address + at, .bytes = PART};
        op->receives[rank][other] =
            (struct fr_coll_slot){.address = (uintptr_t)pair->to[rank].address + at, .bytes = PART};
    }
    op->alltoalls[rank] = (struct fr_coll_alltoall){
        .call = "alltoall",
        .what = 2,
        .sends = op->sends[rank],
        .receives = op->receives[rank],
        .send_range = buffer_of(&pair->from[rank]).range,
        .receive = buffer_of(&pair->to[rank]),
    };
    fr_coll_alltoall_begin(&op->tasks[rank], &pair->teams[rank], &op->alltoalls[rank]);
}

static size_t result_bytes(const struct operation *op, int rank)
{
    return op->kind != SCATTER ? BYTES : rank == 0 ? FIRST_PART : BYTES - FIRST_PART;
}

static void begin_reduce(struct operation *op, int rank)
{
    struct pair *pair = op->pair;
    op->reduces[rank] = (struct fr_coll_reduce){
        .call = "reduce",
        .form = op->kind == SCATTER ? FR_COLL_SCATTERED : FR_COLL_TO_ALL,
        .row = fr_device_reduce_row(FR_TYPE_U8, FR_OP_BXOR),
        .elements = BYTES,
        .own_first = op->kind == SCATTER && rank > 0 ? FIRST_PART : 0,
        .own_elements = result_bytes(op, rank),
        .is_queued = op->is_queued,
        .send = {.address = (uintptr_t)pair->from[rank].address, .bytes = BYTES},
        .receive = {.address = (uintptr_t)pair->to[rank].address, .bytes = result_bytes(op, rank)},
        .read = buffer_of(&pair->from[rank]),
        .written = buffer_of(&pair->to[rank]),
        .mover = buffer_of(&pair->from[rank]).range,
    };
    fr_coll_reduce_begin(&op->tasks[rank], &pair->teams[rank], &op->reduces[rank]);
}

static void begin_bcast(struct operation *op, int rank)
{
    struct pair *pair = op->pair;
    const struct driver_memory *memory = rank == 0 ? &pair->from[0] : &pair->to[rank];
    op->bcasts[rank] = (struct fr_coll_bcast){
        .call = "bcast",
        .data = {.address = (uintptr_t)memory->address, .bytes = BYTES},
        .memory = buffer_of(memory),
    };
    fr_coll_bcast_begin(&op->tasks[rank], &pair->teams[rank], &op->bcasts[rank]);
}

static void begin(struct operation *op, int rank)
{
    static void (*const begins[])(struct operation * op, int rank) = {
        [ALLTOALL] = begin_alltoall,
        [REDUCE] = begin_reduce,
        [SCATTER] = begin_reduce,
        [BCAST] = begin_bcast,
    };
    begins[op->kind](op, rank);
}

static void fill(struct pair *pair, uint64_t seed)
{
    for (int rank = 0; rank < RANKS; rank++) {
        for (int other = 0; other < RANKS; other++)
            pair_fill(&pair->from[rank], (size_t)other * PART, PART,
                      seed + (uint64_t)(rank * RANKS + other));
        pair_fill(&pair->to[rank], 0, BYTES, 1);
    }
}

static void expect(const struct operation *op, int rank, unsigned char *expected)
{
    unsigned char other[BYTES];
    for (int from = 0; from < RANKS; from++) {
        int first = op->kind == ALLTOALL ? from : 0, slice = op->kind == ALLTOALL ? rank : from;
        check_fill(expected + from * PART, PART, op->seed + (uint64_t)(first * RANKS + slice));
        check_fill(other + from * PART, PART, op->seed + (uint64_t)(RANKS + from));
    }
    for (size_t i = 0; i < BYTES && (op->kind == REDUCE || op->kind == SCATTER); i++)
        expected[i] ^= other[i];
    if (op->kind == SCATTER && rank > 0)
        memmove(expected, expected + FIRST_PART, result_bytes(op, rank));
}

static bool has_result(const struct operation *op, int rank)
{
    unsigned char expected[BYTES], found[BYTES];
    struct driver_memory part = op->pair->to[rank];
    expect(op, rank, expected);
    driver_read(found, &part, BYTES);
    return memcmp(found, expected, result_bytes(op, rank)) == 0;
}

static void check(const struct operation *op)
{
    for (int rank = op->kind == BCAST; rank < RANKS; rank++)
        CHECK(has_result(op, rank), "operation %d, rank %d", (int)op->kind, rank);
}

// Goes on with all tasks, in an order that is drawn anew for each turn. Each has so many turns
// in a row; in the end all are over, with this status.
static void run_all(struct fr_coll_task *const *tasks, size_t count, unsigned in_a_row,
                    uint64_t *random, enum fr_status expected)
{
    time_t until = time(NULL) + 60;
    size_t left = count;
    bool over[16] = {false};
    while (left > 0 && time(NULL) < until && check_failures == 0) {
        size_t index = check_random(random) % count;
        for (unsigned i = 0; i < in_a_row && !over[index]; i++) {
            enum fr_status status = fr_coll_task_progress(tasks[index], &over[index]);
            CHECK(status == (over[index] ? expected : FR_OK), "task %zu: %s", index,
                  fr_core_status_text(status));
            left -= over[index];
        }
    }
    CHECK(left == 0, "%zu of %zu tasks do not end", left, count);
}

// Two groups, with an operation in each.
static void interleave(struct pair pairs[2], enum kind first, enum kind second, unsigned in_a_row,
                       uint64_t *random)
{
    struct operation ops[2] = {{.kind = first, .pair = &pairs[0]},
                               {.kind = second, .pair = &pairs[1]}};
    struct fr_coll_task *tasks[2 * RANKS];
    size_t count = 0;
    for (int i = 0; i < 2; i++) {
        ops[i].seed = check_random(random);
        fill(&pairs[i], ops[i].seed);
        for (int rank = 0; rank < RANKS; rank++) {
            begin(&ops[i], rank);
            tasks[count++] = &ops[i].tasks[rank];
        }
    }
    run_all(tasks, count, in_a_row, random, FR_OK);
    check(&ops[0]);
    check(&ops[1]);
}

static void test_orders(struct pair pairs[2])
{
    uint64_t random = 3;
    for (unsigned in_a_row = 1; in_a_row <= 4; in_a_row++)
        for (int first = 0; first < KINDS; first++)
            for (int second = 0; second < KINDS; second++)
                interleave(pairs, (enum kind)first, (enum kind)second, in_a_row, &random);
}

// Three operations of one group at once take turns, whichever is gone on with first.
static void test_turns(struct pair *pair)
{
    struct operation ops[KINDS] = {{.kind = 0}};
    struct fr_coll_task *tasks[KINDS * RANKS];
    uint64_t random = 5;
    fill(pair, 7);
    for (int i = 0; i < KINDS; i++) {
        ops[i] = (struct operation){.kind = (enum kind)i, .pair = pair, .seed = 7};
        for (int rank = 0; rank < RANKS; rank++) {
            begin(&ops[i], rank);
            tasks[i * RANKS + rank] = &ops[i].tasks[rank];
        }
    }
    bool over = true;
    CHECK(fr_coll_task_progress(tasks[2], &over) == FR_OK && !over);
    CHECK(pair->teams[0].round == pair->teams[1].round, "a task goes before its turn");
    run_all(tasks, FR_ARRAY_LENGTH(tasks), 1, &random, FR_OK);
    check(&ops[BCAST]); // what was written last
}

enum waits { NOBODY, BOTH, FIRST_SOON }; // whose calls wait

static void *say_soon(void *segment)
{
    for (int i = 0; i < 1000; i++)
        fr_wait_yield();
    fr_coll_segment_await(segment, true);
    return NULL;
}

// A reduction that calls need not wait for, after one on the same memory. Rank 0 comes first, and
// goes on no more until the other has done its part: all of it, unless rank 0 waits by then.
static void test_one_for_all(struct pair *pair, enum kind kind, enum waits waits)
{
    pthread_t thread;
    struct operation op = {
        .kind = kind, .pair = pair, .seed = 21 + (uint64_t)waits, .is_queued = true};
    struct fr_coll_task *const both[] = {&op.tasks[0], &op.tasks[1]};
    uint64_t random = 23;
    bool over = false;
    fill(pair, op.seed);
    for (int time = 0; time < 2; time++) {
        begin(&op, 0);
        begin(&op, 1);
        if (time == 0)
            run_all(both, RANKS, 1, &random, FR_OK);
    }
    fill(pair, ++op.seed);
    fr_coll_segment_await(pair->teams[0].segment, waits == BOTH);
    fr_coll_segment_await(pair->teams[1].segment, waits == BOTH);
    CHECK(fr_coll_task_progress(&op.tasks[0], &over) == FR_OK && !over);
    op.tasks[0].part.moment_ns = op.tasks[1].part.moment_ns =
        waits == FIRST_SOON ? 60 * (int64_t)FR_SECOND_NS : 1;
    if (waits == FIRST_SOON)
        CHECK(pthread_create(&thread, NULL, say_soon, pair->teams[0].segment) == 0);
    for (time_t until = time(NULL) + 60;
         op.tasks[1].stage != FR_COLL_STAGE_RESULTS && time(NULL) < until;)
        CHECK(fr_coll_task_progress(&op.tasks[1], &over) == FR_OK && !over);
    if (waits == FIRST_SOON)
        pthread_join(thread, NULL);
    CHECK(has_result(&op, 0) == (waits == NOBODY));
    CHECK(has_result(&op, 1) == (waits == NOBODY || kind == SCATTER));
    run_all(both, RANKS, 1, &random, FR_OK);
    check(&op);
}

static void *come_soon(void *task)
{
    bool over = false;
    for (int i = 0; i < 1000; i++)
        fr_wait_yield();
    CHECK(fr_coll_task_progress(task, &over) == FR_OK && !over);
    return NULL;
}

// A call that does not wait, of a rank that comes first: its rank moves its bytes if the other one
// comes in a moment, as the program may then compute.
static void test_moment(struct pair *pair, enum kind kind)
{
    pthread_t thread;
    struct operation op = {.kind = kind, .pair = pair, .seed = 41};
    struct fr_coll_task *const both[] = {&op.tasks[0], &op.tasks[1]};
    uint64_t random = 43;
    bool over = false;
    fill(pair, op.seed);
    for (int time = 0; time < 2; time++) {
        begin(&op, 0);
        begin(&op, 1);
        CHECK(op.tasks[0].part.moment_ns > 0, "operation %d", (int)kind);
        if (time == 0)
            run_all(both, RANKS, 1, &random, FR_OK);
    }
    fill(pair, ++op.seed);
    op.tasks[0].part.moment_ns = 60 * (int64_t)FR_SECOND_NS;
    pair->teams[0].is_awaited = true;
    CHECK(pthread_create(&thread, NULL, come_soon, &op.tasks[1]) == 0);
    CHECK(fr_coll_task_progress(&op.tasks[0], &over) == FR_OK && !over);
    CHECK(op.tasks[0].stage > FR_COLL_STAGE_MOVE, "operation %d has come to stage %d", (int)kind,
          (int)op.tasks[0].stage);
    pair->teams[0].is_awaited = false;
    pthread_join(thread, NULL);
    run_all(both, RANKS, 1, &random, FR_OK);
    check(&op);
}

// A reduction that CPUs can do by posts, where so many ranks take no part in the task. One round is
// enough where none does. In slabs the data are longer than a post.
static void test_short(struct pair *pair, int declining, bool fails)
{
    struct operation op = {.kind = REDUCE, .pair = pair, .seed = 31 + (uint64_t)declining};
    struct fr_coll_host_reduce hosts[RANKS];
    struct fr_coll_task *const both[] = {&op.tasks[0], &op.tasks[1]};
    uint64_t random = 29, before = pair->teams[0].round;
    fill(pair, op.seed);
    for (int rank = 0; rank < RANKS; rank++) {
        begin(&op, rank);
        hosts[rank] = (struct fr_coll_host_reduce){
            .host = {.call = "reduce",
                     .is_short = !in_slabs,
                     .send_range = buffer_of(&pair->from[rank]).range,
                     .receive_range = buffer_of(&pair->to[rank]).range},
            .reduce = &op.reduces[rank],
            .vector = (uintptr_t)pair->from[rank].address,
            .result = (uintptr_t)pair->to[rank].address,
            .receives = true,
        };
        fr_coll_host_reduce_prepare(&pair->teams[rank], &hosts[rank]);
        op.tasks[rank].declines = rank < declining;
        op.tasks[rank].host = &hosts[rank].host;
    }
    hosts[0].host.failure = fails ? FR_ERR_NO_MEMORY : FR_OK;
    run_all(both, RANKS, 1, &random, fails ? FR_ERR_DEVICE : FR_OK);
    for (int rank = 0; rank < RANKS; rank++) {
        CHECK(op.tasks[rank].is_by_posts == (declining > 0 && !fails));
        CHECK(fails || has_result(&op, rank), "%d decline, rank %d", declining, rank);
        fr_coll_host_end(&pair->teams[rank], &hosts[rank].host);
    }
    CHECK(declining == 0 || pair->teams[0].round - before == (declining < RANKS && !fails) + 1u);
}

static bool plan_nothing(struct fr_coll_team *team, void *operation, struct fr_device_move *move)
{
    (void)team;
    (void)operation;
    (void)move;
    return false;
}

static enum fr_status bad_status = FR_ERR_DEVICE;

static enum fr_status move_badly(struct fr_coll_team *team, void *operation, int step,
                                 struct fr_device_work *work)
{
    (void)operation;
    (void)step;
    fr_device_push_begin(NULL, NULL, 0, FR_ENGINE_SM, 0, FR_ORIGIN_APP, work);
    return team->rank == 1 ? bad_status : FR_OK;
}

// Begins the operation of `tasks` on another group.
static void begin_like(struct fr_coll_task bad[RANKS], const struct operation *op,
                       struct pair *pair)
{
    for (int rank = 0; rank < RANKS; rank++) {
        bad[rank].part = op->tasks[rank].part;
        bad[rank].part.plan = plan_nothing;
        bad[rank].part.move = move_badly;
        bad[rank].part.what = 1000;
        fr_coll_task_begin(&bad[rank], &pair->teams[rank]);
    }
}

// A rank that fails to move, declines, or is in another operation, while a task of another group is
// under way: all ranks of the group find that out, and it is as good as before.
static void test_failures(struct pair pairs[2])
{
    struct operation other = {.kind = ALLTOALL, .pair = &pairs[1], .seed = 77};
    struct fr_coll_task bad[RANKS];
    struct fr_coll_task *const both[] = {&bad[0], &bad[1]};
    uint64_t random = 9;
    bool over = false;
    fill(&pairs[1], other.seed);
    for (int rank = 0; rank < RANKS; rank++)
        begin(&other, rank);
    CHECK(fr_coll_task_progress(&other.tasks[0], &over) == FR_OK && !over);
    static const enum fr_status bad_ones[] = {FR_ERR_DEVICE, FR_ERR_UNSUPPORTED};
    for (size_t i = 0; i < FR_ARRAY_LENGTH(bad_ones); i++) { // all ranks find the same
        bad_status = bad_ones[i];
        begin_like(bad, &other, &pairs[0]);
        run_all(both, RANKS, 1, &random, FR_ERR_DEVICE);
    }
    begin_like(bad, &other, &pairs[0]);
    bad[1].part.what++;
    run_all(both, RANKS, 1, &random, FR_ERR_UNSUPPORTED);
    begin_like(bad, &other, &pairs[0]);
    bad[1].declines = true;
    run_all(both, RANKS, 1, &random, FR_ERR_UNSUPPORTED);
    run_all((struct fr_coll_task *[]){&other.tasks[0], &other.tasks[1]}, 2, 1, &random, FR_OK);
    check(&other);
    interleave(pairs, REDUCE, BCAST, 1, &random);
}

// A clone tells the others in the end what a thread that calls no MPI has left to tell.
static void test_notices(struct pair *pair)
{
    struct fr_coll_team *clone = fr_coll_team_clone_new(&pair->teams[0]);
    CHECK(clone != NULL);
    if (!clone)
        return;
    given_up = 0;
    fr_job_control_stays_here = true;
    fr_coll_team_notify(clone, FR_COLL_MEET_END);
    fr_job_control_stays_here = false;
    CHECK(given_up == 0);
    fr_coll_team_clone_free(clone);
    CHECK(given_up == 1, "the others are told %u times", given_up);
}

static void run_tasks(void)
{
    struct pair pairs[2];
    open_pair(&pairs[0]);
    open_pair(&pairs[1]);
    test_orders(pairs);
    test_turns(&pairs[0]);
    for (int waits = NOBODY; waits <= FIRST_SOON && !in_slabs; waits++)
        for (int kind = REDUCE; kind <= SCATTER; kind++)
            test_one_for_all(&pairs[0], (enum kind)kind, (enum waits)waits);
    for (int kind = ALLTOALL; kind <= BCAST && !in_slabs; kind += BCAST - ALLTOALL)
        test_moment(&pairs[0], (enum kind)kind);
    for (int declining = 0; declining <= RANKS; declining++) {
        test_short(&pairs[0], declining, false);
        if (declining > 0)
            test_short(&pairs[0], declining, true);
    }
    test_failures(pairs);
    test_notices(&pairs[0]);
    close_pair(&pairs[0]);
    close_pair(&pairs[1]);
}

// A rank that does not come within FABRAIL_TIMEOUT, and one that has quit: the others' tasks end,
// and that of another group goes on meanwhile.
static void run_missing(void)
{
    struct pair pairs[2];
    bool over = false;
    enum fr_status status = FR_OK;
    uint64_t random = 11;
    open_pair(&pairs[0]);
    open_pair(&pairs[1]);
    struct operation late = {.kind = ALLTOALL, .pair = &pairs[0]};
    begin(&late, 0);
    CHECK(fr_coll_task_progress(&late.tasks[0], &over) == FR_OK && !over);
    struct operation other = {.kind = REDUCE, .pair = &pairs[1], .seed = 13};
    fill(&pairs[1], other.seed);
    for (int rank = 0; rank < RANKS; rank++)
        begin(&other, rank);
    run_all((struct fr_coll_task *[]){&other.tasks[0], &other.tasks[1]}, 2, 1, &random, FR_OK);
    check(&other);
    if (check_failures > 0)
        return;                          // a task that is not over would be waited for
    pairs[0].teams[0].is_awaited = true; // as by a call that has the team in hand
    time_t began = time(NULL);
    while (!over && time(NULL) < began + 60)
        status = fr_coll_task_progress(&late.tasks[0], &over);
    CHECK(status == FR_ERR_MPI && pairs[0].teams[0].broken, "%s", fr_core_status_text(status));
    CHECK(given_up == in_slabs, "the others are told %u times", given_up);
    begin(&late, 0);
    CHECK(fr_coll_task_run(&late.tasks[0]) == FR_ERR_MPI);
    begin(&other, 0);
    CHECK(fr_coll_task_progress(&other.tasks[0], &over) == FR_OK && !over);
    pairs[1].teams[0].quit = FR_COLL_QUIT;
    CHECK(fr_coll_task_run(&other.tasks[0]) == FR_ERR_UNSUPPORTED && !pairs[1].teams[0].broken);
    close_pair(&pairs[0]);
    close_pair(&pairs[1]);
}

// An operation whose tasks are in the queues of both ranks.
struct queued {
    struct operation op;
    struct fr_coll_queued tasks[RANKS];
};

static void add_task(struct queued *queued, int rank)
{
    begin(&queued->op, rank);
    queued->tasks[rank].task = queued->op.tasks[rank];
    fr_coll_queue_add(&queued->tasks[rank]);
}

static void queue_task(struct queued *queued, int rank)
{
    add_task(queued, rank);
    fr_coll_queue_leave();
}

static void *make_progress(void *stops)
{
    while (!atomic_load((_Atomic bool *)stops))
        fr_coll_queue_progress();
    return NULL;
}

static void await(struct queued *queued, int count)
{
    time_t until = time(NULL) + 60;
    for (int i = 0; i < count * RANKS && check_failures == 0; i++) {
        struct fr_coll_queued *task = &queued[i / RANKS].tasks[i % RANKS];
        while (!atomic_load(&task->over) && time(NULL) < until)
            fr_wait_yield();
        CHECK(atomic_load(&task->over) && task->status == FR_OK, "task %d", i);
    }
}

// Many operations of two groups, with so many threads besides the queue's own.
static void run_queued(struct pair pairs[2], unsigned threads)
{
    enum { COUNT = 4 * KINDS, MOST_THREADS = 3 };
    static struct queued queued[COUNT];
    pthread_t others[MOST_THREADS];
    _Atomic bool stops = false;
    fill(&pairs[0], 7);
    fill(&pairs[1], 7);
    for (unsigned i = 0; i < threads; i++)
        CHECK(pthread_create(&others[i], NULL, make_progress, &stops) == 0);
    for (int i = 0; i < COUNT; i++) {
        queued[i] = (struct queued){
            .op = {.kind = (enum kind)(i / 2 % KINDS), .pair = &pairs[i % 2], .seed = 7}};
        queue_task(&queued[i], 0);
    }
    for (int i = 0; i < COUNT; i++) // the other rank begins them later, in the same order
        queue_task(&queued[i], 1);
    await(queued, COUNT);
    atomic_store(&stops, true);
    for (unsigned i = 0; i < threads; i++)
        pthread_join(others[i], NULL);
    check(&queued[COUNT - 1].op);
    check(&queued[COUNT - 2].op);
}

// One rank's part of a call that waits, behind a task that does not.
struct rank_of {
    struct queued *queued;
    struct operation *op;
    int rank;
};

static void *run_behind(void *data)
{
    const struct rank_of *part = data;
    queue_task(part->queued, part->rank);
    begin(part->op, part->rank);
    CHECK(fr_coll_task_run(&part->op->tasks[part->rank]) == FR_OK);
    CHECK(atomic_load(&part->queued->tasks[part->rank].over), "a task goes before its turn");
    return NULL;
}

static void *hold(void *team)
{
    fr_coll_queue_hold(team);
    return NULL;
}

// A thread has taken hold of a team before that had a queue. It gives up no hold but its own.
static void test_holds(struct fr_coll_team *team)
{
    pthread_t other;
    fr_coll_queue_hold(team);
    team->queue.used = true;
    CHECK(pthread_create(&other, NULL, hold, team) == 0);
    pthread_join(other, NULL);
    fr_coll_queue_release(team);
    CHECK(team->queue.holder != NULL, "another thread's hold is given up");
    team->queue.holder = NULL;
}

// The thread leaves a task that a call has looked at since, and goes on with it later.
static void test_tended(struct pair *pair)
{
    static struct queued queued;
    const struct fr_coll_task *task = &queued.tasks[0].task;
    queued.op = (struct operation){.kind = REDUCE, .pair = pair, .seed = 7};
    fill(pair, 7);
    add_task(&queued, 0);
    fr_coll_queue_progress();
    const enum fr_coll_stage stage = task->stage;
    add_task(&queued, 1);
    fr_coll_queue_progress_untended(1);
    CHECK(task->stage == stage, "the thread goes on with what a call looks at");
    fr_coll_queue_progress_untended(INT64_MAX);
    CHECK(task->stage == stage, "the thread does so too soon");
    const time_t until = time(NULL) + 60;
    for (int rank = 0; rank < RANKS; rank++) {
        while (!atomic_load(&queued.tasks[rank].over) && time(NULL) < until)
            fr_coll_queue_progress_untended(1);
        CHECK(atomic_load(&queued.tasks[rank].over), "the thread leaves what no call looks at");
    }
    check(&queued.op);
}

// A call that waits for a task waits for the device, and does not ask it again and again.
static void test_waiting(struct pair *pair)
{
    static struct queued queued;
    queued.op = (struct operation){.kind = ALLTOALL, .pair = pair, .seed = 17};
    fill(pair, 17);
    add_task(&queued, 0);
    add_task(&queued, 1);
    const time_t until = time(NULL) + 60;
    for (int rank = 0; rank < RANKS; rank++) {
        while (queued.tasks[rank].task.stage != FR_COLL_STAGE_MOVED && time(NULL) < until)
            fr_coll_queue_progress();
    }
    fr_coll_queue_progress();
    CHECK(queued.tasks[0].task.stage == FR_COLL_STAGE_MOVED);
    for (int looks = 0; looks < RANKS; looks++)
        fr_coll_queue_progress_waiting();
    for (int rank = 0; rank < RANKS; rank++)
        CHECK(atomic_load(&queued.tasks[rank].over), "rank %d is in stage %d", rank,
              (int)queued.tasks[rank].task.stage);
    check(&queued.op);
}

static void run_queues(void)
{
    struct pair pairs[2];
    pthread_t thread;
    open_pair(&pairs[0]);
    open_pair(&pairs[1]);
    test_holds(&pairs[0].teams[0]);
    test_tended(&pairs[0]);
    if (!in_slabs && driver_is_simulated()) // a real device may be faster than the looks
        test_waiting(&pairs[0]);
    for (unsigned threads = 0; threads <= 3; threads++)
        run_queued(pairs, threads);
    static struct queued before;
    before.op = (struct operation){.kind = REDUCE, .pair = &pairs[0], .seed = 7};
    struct operation op = {.kind = ALLTOALL, .pair = &pairs[0], .seed = 7};
    struct rank_of parts[] = {{&before, &op, 0}, {&before, &op, 1}};
    CHECK(pthread_create(&thread, NULL, run_behind, &parts[0]) == 0);
    run_behind(&parts[1]);
    pthread_join(thread, NULL);
    check(&op);
    queue_task(&before, 0); // for which the other rank never comes
    fr_coll_queue_close(&pairs[0].teams[0]);
    CHECK(atomic_load(&before.tasks[0].over) && before.tasks[0].status == FR_ERR_MPI);
    fr_coll_queue_stop();
    close_pair(&pairs[0]);
    close_pair(&pairs[1]);
}

static void start(void)
{
    struct fr_job_secret job;
    pair_begin(0);
    CHECK(fr_job_secret_draw(&job) == FR_OK);
    CHECK(fr_coll_slots_open(&job, 0, 1, fr_coll_team_segment_bytes(RANKS)) == FR_OK);
}

static void finish(void)
{
    fr_coll_slots_release();
    pair_end();
}

static void run_in_segments(void)
{
    start();
    run_tasks();
    finish();
}

static void run_in_slabs(void)
{
    in_slabs = true;
    run_in_segments();
}

static void run_queues_in_segments(void)
{
    start();
    run_queues();
    finish();
}

static void run_queues_in_slabs(void)
{
    in_slabs = true;
    run_queues_in_segments();
}

static void run_missing_in_segments(void)
{
    start();
    run_missing();
    finish();
}

static void run_missing_in_slabs(void)
{
    in_slabs = true;
    run_missing_in_segments();
}

#define SHORT                                                                                      \
    {                                                                                              \
        "FABRAIL_TIMEOUT=2"                                                                        \
    }

static const struct process_case cases[] = {
    {.name = "segments", .count = 1, .run = run_in_segments},
    {.name = "no-fabric", .count = 1, .run = run_in_segments, .common = {"FRSIM_IMEX=0"}},
    {.name = "queues", .count = 1, .run = run_queues_in_segments},
    {.name = "slabs", .count = 1, .run = run_in_slabs},
    {.name = "queues-in-slabs", .count = 1, .run = run_queues_in_slabs},
    {.name = "missing", .count = 1, .run = run_missing_in_segments, .common = SHORT},
    {.name = "missing-in-slabs", .count = 1, .run = run_missing_in_slabs, .common = SHORT},
    {.name = NULL},
};

int main(int count, char **arguments)
{
    return process_main(cases, count, arguments);
}
