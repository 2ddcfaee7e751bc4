// SPDX-License-Identifier: BSD-3-Clause
// The table of posted receives with an MPI of its own, whose requests are numbers that are given
// out again as soon as they are complete, and a side table that only counts.
#include "config.h"

#include "fabrail/request/posted.h"

#include "check.h"
#include "fabrail/request/attendant.h"
#include "fabrail/request/errors.h"
#include "fabrail/rndv/incoming.h"
#include "request/table.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum {
    MANY = 3000, // more than there are entries
    THREADS = 4,
    ROUNDS = 50000,
    MOVES = 100000,
    LIGHT_MOVES = 3000, // where each takes long, as under valgrind
    LOOKS_A_YIELD = 64,
    NUMBERS = 12, // requests that all threads share
    NULL_REQUEST = 0,
    MESSAGE_BYTES = 64,
};

struct fr_abi_personality fr_abi_mpi;
_Atomic size_t fr_request_tracked_count;
FR_TLS bool fr_request_any_abandoned;
_Atomic bool fr_request_has_handler;

_Atomic bool fr_request_errors_may_return;

int fr_abi_type_bytes(fr_word type)
{
    (void)type;
    return 1;
}

// MPI's code for a message that was cut off; all others are other errors.
enum { TRUNCATED = 15 };

bool fr_request_has_come(int code)
{
    return code == 0 || code == TRUNCATED;
}

bool fr_rndv_incoming_any(void)
{
    return true;
}

bool fr_request_attendant_wake(void)
{
    CHECK(fr_request_any_tracked(), "woken before the receive is counted");
    return false;
}

void fr_request_table_drop_abandoned(fr_word request)
{
    CHECK(false, "%lx", (long)request);
}

static _Atomic size_t ops;            // in the side table
static _Atomic size_t unclaims;       // of them
static _Atomic int live[NUMBERS + 1]; // requests that are under way in MPI
static fr_word last_key;
static const void *last_buffer;
static FR_TLS const void *read_at; // where this thread has looked for an RTS

// A status of this MPI is one byte: whether the message was as long as an RTS may be.
int64_t fr_abi_status_size(const void *status)
{
    return *(const char *)status == 'l' ? FR_RNDV_RTS_LONGEST + 1 : FR_RNDV_RTS_BYTES;
}

// The first bytes of every RTS, and here of every message: the bytes behind them tell messages
// apart.
uint64_t fr_rndv_rts_begin;
#define NOTHING "\0\0\0\0\0\0\0\0"
enum { BEGIN_BYTES = sizeof(NOTHING) - 1 };

bool fr_rndv_incoming_read(const unsigned char data[FR_RNDV_RTS_BYTES],
                           struct fr_rndv_incoming *incoming)
{
    *incoming = (struct fr_rndv_incoming){.bytes = MESSAGE_BYTES};
    read_at = data;
    return data[BEGIN_BYTES] == 'A';
}

bool fr_request_read_racy(unsigned char data[FR_RNDV_RTS_BYTES], const void *from)
{
    memcpy(data, from, FR_RNDV_RTS_BYTES);
    return fr_rndv_begins_rts(data);
}

static bool is_known = true;
static size_t taken;
static bool is_serial;

bool fr_rndv_incoming_take_known(const struct fr_rndv_incoming *incoming)
{
    CHECK(incoming->bytes == MESSAGE_BYTES, "%d", (int)incoming->bytes);
    taken++;
    return is_known;
}

struct fr_request_op *fr_request_op_new(enum fr_fn fn, const fr_word *args)
{
    struct fr_request_op *op = aligned_alloc(_Alignof(struct fr_request_op), sizeof(*op));
    memset(op, 0, sizeof(*op));
    op->fn = fn;
    op->args[0] = args[0];
    return op;
}

void fr_request_op_free(struct fr_request_op *op)
{
    free(op);
}

enum fr_status fr_request_op_add_view(struct fr_request_op *op, unsigned arg, size_t most_blocks)
{
    static struct fr_staging_view_block block;
    CHECK(arg == 0 && most_blocks == 1, "%u, %zu", arg, most_blocks);
    op->blocks = op->views[0].blocks = &block;
    op->view_count = 1;
    return FR_OK;
}

