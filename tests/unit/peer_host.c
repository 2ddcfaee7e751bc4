// SPDX-License-Identifier: BSD-3-Clause
// The memory that the processes of a host share: who gets in and how long its name lasts, and notes
// between all of them, through boxes that are full or that a process died in.
#include "config.h"

#include "peer/host_int.h"

#include "peer_host.h"

#include <sched.h>

// One process: what is refused, memory that the other one never comes to, and memory of its own.
static void run_open(void)
{
    struct fr_peer_note note = {.kind = FR_NOTE_FREED};
    CHECK(fr_control_secret_draw(&host_secret) == FR_OK);
    CHECK(fr_peer_host_index() == -1 && fr_peer_host_process(0) == NULL);
    CHECK(!fr_peer_host_is_ready() && !fr_peer_host_put(0, &note) && !fr_peer_host_take(&note));
    fr_peer_host_close();
    CHECK(host_open_as(1, 2) == FR_ERR_NOT_FOUND);
    CHECK(host_open_as(0, 0) == FR_ERR_INVALID && host_open_as(2, 2) == FR_ERR_INVALID);
    CHECK(host_open_as(-1, 2) == FR_ERR_INVALID && !host_has_name());

    CHECK(host_open_as(0, 2) == FR_OK && host_has_name());
    CHECK(host_open_as(0, 2) == FR_ERR_INVALID, "twice");
    CHECK(fr_peer_host_index() == 0 && !fr_peer_host_is_ready());
    CHECK(!fr_peer_host_put(0, &note) && !fr_peer_host_put(1, &note) && !fr_peer_host_take(&note));
    CHECK(fr_peer_host_process(1)->cookie == 101 && fr_peer_host_process(2) == NULL);
    CHECK(fr_peer_host_process(-1) == NULL);
    fr_peer_host_close();
    CHECK(!host_has_name(), "closed before all had attached");
    fr_peer_host_close();

    CHECK(host_open_as(0, 1) == FR_OK && !host_has_name() && fr_peer_host_is_ready());
    CHECK(!fr_peer_host_put(1, &note) && !fr_peer_host_put(-1, &note));
    CHECK(fr_peer_host_put(0, &note) && fr_peer_host_take(&note) && note.from == 0);
    fr_peer_host_close();
    CHECK(fr_peer_host_index() == -1 && !fr_peer_host_take(&note));
}

// The last one to attach takes the name away; who comes with other numbers is refused.
static void run_attach(void)
{
    if (process_rank == 0) {
        CHECK(fr_control_secret_draw(&host_secret) == FR_OK &&
              host_open_as(0, process_count) == FR_OK);
        for (int rank = 1; rank < process_count; rank++)
            process_say(rank, &host_secret, sizeof(host_secret));
        process_meet();
        CHECK(!fr_peer_host_is_ready() && host_has_name());
    } else {
        process_hear(0, &host_secret, sizeof(host_secret));
        CHECK(host_open_as(process_rank, process_count + 1) == FR_ERR_INVALID);
        process_meet();
    }
    for (int rank = 1; rank < process_count; rank++) {
        if (process_rank == rank)
            CHECK(host_open_as(rank, process_count) == FR_OK);
        process_meet();
        bool last = rank == process_count - 1;
        CHECK(host_has_name() == !last);
        CHECK(process_rank > rank || fr_peer_host_is_ready() == last);
        process_meet();
    }
    host_close_all();
}

struct note_counts {
    uint64_t next[PROCESSES_MAX]; // number that is expected from each process
    unsigned taken;
};

static void take_checked(struct note_counts *counts)
{
    struct fr_peer_note note;
    if (!fr_peer_host_take(&note)) {
        sched_yield();
        return;
    }
    uint64_t number = note.handle.base;
    struct fr_memory_handle expected = host_handle(number);
    expected.base = number;
    CHECK(note.from >= 0 && note.from < process_count && note.kind == number % 3 + 1);
    CHECK(memcmp(&note.handle, &expected, sizeof(expected)) == 0);
    CHECK(counts->next[note.from] == number, "%ju from %d", (uintmax_t)number, note.from);
    counts->next[note.from] = number + 1;
    counts->taken++;
}

// Everybody to everybody, in order, through boxes that are full most of the time.
static void run_notes(void)
{
    enum { NOTES = 1500 };
    struct note_counts counts = {.taken = 0};
    host_open_all();
    for (uint64_t number = 0; number < NOTES && check_failures == 0; number++) {
        struct fr_peer_note note = {.kind = (uint32_t)(number % 3 + 1), .from = 77};
        note.handle = host_handle(number);
        note.handle.base = number;
        for (int to = 0; to < process_count; to++) {
            while (!fr_peer_host_put(to, &note))
                take_checked(&counts);
        }
    }
    while (counts.taken < (unsigned)process_count * NOTES && check_failures == 0)
        take_checked(&counts);
    process_meet();
    struct fr_peer_note more;
    CHECK(!fr_peer_host_take(&more));
    host_close_all();
}

// A full box, and one that a process died in while it put a note: nobody waits for it.
static void run_full(void)
{
    struct fr_peer_note note = {.kind = FR_NOTE_MAPPED};
    host_open_all();
    for (unsigned lap = 0; lap < 3; lap++) {
        for (unsigned i = 0; i < FR_PEER_HOST_NOTES; i++)
            CHECK(fr_peer_host_put(0, &note), "note %u", i);
        CHECK(!fr_peer_host_put(0, &note) && !fr_peer_host_put(0, &note));
        for (unsigned i = 0; i < FR_PEER_HOST_NOTES; i++)
            CHECK(fr_peer_host_take(&note), "note %u", i);
        CHECK(!fr_peer_host_take(&note));
    }
    CHECK(fr_peer_host_put(0, &note));
    atomic_fetch_add(&fr_peer_host_box(0)->notes_put, 1);
    CHECK(fr_peer_host_put(0, &note) && fr_peer_host_take(&note) && !fr_peer_host_take(&note));
    for (unsigned i = 2; i < FR_PEER_HOST_NOTES; i++)
        CHECK(fr_peer_host_put(0, &note), "note %u", i);
    CHECK(!fr_peer_host_put(0, &note) && !fr_peer_host_take(&note));
    host_close_all();
}

int main(int count, char **arguments)
{
    static const struct process_case cases[] = {
        {.name = "open", .count = 1, .run = run_open},
        {.name = "attach", .count = 4, .run = run_attach},
        {.name = "notes", .count = 3, .run = run_notes},
        {.name = "full", .count = 1, .run = run_full},
        {.name = NULL},
    };
    return process_main(cases, count, arguments);
}
