// SPDX-License-Identifier: BSD-3-Clause
// A target of a window without memory: each request has its answer all the same, which says how the
// request has ended. Otherwise its origin would wait for ever.
#include "config.h"

#include "check.h"
#include "rma/remote_access.h"
#include "rma/window_transfer.h"

#include "fabrail/job.h"

enum { NAME = 7, ORIGIN = 1, OTHER, THIRD, RANKS, LONG_BYTES = 65536, TICKET = 9 };

static bool lacks_memory;
static unsigned answers;
static struct fr_rma_head last; // that was sent
static size_t last_bytes;
static enum fr_status turn; // of the lock

void *__real_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes)
{
    return lacks_memory ? NULL : __real_calloc(count, bytes);
}

// Requests that MPI has, and those before them that were received.
enum { MOST_COMING = 20 };
static struct fr_rma_message *coming[MOST_COMING];
static unsigned coming_count, received_count;
static bool have_gone; // the answers

static int probe(const fr_word *args)
{
    bool any = (int)args[1] == FR_JOB_WINDOW_TAG && received_count < coming_count;
    *(int *)args[3] = any;
    if (any)
        *(int *)(args[4] + fr_abi_mpi.status_source_offset) = coming[received_count]->from;
    return 0;
}

static int receive(const fr_word *args)
{
    struct fr_rma_message *message = coming[received_count++];
    CHECK((size_t)args[1] == message->bytes && (int)args[3] == message->from);
    memcpy((void *)args[0], message->head, message->bytes);
    memset((void *)args[6], 1, 1);
    fr_rma_message_free(message);
    return 0;
}

// Returns whether a request of MPI is complete: a received one is.
static bool is_complete(const char *request)
{
    return *request == 1 || have_gone;
}

int __wrap_fr_abi_call(enum fr_fn fn, const fr_word *args);
int __wrap_fr_abi_call(enum fr_fn fn, const fr_word *args)
{
    if (fn == FR_FN_MPI_Iprobe)
        return probe(args);
    if (fn == FR_FN_MPI_Irecv)
        return receive(args);
    if (fn == FR_FN_MPI_Get_count)
        *(int *)args[2] = (int)coming[received_count]->bytes;
    if (fn == FR_FN_MPI_Test)
        *(int *)args[1] = is_complete((const char *)args[0]);
    if (fn == FR_FN_MPI_Get_count || fn == FR_FN_MPI_Test)
        return 0;
    CHECK(fn == FR_FN_MPI_Isend && args[3] == ORIGIN, "%s", fr_abi_rows[fn].name);
    memcpy(&last, (const void *)args[0], sizeof(last));
    last_bytes = (size_t)args[1];
    answers++;
    return 0;
}

bool __wrap_fr_rma_words_update_try(struct fr_rma_words *words, int target);
bool __wrap_fr_rma_words_update_try(struct fr_rma_words *words, int target)
{
    return words && target == 0;
}

void __wrap_fr_rma_words_update_end(struct fr_rma_words *words, int target);
void __wrap_fr_rma_words_update_end(struct fr_rma_words *words, int target)
{
    CHECK(words && target == 0);
}

uint32_t __wrap_fr_rma_words_draw(struct fr_rma_words *words, int target);
uint32_t __wrap_fr_rma_words_draw(struct fr_rma_words *words, int target)
{
    return words && target == 0 ? TICKET : 0;
}

enum fr_status __wrap_fr_rma_words_look(struct fr_rma_words *words, int target, uint32_t ticket,
                                        bool exclusive, int rank);
enum fr_status __wrap_fr_rma_words_look(struct fr_rma_words *words, int target, uint32_t ticket,
                                        bool exclusive, int rank)
{
    CHECK(words && target == 0 && ticket == TICKET && exclusive && rank == ORIGIN);
    return turn;
}

void __wrap_fr_rma_words_give_up(struct fr_rma_words *words, int target, int rank);
void __wrap_fr_rma_words_give_up(struct fr_rma_words *words, int target, int rank)
{
    CHECK(words && target == 0 && rank == ORIGIN);
}

// Data that are to come by rendezvous.
enum { MOST_LANDINGS = 10 };
static struct {
    void *owner;
    fr_rma_transfer_over *over;
    void *to;
} landings[MOST_LANDINGS];
static unsigned landing_count;
static bool has_room;

struct fr_rma_transfer *__wrap_fr_rma_transfer_receive(struct fr_rma_window *window,
                                                       const struct fr_staging_view *view,
                                                       const unsigned char rts[FR_RNDV_RTS_BYTES],
                                                       fr_rma_transfer_over *over, void *owner,
                                                       enum fr_status *status);
struct fr_rma_transfer *__wrap_fr_rma_transfer_receive(struct fr_rma_window *window,
                                                       const struct fr_staging_view *view,
                                                       const unsigned char rts[FR_RNDV_RTS_BYTES],
                                                       fr_rma_transfer_over *over, void *owner,
                                                       enum fr_status *status)
{
    CHECK(window && view->out_bytes == LONG_BYTES && rts[0] == 0 && landing_count < MOST_LANDINGS);
    landings[landing_count].owner = owner;
    landings[landing_count].over = over;
    landings[landing_count].to = (void *)view->base;
    *status = FR_OK;
    return (struct fr_rma_transfer *)(void *)&landings[landing_count++];
}