enum fr_status fr_datatype_acquire(fr_word type, const struct fr_layout **layout)
{
    static atomic_size_t references;
    static const struct fr_layout byte = {.size_bytes = 1, .references = &references};
    (void)type;
    *layout = &byte;
    return FR_OK;
}

void fr_staging_view_measure(struct fr_staging_view *view)
{
    (void)view;
}

int fr_request_raise(char object_kind, fr_word object, int code)
{
    (void)object_kind;
    (void)object;
    return code;
}

// Nobody looks again at what is not claimed.
void fr_request_table_add(struct fr_request_op *op, fr_word request)
{
    atomic_fetch_add(&ops, 1);
    atomic_fetch_add_explicit(&fr_request_tracked_count, 1, memory_order_release);
    last_key = request;
    last_buffer = (const void *)op->args[0];
    CHECK(op->receive.takes_rts && op->active && op->prefix_out && op->object_kind == 'c', "%d",
          (int)op->fn);
    if (!op->claim.held)
        free(op);
}

void fr_request_table_unclaim(struct fr_request_op *const *list, size_t count)
{
    CHECK(count == 1 && list[0]->claim.held, "%zu", count);
    atomic_fetch_add(&unclaims, 1);
    free(list[0]);
}

static void add(fr_word request, const void *buffer)
{
    const fr_word args[] = {FR_PTR(buffer), MESSAGE_BYTES, 0, 1, 2, 3, 0};
    CHECK(fr_request_posted_add(FR_FN_MPI_Irecv, args, request) == 0, "%lx", (long)request);
}

static struct fr_request_posted *claim(fr_word request)
{
    _Alignas(8) char list[8];
    struct fr_request_posted *receive = NULL;
    fr_abi_handle_store(list, 0, request);
    return fr_request_posted_claim(list, 1, &receive) == 1 ? receive : NULL;
}

static const void *buffer_of(const struct fr_request_posted *receive)
{
    read_at = NULL;
    (void)fr_request_posted_has_rts(receive, "status");
    return read_at;
}

static void start(void)
{
    memset(&fr_abi_mpi, 0, sizeof(fr_abi_mpi));
    fr_abi_mpi.handle_bytes = 8;
    fr_abi_mpi.status_bytes = 1;
    fr_abi_mpi.REQUEST_NULL = NULL_REQUEST;
    atomic_store(&ops, 0);
    atomic_store(&unclaims, 0);
    CHECK(atomic_load(&fr_request_posted_count) == 0, "some are left");
}

static void test_lists(void)
{
    static const unsigned char a[MESSAGE_BYTES], b[MESSAGE_BYTES];
    struct fr_request_posted *posted[4], *again[4];
    const fr_word list[4] = {0x7f0012345680, NULL_REQUEST, 0x7f0012345700, 0x7f0012345690};
    const fr_word first[4] = {list[0], list[3], list[2], list[1]};
    start();
    CHECK(fr_request_posted_claim(list, 4, posted) == 0, "there is none");
    add(list[0], a);
    add(list[3], b);
    CHECK(fr_request_posted_claim(list, 4, posted) == 2, "two");
    CHECK(posted[0] && !posted[1] && !posted[2] && posted[3], "the first and the last");
    CHECK(buffer_of(posted[0]) == a && buffer_of(posted[3]) == b, "buffers");
    CHECK(fr_request_posted_claim(list, 4, again) == 0, "claimed already");
    fr_request_posted_unclaim(posted, 4);
    CHECK(fr_request_posted_claim(list, 4, again) == 2, "given back");
    CHECK(again[0] == posted[0] && again[3] == posted[3], "the same");
    fr_request_posted_unclaim(again, 4);
    memset(again, 1, sizeof(again));
    CHECK(fr_request_posted_claim(first, 4, again) == 2, "those first");
    CHECK(again[0] && again[1] && !again[2] && !again[3], "nothing behind the last one");
    again[3] = again[1];
    fr_rndv_rts_begin = 1;
    CHECK(!buffer_of(again[0]), "it begins otherwise");
    fr_rndv_rts_begin = 0;
    fr_request_posted_forget(again[0]);
    fr_request_posted_forget(again[3]);
    CHECK(fr_request_posted_claim(list, 4, posted) == 0, "forgotten");
    CHECK(atomic_load(&ops) == 0, "no operations");
}

