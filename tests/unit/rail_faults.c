// SPDX-License-Identifier: BSD-3-Clause
// Rails that fail, on the stand-in for libfabric: errors, silence, the end of all links,
// completions that come twice, endpoints that cannot be closed. The data are right, or the transfer
// ends with an error and nothing touches its memory any more.
#include "config.h"

#include "logged.h"
#include "rail_standin.h"

#include <sys/wait.h>
#include <unistd.h>

static void test_error(void)
{
    for (unsigned rail = 0; rail < 4; rail++) {
        begin_usual();
        read_and_check(0, 0, 1 << 20);
        standin->error[rail] = FI_EIO;
        // A rail that seemed slow, since nobody polled it in time, has no part of some reads.
        double until = seconds() + 20;
        do
            read_and_check(0, 0, MEMORY);
        while (counters_of(rail).errors == 0 && seconds() < until);
        struct fr_rail_counters counters = counters_of(rail);
        CHECK(counters.errors == 2 && !counters.out, "%llu errors",
              (unsigned long long)counters.errors); // the stripe and its link
        uint64_t again = 0;
        for (unsigned i = 0; i < 4; i++)
            again += counters_of(i).again;
        CHECK(again >= 1 && counters.again == 0);
        uint64_t before = counters.stripes;
        read_and_check(5, 5, MEMORY / 2);
        CHECK(counters_of(rail).stripes == before, "a lost link was used");
        close_pair();
    }
}

// With libfabric 1.17 what completes after an error may have the bytes of another read. All that
// was on its way there is read again, of whichever process it was, and the rail goes on.
static void test_error_that_mixes(void)
{
    for (unsigned rail = 0; rail < 4; rail++) {
        begin_case();
        standin->version = FI_VERSION(1, 17);
        standin->mixes = true;
        open_usual();
        read_and_check(0, 0, 1 << 20);
        struct fr_rail_transfer *first = start_read(0, 0, MEMORY / 2);
        struct fr_rail_transfer *second = start_read(MEMORY / 2, MEMORY / 2, MEMORY / 2);
        standin->error[rail] = FI_EIO;
        CHECK(wait_for(first) == FR_OK && wait_for(second) == FR_OK);
        check_read(0, 0, MEMORY);
        CHECK(count_events(STANDIN_EP_CLOSED, rail) == 1);
        CHECK(!counters_of(rail).out);
        read_and_check(0, 0, MEMORY);
        close_pair();
    }
}

// One whose initiator cannot be closed is out, and not closed again and again.
static void test_unclosable_that_mixes(void)
{
    begin_case();
    standin->version = FI_VERSION(1, 17);
    open_usual();
    standin->error[1] = FI_EIO;
    standin->fails_on = true;
    fail_call("fi_close_ep", 1, -FI_EBUSY);
    (void)wait_for(start_read(0, 0, MEMORY));
    for (int i = 0; i < 100; i++)
        fr_rail_poll(near);
    CHECK(standin->calls == 1 && counters_of(1).out, "closed %u times", standin->calls);
    read_and_check(0, 0, MEMORY);
    standin->fail_call = NULL;
    close_pair();
}

// Module rail asks libfabric once for its version.
static void run_apart(void (*test)(void))
{
    int status = -1;
    pid_t child = fork();
    if (child == 0) {
        test();
        exit(check_result());
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0, "status %d", status);
}

// An error, and then nothing more is heard of what else is on its way there.
static void test_error_and_silence(void)
{
    begin_usual();
    standin->error[1] = FI_EIO;
    standin->batch = 1;
    struct fr_rail_transfer *transfer = start_read(0, 0, MEMORY);
    while (counters_of(1).errors == 0)
        fr_rail_poll(near);
    standin->stalled[1] = true;
    CHECK(wait_for(transfer) == FR_OK);
    check_read(0, 0, MEMORY);
    CHECK(count_events(STANDIN_EP_CLOSED, 1) == 1);
    close_pair();
}