bool __wrap_fr_staging_has_room(size_t bytes);
bool __wrap_fr_staging_has_room(size_t bytes)
{
    return has_room && bytes <= 2 * (size_t)LONG_BYTES;
}

static unsigned char memory[LONG_BYTES];

// Serves a request about bytes of the window, without memory.
static void serve(struct fr_rma_head head, size_t bytes, bool brings)
{
    static uint64_t number;
    const unsigned runs = bytes > 0;
    size_t length = sizeof(head) + runs * sizeof(struct fr_rma_run) + (brings ? bytes : 0);
    struct fr_rma_message *message = fr_rma_message_new(length);
    CHECK(message != NULL);
    head.window = NAME;
    head.number = ++number;
    head.from = ORIGIN;
    head.runs = runs;
    head.bytes = bytes;
    *message->head = head;
    message->from = ORIGIN;
    if (runs)
        fr_rma_message_runs(message)[0] = (struct fr_rma_run){.bytes = (uint32_t)bytes, .count = 1};
    if (brings)
        memset(fr_rma_message_data(message), 5, bytes);
    answers = 0;
    lacks_memory = true;
    CHECK(fr_rma_act(message));
    lacks_memory = false;
}

static void check_answer(enum fr_status status)
{
    CHECK(answers == 1 && last.kind == FR_RMA_ANSWER && last.window == NAME && last.from == 0,
          "%u answers", answers);
    CHECK(last.status == status, "%s", fr_core_status_text((enum fr_status)last.status));
    CHECK(last_bytes == sizeof(struct fr_rma_head) && last.runs == 0, "%zu bytes", last_bytes);
}

static void check_data(void)
{
    const struct fr_rma_head put = {.kind = FR_RMA_PUT}, get = {.kind = FR_RMA_GET};
    struct fr_rma_head update = {.kind = FR_RMA_ACCUMULATE, .extra = FR_RMA_WITH_ORIGIN};
    for (size_t bytes = 100; bytes <= LONG_BYTES; bytes += LONG_BYTES - 100) {
        serve(put, bytes, true);
        check_answer(FR_OK);
        CHECK(memory[0] == 5 && memory[bytes - 1] == 5);
        serve(get, bytes, false);
        check_answer(FR_ERR_NO_MEMORY);
        update.element = fr_rma_element_index(0);
        update.operation = fr_rma_operation_index(fr_abi_mpi.REPLACE);
        update.extra = FR_RMA_WITH_ORIGIN | FR_RMA_WITH_RESULT;
        serve(update, bytes, true);
        check_answer(FR_ERR_NO_MEMORY);
        memset(memory, 0, sizeof(memory));
    }
}

static struct fr_rma_message *new_large_update(void)
{
    static uint64_t number = 100;
    struct fr_rma_message *message = fr_rma_message_new(
        sizeof(struct fr_rma_head) + sizeof(struct fr_rma_run) + FR_RNDV_RTS_BYTES);
    CHECK(message != NULL);
    *message->head = (struct fr_rma_head){.kind = FR_RMA_ACCUMULATE,
                                          .extra = FR_RMA_BY_RENDEZVOUS | FR_RMA_WITH_ORIGIN,
                                          .window = NAME,
                                          .number = ++number,
                                          .from = ORIGIN,
                                          .runs = 1,
                                          .bytes = LONG_BYTES,
                                          .element = fr_rma_element_index(0),
                                          .operation = fr_rma_operation_index(fr_abi_mpi.REPLACE)};
    message->from = ORIGIN;
    fr_rma_message_runs(message)[0] = (struct fr_rma_run){.bytes = LONG_BYTES, .count = 1};
    return message;
}

static void land(unsigned i, int byte, enum fr_status status)
{
    memset(landings[i].to, byte, LONG_BYTES);
    landings[i].over(landings[i].owner, status, FR_SCHEME_NONE);
}

// The data of updates wait for their turn, in memory that is bounded unless there is but one. They
// are kept as long as somebody may write to them.
static void check_landings(struct fr_rma_window *window)
{
    struct fr_rma_message *first = new_large_update(), *second = new_large_update();
    struct fr_rma_message *third = new_large_update();
    CHECK(!fr_rma_act(first) && landing_count == 1);
    fr_rma_act_early(second);
    CHECK(landing_count == 1, "beyond the bound");
    has_room = true;
    fr_rma_act_early(second);
    CHECK(landing_count == 2 && !fr_rma_act(first));
    answers = 0;
    land(1, 3, FR_ERR_MPI);
    land(0, 7, FR_OK);
    CHECK(fr_rma_act(first) && memory[0] == 7 && memory[LONG_BYTES - 1] == 7);
    check_answer(FR_OK);
    answers = 0;
    CHECK(fr_rma_act(second) && memory[0] == 7);
    check_answer(FR_ERR_MPI);
    has_room = false;
    CHECK(!fr_rma_act(third) && landing_count == 3, "memory was not given back");
    fr_rma_remote_leave(window);
    CHECK(!fr_rma_act(third), "its window is gone, its data may still come");
    land(2, 5, FR_ERR_CANCELLED);
    CHECK(fr_rma_act(third) && memory[0] == 7);
    fr_rma_remote_enter(window);
}