static void test_end(void)
{
    static const unsigned char plain[MESSAGE_BYTES] = NOTHING "B", rts[MESSAGE_BYTES] = NOTHING "A";
    struct fr_request_posted *posted[4];
    const fr_word list[4] = {16, NULL_REQUEST, 17, 18};
    start();
    add(list[0], plain);
    add(list[2], rts);
    add(list[3], plain);
    CHECK(fr_request_posted_claim(list, 4, posted) == 3, "three");
    CHECK(!fr_request_posted_end(posted, 4, "ssss"), "one is an RTS");
    CHECK(atomic_load(&fr_request_posted_count) == 2 && !claim(17), "which is still claimed");
    CHECK(!posted[0] && posted[2] && posted[3], "with those after it");
    CHECK(fr_request_posted_end(posted, 4, "ssls"), "it is longer than an RTS");
    CHECK(atomic_load(&fr_request_posted_count) == 0, "all are forgotten");
    CHECK(fr_request_posted_claim(list, 4, posted) == 0, "none is found");
    CHECK(atomic_load(&ops) == 0, "no operations");
}

// A receive with less room than an RTS needs is read where MPI says that it was cut off, or where
// its memory begins as an RTS does, and else not at all.
static void test_short(void)
{
    static const unsigned char rts[MESSAGE_BYTES] = NOTHING "A";
    struct fr_request_posted *posted = NULL;
    start();
    fr_request_errors_may_return = true;
    for (int bytes = 0; bytes <= FR_RNDV_RTS_BYTES; bytes++) {
        const fr_word args[] = {FR_PTR(rts), (fr_word)bytes, 0, 1, 2, 3, 0};
        bool is_short = bytes < FR_RNDV_RTS_BYTES;
        CHECK(fr_request_posted_add(FR_FN_MPI_Irecv, args, 16) == 0 && (posted = claim(16)), "%d",
              bytes);
        CHECK(fr_request_posted_has_rts(posted, "s") == !is_short, "%d", bytes);
        CHECK((buffer_of(posted) == rts) == !is_short, "%d", bytes);
        CHECK(fr_request_posted_may_have_rts(posted, NULL, TRUNCATED), "%d", bytes);
        CHECK(!fr_request_posted_may_have_rts(posted, NULL, TRUNCATED + 1), "%d", bytes);
        CHECK(fr_request_posted_may_have_rts(posted, NULL, 0) == (bytes >= BEGIN_BYTES), "%d",
              bytes);
        fr_request_posted_forget(posted);
    }
    fr_request_errors_may_return = false;
}

static void add_alone(fr_word request, const void *buffer)
{
    const fr_word args[] = {FR_PTR(buffer), MESSAGE_BYTES, 0, 1, 2, 3, 0};
    CHECK(fr_request_posted_add_alone(args, request) == 0, "%lx", (long)request);
}

// A thread that is alone ends its receives without a claim.
static void test_late(void)
{
    static const unsigned char plain[MESSAGE_BYTES] = NOTHING "B", rts[MESSAGE_BYTES] = NOTHING "A";
    const fr_word wide = (fr_word)1 << 62 | 16, list[5] = {16, NULL_REQUEST, 17, wide, 18};
    start();
    add_alone(list[0], plain);
    add_alone(list[2], rts);
    add_alone(list[4], rts);
    CHECK(atomic_load(&fr_request_posted_count) == 3 && atomic_load(&ops) == 0, "all have entries");
    CHECK(!fr_request_posted_end_late(list, 5, "sssss"), "an RTS");
    CHECK(atomic_load(&fr_request_posted_count) == 2 && !claim(list[0]), "data before it");
    CHECK(!fr_request_posted_end_one_late(list[2], NULL), "nor is it over without a status");
    CHECK(fr_request_posted_end_one_late(list[4], "l"), "it is longer than an RTS");
    CHECK(atomic_load(&fr_request_posted_count) == 1 && !claim(list[4]), "over");
    CHECK(fr_request_posted_end_one_late(wide, NULL), "not there");
    CHECK(fr_request_posted_end_late(list, 5, "lllll"), "it is longer, too");
    CHECK(atomic_load(&fr_request_posted_count) == 0 && !claim(list[2]), "all are over");
    add_alone(wide, rts);
    CHECK(atomic_load(&ops) == 1 && last_key == wide, "no room for the state");
    CHECK(fr_request_posted_end_late(list, 5, NULL), "which is none of these");
}