// Over a lost link nothing of a write is sent again.
static void test_error_of_write(void)
{
    struct fr_rail_transfer *transfer = NULL;
    begin_usual();
    standin->error[2] = FI_EIO;
    CHECK(fr_rail_write(near, FAR, key, key_bytes, 0, near_region, 0, MEMORY, &transfer) == FR_OK);
    CHECK(wait_for(transfer) == FR_ERR_RAIL);
    for (unsigned i = 0; i < 4; i++)
        CHECK(counters_of(i).again == 0);
    CHECK(counters_of(2).errors == 2);
    CHECK(wait_for(start_read(0, 0, 1000)) == FR_OK);
    close_pair();
}

// A write does not end as cancelled while something of it may still land.
static void test_cancel_of_write(void)
{
    for (int stalled = 0; stalled <= 1; stalled++) {
        struct fr_rail_transfer *transfer = NULL;
        begin_usual();
        CHECK(fr_rail_write(near, FAR, key, key_bytes, 0, near_region, 0, MEMORY, &transfer) ==
              FR_OK);
        fr_rail_poll(near);
        standin->stalled[2] = stalled;
        fr_rail_cancel(transfer);
        CHECK(wait_for(transfer) == (stalled ? FR_ERR_RAIL : FR_ERR_CANCELLED));
        CHECK(counters_of(2).errors == (unsigned)stalled);
        close_pair();
    }
}

// Memory that the owner has given up is refused: an error of the transfer and of no link.
static void test_refusal(void)
{
    begin_usual();
    fr_rail_release(far, far_region);
    fr_rail_forget(far, 2);
    far_region = NULL;
    CHECK(wait_for(start_read(0, 0, MEMORY)) == FR_ERR_RAIL);
    far_region = register_with(far, far_memory, MEMORY, 3, FR_RAIL_HOST);
    key_bytes = fr_rail_describe(far_region, 0, MEMORY, key);
    read_and_check(0, 0, MEMORY);
    close_pair();
}

static void test_silence(void)
{
    unsigned all_replaced = 0;
    for (unsigned rail = 0; rail < 4; rail++) {
        begin_usual();
        read_and_check(0, 0, 1 << 20);
        standin->stalled[rail] = true;
        standin->events_count = 0;
        // A rail that seemed slow, since nobody polled it in time, has no part of some reads.
        double until = seconds() + 20;
        do
            read_and_check(0, 0, MEMORY);
        while (counters_of(rail).errors == 0 && seconds() < until);
        // Stripes that the rail never took leave nothing on its way, and only for that an initiator
        // is replaced.
        unsigned replaced = count_events(STANDIN_EP_CLOSED, -1);
        CHECK(replaced <= 1 && count_events(STANDIN_EP_CLOSED, (int)rail) == replaced, "%u times",
              replaced);
        all_replaced += replaced;
        CHECK(counters_of(rail).errors == 1 && counters_of(rail).again == 0);
        // Stripes that were on their way there are gone with the endpoint.
        memset(near_memory, 0x55, MEMORY);
        standin->stalled[rail] = false;
        for (int i = 0; i < 100; i++)
            fr_rail_poll(near);
        for (size_t i = 0; i < MEMORY; i++)
            if (near_memory[i] != 0x55) {
                CHECK(false, "byte %zu was written after the end", i);
                break;
            }
        read_and_check(9, 9, MEMORY / 2);
        close_pair();
    }
    CHECK(all_replaced >= 1);
}

// The last stripe of all is on the silent rail, and nothing else is on its way: a few bytes read
// once more over another rail tell that the peer is there.
static void test_silent_tail(void)
{
    for (unsigned rank = 0; rank < 4; rank++) {
        struct fr_rail_options options = usual_options();
        options.rank = rank;
        begin_with(&options);
        standin->stalled[rank] = true;
        read_and_check(0, 0, 5000);
        CHECK(counters_of(rank).errors == 1);
        close_pair();
    }
    // Two of four are silent; the first probe may well meet the other.
    for (unsigned other = 1; other < 4; other++) {
        begin_usual();
        standin->stalled[0] = standin->stalled[other] = true;
        read_and_check(0, 0, 5000);
        read_and_check(1, 1, MEMORY / 2);
        close_pair();
    }
}

