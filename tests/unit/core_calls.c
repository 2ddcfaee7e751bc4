// SPDX-License-Identifier: BSD-3-Clause
// Locks and counters of calls: one thread alone takes them without atomic instructions, and from
// the start of a second one on they are atomic.
#include "config.h"

#include "fabrail/core/thread.h"

#include "check.h"

enum { ROUNDS = 200000 };

static _Atomic size_t added;
static struct fr_lock lock = FR_LOCK_INIT;
static size_t added_under_lock FR_GUARDED_BY(lock);

static void add_often(void)
{
    for (unsigned i = 0; i < ROUNDS; i++) {
        (void)fr_core_add_in_call(&added, 1);
        fr_core_lock_in_call(&lock);
        added_under_lock++;
        fr_core_unlock(&lock);
    }
}

static bool has_work(void)
{
    return true;
}

static void check_added(size_t threads)
{
    fr_core_lock(&lock);
    CHECK(added_under_lock == threads * ROUNDS, "%zu", added_under_lock);
    fr_core_unlock(&lock);
    CHECK(added == threads * ROUNDS, "%zu", (size_t)added);
}

static void check_flag(void)
{
    _Atomic bool flag = false;
    CHECK(!fr_core_set_in_call(&flag) && flag, "it was not set");
    CHECK(fr_core_set_in_call(&flag) && flag, "it was set");
}

int main(void)
{
    static struct fr_thread thread = FR_THREAD_INIT(add_often, has_work);
    CHECK(!fr_core_serial, "nobody has said so");
    check_flag();
    fr_core_set_serial(true);
    CHECK(fr_core_serial, "one thread alone");
    check_flag();
    add_often();
    check_added(1);
    bool runs = fr_thread_start(&thread);
    CHECK(runs && !fr_core_serial, "a second thread");
    fr_core_set_serial(true);
    CHECK(!fr_core_serial, "for good");
    add_often();
    fr_thread_stop(&thread);
    check_added(3);
    return check_result();
}