// A receive that is added reuses the entry of one that was completed in a way that nobody saw. It
// takes another entry where its own is taken, or claimed by a call that is not over.
static void test_late_reuse(void)
{
    static const unsigned char a[MESSAGE_BYTES], b[MESSAGE_BYTES];
    static unsigned char buffers[MANY][MESSAGE_BYTES];
    const fr_word again = 0x98000001;
    const uint32_t list[2] = {(uint32_t)again};
    start();
    fr_abi_mpi.handle_bytes = 4;
    add_alone(again, a);
    add_alone(again, b);
    CHECK(atomic_load(&fr_request_posted_count) == 1, "it counts no more");
    struct fr_request_posted *outer = claim(fr_abi_handle_load(list, 0));
    CHECK(outer && buffer_of(outer) == b, "the latest");
    add_alone(again, a); // from within the call
    CHECK(atomic_load(&fr_request_posted_count) == 2, "another one");
    CHECK(fr_request_posted_end_late(list, 1, "l"), "over");
    CHECK(buffer_of(outer) == b && !claim(again), "what is claimed stays");
    fr_request_posted_forget(outer);
    CHECK(atomic_load(&fr_request_posted_count) == 0, "and no other");
    fr_abi_mpi.handle_bytes = 8;
    for (size_t i = 0; i < MANY; i++)
        add_alone(0x5555000 + i * 0x60, buffers[i]);
    size_t beyond = atomic_load(&ops);
    CHECK(beyond > 0 && beyond < MANY / 2, "%zu of %d went beyond", beyond, MANY);
    for (size_t i = 0; i < MANY; i++)
        CHECK(fr_request_posted_end_one_late(0x5555000 + i * 0x60, "l"), "%zu", i);
    CHECK(atomic_load(&fr_request_posted_count) == 0, "all are over");
}
static void test_values(void)
{
    static const unsigned char buffer[MESSAGE_BYTES];
    static const fr_word wide[] = {1, 0x7ffffffffff8, 0xffffffff98000001, 0x2c000000};
    start();
    for (size_t i = 0; i < FR_ARRAY_LENGTH(wide); i++) {
        add(wide[i], buffer);
        struct fr_request_posted *receive = claim(wide[i]);
        CHECK(receive, "%lx", (long)wide[i]);
        fr_request_posted_forget(receive);
    }
    add((fr_word)1 << 62 | 8, buffer);
    CHECK(atomic_load(&ops) == 1 && last_key == ((fr_word)1 << 62 | 8), "no room for the state");
    add(8, buffer);
    CHECK(!claim((fr_word)1 << 62 | 8), "not to be taken for another");
    fr_request_posted_forget(claim(8));
    fr_abi_mpi.handle_bytes = 4;
    add(0x98000001, buffer);
    struct fr_request_posted *receive = claim(0x98000001);
    CHECK(receive, "an int");
    fr_request_posted_forget(receive);
}

static void test_overflow(void)
{
    static unsigned char buffers[MANY][MESSAGE_BYTES];
    size_t found = 0;
    start();
    for (size_t i = 0; i < MANY; i++)
        add(0x5555000 + i * 0x60, buffers[i]);
    size_t beyond = atomic_load(&ops);
    CHECK(beyond > 0 && beyond < MANY / 2, "%zu of %d went beyond", beyond, MANY);
    for (size_t i = 0; i < MANY; i++) {
        struct fr_request_posted *receive = claim(0x5555000 + i * 0x60);
        if (!receive)
            continue;
        CHECK(buffer_of(receive) == buffers[i], "%zu", i);
        fr_request_posted_forget(receive);
        found++;
    }
    CHECK(found + beyond == MANY, "%zu and %zu", found, beyond);
}