// A rail that takes nothing, as one over sockets whose connection is never made: what is planned
// there goes over others. Where none of them moves the peer may be busy.
static void test_unconnected(void)
{
    for (unsigned rank = 0; rank < 4; rank++) {
        struct fr_rail_options options = usual_options();
        options.rank = rank;
        begin_with(&options);
        standin->again[rank] = true;
        read_and_check(0, 0, 5000);
        read_and_check(0, 0, MEMORY);
        CHECK(counters_of(rank).errors == 1 && counters_of(rank).stripes == 0);
        CHECK(count_events(STANDIN_EP_CLOSED, -1) == 0, "nothing was on its way");
        close_pair();
    }
    begin_usual();
    for (unsigned i = 0; i < 4; i++)
        standin->again[i] = true;
    struct fr_rail_transfer *transfer = start_read(0, 0, MEMORY);
    poll_near_for(0.5);
    CHECK(!is_ended(transfer));
    for (unsigned i = 0; i < 4; i++) {
        CHECK(counters_of(i).errors == 0, "rail %u", i);
        standin->again[i] = false;
    }
    CHECK(wait_for(transfer) == FR_OK);
    check_read(0, 0, MEMORY);
    close_pair();
}

// The link that is tried to see whether the peer is there is silent itself, and all else has come.
static void test_silent_probe(void)
{
    begin_usual();
    stall_all(true);
    struct fr_rail_transfer *transfer = start_read(0, 0, 5000);
    uint64_t posted = 0;
    while (posted < 2) {
        fr_rail_poll(near);
        posted = 0;
        for (unsigned i = 0; i < 4; i++)
            posted += counters_of(i).stripes;
    }
    standin->stalled[0] = false; // where the stripe itself is
    CHECK(wait_for(transfer) == FR_OK);
    check_read(0, 0, 5000);
    close_pair();
}

// A link that was silent, and then heard that the memory is not what it was described as.
static void test_silent_refusal(void)
{
    struct fr_rail_options options = usual_options();
    begin_case();
    standin->nics = 1;
    CHECK(open_pair(&options, FR_RAIL_HOST));
    standin->stalled[0] = true;
    struct fr_rail_transfer *transfer = start_read(0, 0, 5000);
    poll_near_for(0.3);
    fr_rail_release(far, far_region);
    fr_rail_forget(far, 2);
    standin->stalled[0] = false;
    CHECK(wait_for(transfer) == FR_ERR_RAIL);
    far_region = register_with(far, far_memory, MEMORY, 3, FR_RAIL_HOST);
    key_bytes = fr_rail_describe(far_region, 0, MEMORY, key);
    read_and_check(0, 0, 5000);
    close_pair();
}

// A peer that answers on no link may be busy: nothing is lost while there is no time-out.
static void test_busy_peer(void)
{
    begin_usual();
    stall_all(true);
    struct fr_rail_transfer *transfer = start_read(0, 0, MEMORY);
    poll_near_for(0.5);
    CHECK(!is_ended(transfer));
    for (unsigned i = 0; i < 4; i++) {
        CHECK(counters_of(i).errors == 0, "rail %u", i);
        standin->stalled[i] = false;
    }
    CHECK(wait_for(transfer) == FR_OK);
    check_read(0, 0, MEMORY);
    close_pair();
}

// One that was busy for long answers on one link before the others: none of them is to blame.
static void test_waking_peer(void)
{
    struct fr_rail_options options = usual_options();
    options.stall_ns = 400000000;
    begin_with(&options);
    read_and_check(0, 0, 1 << 20);
    stall_all(true);
    struct fr_rail_transfer *transfer = start_read(0, 0, MEMORY);
    poll_near_for(1);
    standin->stalled[0] = false;
    poll_near_for(0.02); // long enough for a look at the links
    for (unsigned i = 1; i < 4; i++)
        standin->stalled[i] = false;
    CHECK(wait_for(transfer) == FR_OK);
    check_read(0, 0, MEMORY);
    for (unsigned i = 0; i < 4; i++)
        CHECK(counters_of(i).errors == 0, "rail %u", i);
    close_pair();
}