// Has requests of two ranks whose data do not come, as many as they may have under way, and one of
// a third rank behind them. That one is taken. The others are gone with the window.
static void check_inbox(struct fr_rma_window *window)
{
    enum { TO_ONE = 8 };
    const unsigned landings_before = landing_count;
    const uint64_t before = fr_rma_messages_taken();
    for (unsigned i = 0; i < 2 * TO_ONE; i++) {
        coming[coming_count] = new_large_update();
        coming[coming_count]->from = coming[coming_count]->head->from = i % 2 ? OTHER : ORIGIN;
        coming_count++;
    }
    struct fr_rma_message *barrier = fr_rma_message_new(sizeof(struct fr_rma_head));
    CHECK(barrier != NULL);
    *barrier->head = (struct fr_rma_head){.kind = FR_RMA_BARRIER, .window = NAME, .from = THIRD};
    barrier->from = THIRD;
    coming[coming_count++] = barrier;
    has_room = true;
    for (unsigned i = 0; i < 3; i++)
        fr_rma_progress();
    CHECK(received_count == coming_count && fr_rma_messages_taken() == before + 1);
    CHECK(landing_count == landings_before + 4, "two of each rank: %u", landing_count);
    fr_rma_barriers_free(window);
    fr_rma_remote_leave(window);
    for (unsigned i = landings_before; i < landing_count; i++)
        land(i, 0, FR_ERR_CANCELLED);
    fr_rma_progress();
    CHECK(fr_rma_messages_taken() == before + coming_count, "requests about no window are kept");
    fr_rma_remote_enter(window);
    has_room = false;
}

static struct fr_rma_message *new_large_fetch(void)
{
    struct fr_rma_message *message = new_large_update();
    message->head->extra = FR_RMA_BY_RENDEZVOUS | FR_RMA_WITH_RESULT;
    message->head->operation = fr_rma_operation_index(fr_abi_mpi.REPLACE);
    return message;
}

// Results wait until they have gone, in memory that is bounded unless there is but one. An update
// with a result waits while others have the memory.
static void check_results(void)
{
    have_gone = true;
    fr_rma_progress();
    have_gone = false;
    struct fr_rma_message *first = new_large_fetch(), *second = new_large_fetch();
    answers = 0;
    has_room = false;
    CHECK(fr_rma_act(first) && answers == 1 && last.status == FR_OK && last_bytes > LONG_BYTES);
    CHECK(!fr_rma_act(second) && answers == 1, "beyond the bound");
    has_room = lacks_memory = true;
    CHECK(!fr_rma_act(second) && answers == 1, "without memory");
    has_room = lacks_memory = false;
    have_gone = true;
    fr_rma_progress();
    CHECK(fr_rma_act(second) && answers == 2 && last.status == FR_OK);
    fr_rma_progress();
    CHECK(!fr_rma_messages_under_way());
}

// One rank gets the lock later, another one waits no longer.
static void check_locks(struct fr_rma_window *window)
{
    const struct fr_rma_head lock = {.kind = FR_RMA_LOCK, .extra = 1};
    turn = FR_ERR_NOT_FOUND;
    serve(lock, 0, false);
    fr_rma_grant_locks();
    CHECK(answers == 0 && window->waiters, "a lock is given too early");
    turn = FR_OK;
    fr_rma_grant_locks();
    check_answer(FR_OK);
    CHECK(!window->waiters);
    turn = FR_ERR_NOT_FOUND;
    serve(lock, 0, false);
    CHECK(answers == 0 && window->waiters);
    serve((struct fr_rma_head){.kind = FR_RMA_GIVE_UP, .extra = 1, .name = last.number + 1}, 0,
          false);
    check_answer(FR_OK);
    CHECK(!window->waiters);
    serve(lock, 0, false);
    fr_rma_waiters_free(window);
    CHECK(!window->waiters);
}

int main(void)
{
    static struct fr_rma_part parts[RANKS];
    static int world[RANKS] = {0, ORIGIN, OTHER, THIRD};
    static struct fr_rma_window window = {
        .name = NAME, .size = RANKS, .parts = parts, .world = world, .server = FR_RMA_BY_THREAD};
    parts[0].address = (uintptr_t)memory;
    parts[0].bytes = sizeof(memory);
    parts[0].range = (struct fr_device_range)FR_DEVICE_HOST;
    fr_abi_rows_fill();
    fr_rma_remote_enter(&window);
    check_data();
    check_locks(&window);
    check_landings(&window);
    check_inbox(&window);
    check_results();
    return check_result();
}