static void test_reuse(void)
{
    static const unsigned char a[MESSAGE_BYTES], b[MESSAGE_BYTES], c[MESSAGE_BYTES];
    start();
    add(72, a);
    struct fr_request_posted *first = claim(72);
    add(72, b); // MPI has completed it, and given its request to another receive
    struct fr_request_posted *second = claim(72);
    CHECK(second && second != first, "another one");
    CHECK(buffer_of(first) == a && buffer_of(second) == b, "each its own");
    fr_request_posted_forget(first);
    CHECK(!claim(72), "the second is still claimed");
    fr_request_posted_unclaim(&second, 1);
    add(72, c); // the second was completed in a way that nobody saw
    CHECK(atomic_load(&fr_request_posted_count) == 1, "it counts no more");
    second = claim(72);
    CHECK(second && buffer_of(second) == c, "the latest");
    fr_request_posted_forget(second);
    CHECK(!claim(72), "and no other");
}

static void test_look(void)
{
    static const unsigned char plain[MESSAGE_BYTES] = NOTHING "B", rts[MESSAGE_BYTES] = NOTHING "A";
    start();
    add(100, rts);
    add(101, plain);
    add(102, rts);
    add(103, rts);
    struct fr_request_posted *held = claim(103);
    fr_request_posted_look();
    CHECK(atomic_load(&ops) == 2 && last_key != 103 && last_buffer == rts,
          "have become operations");
    CHECK(atomic_load(&unclaims) == 2 && !claim(100) && !claim(102), "the side table has them");
    fr_request_posted_look();
    CHECK(atomic_load(&ops) == 2, "another thread is completing the one, the other is no RTS");
    struct fr_request_op *op = fr_request_posted_promote(held, false);
    CHECK(op && op->claim.held && last_key == 103, "stays claimed");
    free(op);
    fr_request_posted_forget(claim(101));
}

// Another thread looks at an entry that a thread has claimed, unless that thread may have left it.
static void test_take(void)
{
    static const unsigned char plain[MESSAGE_BYTES] = NOTHING "B", rts[MESSAGE_BYTES] = NOTHING "A";
    const fr_word args[] = {FR_PTR(rts), MESSAGE_BYTES, 0, 1, 2, 3, 0};
    struct fr_rndv_incoming incoming[2];
    start();
    taken = 0;
    CHECK(fr_request_posted_take_incoming(incoming, 2) == 0 && taken == 0, "there is none");
    add(100, rts);
    add(101, plain);
    struct fr_request_posted *one = claim(100), *other = claim(101);
    CHECK(fr_request_posted_take_incoming(incoming, 2) == 0 && taken == 1, "%zu", taken);
    fr_request_posted_note_at_once();
    CHECK(fr_request_posted_notes_at_once() == !is_serial, "from now on");
    struct fr_request_posted *at_once = fr_request_posted_begin(FR_FN_MPI_Recv, args);
    is_known = false;
    CHECK(fr_request_posted_take_incoming(incoming, 2) == 2 && taken == 3, "%zu", taken);
    CHECK(fr_request_posted_take_incoming(incoming, 1) == 1 && taken == 4, "%zu", taken);
    atomic_store(&fr_request_has_handler, true);
    CHECK(fr_request_posted_take_incoming(incoming, 2) == 0 && taken == 4, "%zu", taken);
    CHECK(!fr_request_posted_notes_at_once(), "a thread may have left it");
    atomic_store(&fr_request_has_handler, false);
    is_known = true;
    fr_request_posted_forget(at_once);
    fr_request_posted_forget(other);
    fr_request_posted_unclaim(&one, 1);
    CHECK(fr_request_posted_take_incoming(incoming, 2) == 0 && taken == 4, "%zu", taken);
    CHECK(atomic_load(&ops) == 1 && last_key == 100, "nobody has claimed it");
}

// Gives out the requests of an MPI of twelve.
static fr_word take_number(unsigned from)
{
    for (unsigned i = from;; i++) {
        int none = 0;
        fr_word number = 1 + i % NUMBERS;
        if (atomic_compare_exchange_strong(&live[number], &none, 1))
            return number;
        if (i % NUMBERS == 0)
            sched_yield();
    }
}