static void test_timeout(void)
{
    struct fr_rail_options options = usual_options();
    options.timeout_ns = 300000000;
    begin_with(&options);
    read_and_check(0, 0, 1 << 20);
    stall_all(true);
    struct fr_rail_transfer *first = start_read(0, 0, MEMORY);
    struct fr_rail_transfer *second = start_read(0, 0, 10);
    CHECK(wait_for(first) == FR_ERR_RAIL);
    CHECK(wait_for(second) == FR_ERR_RAIL);
    CHECK(wait_for(start_read(0, 0, 10)) == FR_ERR_RAIL, "at once");
    memset(near_memory, 0x55, MEMORY);
    stall_all(false);
    for (int i = 0; i < 100; i++)
        fr_rail_poll(near);
    CHECK(near_memory[0] == 0x55 && memcmp(near_memory, near_memory + 1, MEMORY - 1) == 0,
          "bytes came after the end");
    close_pair();
}

static void test_cancel(void)
{
    begin_usual();
    struct fr_rail_transfer *transfer = start_read(0, 0, MEMORY);
    fr_rail_poll(near);
    fr_rail_cancel(transfer);
    CHECK(wait_for(transfer) == FR_ERR_CANCELLED);
    read_and_check(0, 0, MEMORY);
    // Transfers with a peer that does not answer are ended after a while.
    stall_all(true);
    transfer = start_read(0, 0, MEMORY);
    fr_rail_poll(near);
    fr_rail_cancel(transfer);
    enum fr_status status = wait_for(transfer);
    CHECK(status == FR_ERR_CANCELLED, "%s", fr_core_status_text(status));
    memset(near_memory, 0x55, MEMORY);
    stall_all(false);
    for (int i = 0; i < 100; i++)
        fr_rail_poll(near);
    CHECK(memcmp(near_memory, near_memory + 1, MEMORY - 1) == 0, "bytes came after the end");
    close_pair();
}

static void test_twice(void)
{
    for (unsigned later = 1; later <= 5; later++) {
        begin_usual();
        standin->twice = later;
        for (int i = 0; i < 20; i++)
            read_and_check(0, 0, 300000 + (size_t)i * 40001);
        read_and_check(0, 0, MEMORY);
        close_pair();
    }
}

// An endpoint that cannot be closed may still write: the transfer fails, and others go on without
// it.
static void test_unclosable(void)
{
    begin_usual();
    read_and_check(0, 0, 1 << 20);
    standin->stalled[1] = true;
    fail_call("fi_close_ep", 1, -FI_EBUSY);
    struct fr_rail_transfer *transfer = start_read(0, 0, MEMORY);
    CHECK(wait_for(transfer) == FR_ERR_RAIL);
    CHECK(counters_of(1).out);
    standin->fail_call = NULL;
    read_and_check(0, 0, MEMORY);
    close_pair();
}

// The endpoint in its place cannot be opened: the rail is out, and the data come over the others.
static void test_unopenable(void)
{
    static const char *const calls[] = {"fi_endpoint", "fi_cq_open", "fi_enable", "fi_ep_bind"};
    for (size_t i = 0; i < FR_ARRAY_LENGTH(calls); i++) {
        begin_usual();
        read_and_check(0, 0, 1 << 20);
        standin->stalled[1] = true;
        fail_call(calls[i], 1, -FI_ENOMEM);
        read_and_check(0, 0, MEMORY);
        CHECK(counters_of(1).out);
        read_and_check(5, 5, MEMORY / 2);
        close_pair();
    }
}

// A silent link of one process does not keep another waiting, and a rail that lost its links to two
// is out.
static void test_two_peers(void)
{
    unsigned char address[FR_RAIL_ADDRESS_MAX];
    struct fr_rail_transfer *transfer = NULL;
    begin_usual();
    size_t length = fr_rail_address(far, address);
    CHECK(fr_rail_peer_add(near, FAR + 1, address, length) == FR_OK);
    standin->error[0] = FI_EIO;
    standin->errors_stay = true;
    read_and_check(0, 0, MEMORY);
    CHECK(!counters_of(0).out);
    for (size_t i = 0; i < 8; i++) { // small ones, which take turns
        CHECK(fr_rail_read(near, FAR + 1, key, key_bytes, i, near_region, i, 1000, &transfer) ==
              FR_OK);
        CHECK(wait_for(transfer) == FR_OK);
    }
    CHECK(memcmp(near_memory, expected, 1007) == 0);
    CHECK(counters_of(0).out);
    close_pair();
}