static void *receive_often(void *argument)
{
    unsigned char buffer[MESSAGE_BYTES] = NOTHING "B";
    uint64_t state = (uint64_t)(uintptr_t)argument;
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t dice = check_random(&state);
        fr_word number = take_number((unsigned)(dice >> 32));
        add(number, buffer);
        struct fr_request_posted *receive = claim(number);
        CHECK(receive && buffer_of(receive) == buffer, "round %d", round);
        if (!receive)
            break;
        if (dice & 1) { // not complete yet
            fr_request_posted_unclaim(&receive, 1);
            receive = claim(number);
            CHECK(receive && buffer_of(receive) == buffer, "round %d", round);
        }
        atomic_store(&live[number], 0); // from here on it may be another's
        if ((dice & 6) == 0)
            sched_yield();
        fr_request_posted_forget(receive);
    }
    return NULL;
}

static _Atomic bool looking;

static void *look_often(void *argument)
{
    struct fr_rndv_incoming incoming;
    (void)argument;
    while (atomic_load(&looking)) {
        fr_request_posted_look();
        CHECK(fr_request_posted_take_incoming(&incoming, 1) == 0, "there is no RTS");
        sched_yield();
    }
    return NULL;
}

static void test_threads(void)
{
    pthread_t threads[THREADS], looker;
    start();
    atomic_store(&looking, true);
    pthread_create(&looker, NULL, look_often, NULL);
    for (size_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, receive_often, (void *)(i + 1));
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    atomic_store(&looking, false);
    pthread_join(looker, NULL);
    CHECK(atomic_load(&fr_request_posted_count) == 0, "all forgotten");
    CHECK(atomic_load(&ops) == 0, "twelve always find an entry");
}

static int moves; // to do
static _Atomic int begun, watched, moved;

static void await(const _Atomic int *value, int wanted)
{
    while (atomic_load_explicit(value, memory_order_acquire) < wanted)
        sched_yield();
}

static void *watch(void *argument)
{
    size_t missed = 0;
    (void)argument;
    for (int move = 1; move <= moves; move++) {
        await(&begun, move);
        atomic_store(&watched, 2 * move - 1);
        for (unsigned looks = 1; atomic_load_explicit(&moved, memory_order_acquire) < move;
             looks++) {
            missed += !fr_request_any_tracked();
            if (looks % LOOKS_A_YIELD == 0)
                sched_yield(); // where threads take turns, as under valgrind
        }
        atomic_store(&watched, 2 * move);
    }
    CHECK(missed == 0, "%zu times", missed);
    return NULL;
}

// A receive that becomes an operation is one or the other all the time.
static void test_moves(void)
{
    static const unsigned char rts[MESSAGE_BYTES] = NOTHING "A";
    pthread_t watcher;
    const char *scope = getenv("FR_TEST_SCOPE");
    moves = scope && strcmp(scope, "light") == 0 ? LIGHT_MOVES : MOVES;
    start();
    pthread_create(&watcher, NULL, watch, NULL);
    for (int move = 1; move <= moves; move++) {
        add(200, rts);
        atomic_store(&fr_request_tracked_count, 0);
        atomic_store(&begun, move);
        await(&watched, 2 * move - 1);
        free(fr_request_posted_promote(claim(200), false));
        atomic_store(&moved, move);
        await(&watched, 2 * move);
    }
    pthread_join(watcher, NULL);
}

static void test_alone(void)
{
    test_lists();
    test_end();
    test_short();
    test_late();
    test_late_reuse();
    test_values();
    test_overflow();
    test_reuse();
    test_look();
    test_take();
}

int main(void)
{
    fr_abi_rows_fill();
    test_alone();
    test_threads();
    test_moves();
    CHECK(!fr_request_alone, "nobody has said so");
    fr_request_set_serial(true);
    CHECK(fr_request_alone && fr_core_serial, "calls come one at a time");
    is_serial = true;
    test_alone();
    fr_request_set_serial(false);
    fr_request_set_serial(true);
    CHECK(!fr_request_alone && !fr_core_serial, "there may be threads that nothing was said of");
    test_threads();
    return check_result();
}