// Lost links and rails are tried again: a link after an error, and a rail whose endpoint could not
// be opened.
static void test_back_again(void)
{
    struct fr_rail_options options = usual_options();
    options.retry_ns = 1000000000;
    for (int silent = 0; silent <= 1; silent++) {
        begin_with(&options);
        standin->error[1] = silent ? 0 : FI_EIO;
        standin->stalled[1] = silent;
        fail_call("fi_endpoint", 1, -FI_ENOMEM);
        double start = seconds();
        read_and_check(0, 0, MEMORY);
        CHECK(counters_of(1).out == silent || seconds() > start + 1);
        standin->stalled[1] = false;
        uint64_t before = counters_of(1).stripes;
        read_and_check(0, 0, 1000 * 4);
        CHECK(counters_of(1).stripes == before || seconds() > start + 1, "it was used at once");
        before = counters_of(1).stripes;
        while (seconds() < start + 30 && counters_of(1).stripes == before)
            read_and_check(0, 0, 1000); // a small one, which take turns
        CHECK(counters_of(1).stripes > before && !counters_of(1).out, "it was not tried again");
        close_pair();
    }
}

// A process that does not poll has what was lost back as well once it does. A link that a trial
// loses causes no warning.
static void test_back_after_rest(void)
{
    struct fr_rail_options options = usual_options();
    options.retry_ns = 500000000;
    for (int trial = 0; trial <= 1; trial++) {
        begin_with(&options);
        for (int nic = 0; nic < 4; nic++)
            standin->error[nic] = FI_EIO;
        standin->errors_stay = true;
        struct fr_rail_transfer *transfer = start_read(0, 0, MEMORY);
        if (trial)
            fr_rail_expect_loss(transfer);
        memset(logged, 0, sizeof(logged));
        CHECK(wait_for(transfer) == FR_ERR_RAIL);
        CHECK(logged[FR_LOG_WARN] == (trial ? 0 : 4) && logged[FR_LOG_ERROR] == (trial ? 0 : 1),
              "%u warnings, %u errors", logged[FR_LOG_WARN], logged[FR_LOG_ERROR]);
        CHECK(fr_rail_peer_retry(near, FAR) == 0 && fr_rail_peer_rails(near, FAR) == 0);
        memset(standin->error, 0, sizeof(standin->error));
        usleep(600000);
        CHECK(fr_rail_peer_retry(near, FAR) == 0, "by the last poll");
        fr_rail_poll(near);
        CHECK(fr_rail_peer_rails(near, FAR) == 0);
        CHECK(fr_rail_peer_retry(near, FAR) == 4 && fr_rail_peer_rails(near, FAR) == 4);
        read_and_check(0, 0, MEMORY);
        close_pair();
    }
}

static struct fr_rail_transfer *start_read_of(unsigned peer, size_t bytes)
{
    struct fr_rail_transfer *transfer = NULL;
    CHECK(fr_rail_read(near, peer, key, key_bytes, 0, near_region, 0, bytes, &transfer) == FR_OK);
    return transfer;
}

static void add_more_peers(unsigned count)
{
    unsigned char address[FR_RAIL_ADDRESS_MAX];
    size_t length = fr_rail_address(far, address);
    for (unsigned i = 1; i <= count; i++)
        CHECK(fr_rail_peer_add(near, FAR + i, address, length) == FR_OK);
}

// Two processes that have gone silent at once: what is on its way from both ends, and neither keeps
// the rails from others.
static void test_two_silent_peers(void)
{
    for (int cancelled = 0; cancelled <= 1; cancelled++) {
        struct fr_rail_transfer *others[2];
        struct fr_rail_options options = usual_options();
        options.timeout_ns = cancelled ? 0 : 300000000;
        begin_with(&options);
        add_more_peers(2);
        stall_all(true);
        for (unsigned i = 0; i < 2; i++)
            others[i] = start_read_of(FAR + 1 + i, MEMORY / 4);
        fr_rail_poll(near);
        for (unsigned i = 0; cancelled && i < 2; i++)
            fr_rail_cancel(others[i]);
        CHECK(wait_for(others[0]) != FR_OK && wait_for(others[1]) != FR_OK);
        stall_all(false);
        close_pair();
    }
}

// The loss of a link that is tried again says nothing of the rails, since it was lost before.
static void test_trials_of_two(void)
{
    begin_usual();
    add_more_peers(2);
    for (int nic = 0; nic < 4; nic++)
        standin->error[nic] = FI_EIO;
    standin->errors_stay = true;
    for (unsigned i = 1; i <= 2; i++) {
        struct fr_rail_transfer *trial = start_read_of(FAR + i, MEMORY);
        fr_rail_expect_loss(trial);
        CHECK(wait_for(trial) == FR_ERR_RAIL);
        CHECK(fr_rail_peer_rails(near, FAR + i) == 0);
    }
    memset(standin->error, 0, sizeof(standin->error));
    for (unsigned i = 0; i < 4; i++)
        CHECK(!counters_of(i).out, "rail %u", i);
    read_and_check(0, 0, MEMORY);
    close_pair();
}

// The loss of a link by cancelled transfers says nothing of the rails either, and a long transfer
// of another process goes on.
static void test_cancel_of_two(void)
{
    struct fr_rail_transfer *others[2];
    begin_usual();
    add_more_peers(2);
    stall_all(true);
    for (unsigned i = 0; i < 2; i++)
        others[i] = start_read_of(FAR + 1 + i, 1000);
    struct fr_rail_transfer *transfer = start_read(0, 0, MEMORY);
    fr_rail_poll(near);
    for (unsigned i = 0; i < 2; i++)
        fr_rail_cancel(others[i]);
    poll_near_for(0.3);
    CHECK(fr_rail_peer_rails(near, FAR + 1) < 4 && fr_rail_peer_rails(near, FAR + 2) < 4);
    stall_all(false);
    CHECK(wait_for(transfer) == FR_OK);
    for (unsigned i = 0; i < 2; i++)
        (void)wait_for(others[i]);
    check_read(0, 0, MEMORY);
    for (unsigned i = 0; i < 4; i++)
        CHECK(!counters_of(i).out, "rail %u", i);
    close_pair();
}

// Two processes that no rail reaches say nothing of the rails, and keep them from nobody.
static void test_two_out_of_reach(void)
{
    begin_usual();
    add_more_peers(2);
    for (int nic = 0; nic < 4; nic++)
        standin->error[nic] = FI_EHOSTUNREACH;
    standin->errors_stay = true;
    for (unsigned i = 1; i <= 2; i++)
        CHECK(wait_for(start_read_of(FAR + i, MEMORY)) == FR_ERR_RAIL);
    memset(standin->error, 0, sizeof(standin->error));
    for (unsigned i = 0; i < 4; i++)
        CHECK(!counters_of(i).out, "rail %u", i);
    read_and_check(0, 0, MEMORY);
    for (unsigned i = 0; i < 4; i++)
        CHECK(counters_of(i).read_bytes > 0, "rail %u", i);
    close_pair();
}

// One that was cancelled does not end what others still want of a silent process.
static void test_cancel_beside(void)
{
    struct fr_rail_options options = usual_options();
    options.timeout_ns = 0;
    begin_with(&options);
    stall_all(true);
    struct fr_rail_transfer *cancelled = start_read(0, 0, MEMORY / 2);
    struct fr_rail_transfer *other = start_read(MEMORY / 2, MEMORY / 2, MEMORY / 2);
    fr_rail_poll(near);
    fr_rail_cancel(cancelled);
    poll_near_for(4 * (double)options.stall_ns * 1e-9);
    CHECK(!is_ended(cancelled) && !is_ended(other));
    stall_all(false);
    CHECK(wait_for(other) == FR_OK);
    CHECK(wait_for(cancelled) == FR_ERR_CANCELLED);
    CHECK(memcmp(near_memory + MEMORY / 2, expected + MEMORY / 2, MEMORY / 2) == 0);
    close_pair();
}

// A process that was met while a rail was out is reached by that rail too once it is back, and so
// is memory that was registered then.
static void test_met_while_out(void)
{
    struct fr_rail_options options = usual_options();
    options.retry_ns = 200000000;
    begin_with(&options);
    add_more_peers(2);
    standin->error[0] = FI_EIO;
    standin->errors_stay = true;
    // A rail is given nothing while others are expected to be done sooner, but not for ever.
    double until = seconds() + 60;
    for (unsigned i = 0; seconds() < until && !counters_of(0).out; i++)
        CHECK(wait_for(start_read_of(FAR + i % 2, MEMORY)) == FR_OK);
    CHECK(counters_of(0).out);
    CHECK(wait_for(start_read_of(FAR + 2, 0)) == FR_OK);
    struct fr_rail_region *met = register_with(near, near_memory, MEMORY, 77, FR_RAIL_HOST);
    memset(standin->error, 0, sizeof(standin->error));
    while (seconds() < until && counters_of(0).out)
        fr_rail_poll(near);
    CHECK(!counters_of(0).out && fr_rail_peer_retry(near, FAR + 2) == 4);
    unsigned long long before = counters_of(0).read_bytes;
    while (seconds() < until && counters_of(0).read_bytes == before) {
        struct fr_rail_transfer *transfer = NULL;
        CHECK(fr_rail_read(near, FAR + 2, key, key_bytes, 0, met, 0, MEMORY, &transfer) == FR_OK);
        CHECK(wait_for(transfer) == FR_OK);
    }
    CHECK(counters_of(0).read_bytes > before);
    fr_rail_release(near, met);
    CHECK(memcmp(near_memory, expected, MEMORY) == 0);
    close_pair();
}

// Stripes on their way over rails that are out, to a process that has gone silent, end as well.
static void test_silent_while_out(void)
{
    struct fr_rail_options options = usual_options();
    options.timeout_ns = 500000000;
    begin_with(&options);
    add_more_peers(2);
    standin->swallows = true;
    struct fr_rail_transfer *transfer = start_read(0, 0, 1 << 20);
    fr_rail_poll(near);
    standin->swallows = false;
    standin->error[0] = FI_EIO;
    standin->errors_stay = true;
    for (unsigned i = 1; i <= 2; i++)
        CHECK(wait_for(start_read_of(FAR + i, MEMORY)) == FR_OK);
    CHECK(counters_of(0).out);
    CHECK(wait_for(transfer) == FR_ERR_RAIL);
    close_pair();
}

// Links on which something was lost answer to each other's probes, which does not make up for it.
static void test_losses_everywhere(void)
{
    struct fr_rail_options options = usual_options();
    options.timeout_ns = 500000000;
    options.max = 2;
    begin_with(&options);
    standin->swallows = true;
    struct fr_rail_transfer *transfer = start_read(0, 0, 1 << 20);
    fr_rail_poll(near);
    standin->swallows = false;
    CHECK(wait_for(transfer) == FR_ERR_RAIL);
    close_pair();
}

int main(void)
{
    load_standin();
    run_apart(test_error_that_mixes);
    run_apart(test_unclosable_that_mixes);
    test_error();
    test_error_and_silence();
    test_error_of_write();
    test_cancel_of_write();
    test_refusal();
    test_silence();
    test_silent_tail();
    test_unconnected();
    test_silent_probe();
    test_silent_refusal();
    test_busy_peer();
    test_waking_peer();
    test_timeout();
    test_cancel();
    test_twice();
    test_unclosable();
    test_unopenable();
    test_two_peers();
    test_back_again();
    test_back_after_rest();
    test_two_silent_peers();
    test_trials_of_two();
    test_cancel_of_two();
    test_cancel_beside();
    test_two_out_of_reach();
    test_met_while_out();
    test_silent_while_out();
    test_losses_everywhere();
    return check_result();
}
