// SPDX-License-Identifier: BSD-3-Clause
// Calls that complete receives of quick.c, and perhaps other requests that nobody has to look at.
// The receives are found before the real call, in which MPI may call functions of the application's
// that receive anew under the values of requests that are over already.
#include "config.h"

#include "mpi/mpi_int.h"
#include "request/posted.h"

#include <string.h>

typedef int call2(fr_word, fr_word);
typedef int call3(fr_word, fr_word, fr_word);
typedef int call4(fr_word, fr_word, fr_word, fr_word);
typedef int call5(fr_word, fr_word, fr_word, fr_word, fr_word);

struct completion {
    enum fr_fn fn;
    const fr_word *registers;
    char *statuses; // NULL where MPI was given none
    int rc;
    size_t found_count;
    struct fr_request_found found[FR_REQUEST_SHORT_LIST];
};

// Whether receives without an operation are all that there is, and this thread is alone with them.
static inline bool are_alone(void)
{
    return fr_request_alone &&
           atomic_load_explicit(&fr_request_tracked_count, memory_order_acquire) == 0;
}

static inline bool is_short(fr_word count)
{
    return (unsigned)count <= FR_REQUEST_SHORT_LIST;
}

static inline struct fr_mpi_verdict return_code(int rc)
{
    return (struct fr_mpi_verdict){.result = (fr_word)rc};
}

static int take_completed(void *context)
{
    const struct completion *completion = context;
    fr_word args[FR_MAX_ARGS];
    memcpy(args, completion->registers, FR_REGISTER_ARGS * sizeof(fr_word));
    const struct fr_request_completed call = {.fn = completion->fn,
                                              .args = args,
                                              .statuses = completion->statuses,
                                              .found = completion->found,
                                              .found_count = completion->found_count};
    return fr_request_completed(&call, completion->rc);
}

// Has the call end as one that has failed, or brought an RTS.
static __attribute__((noinline, cold)) struct fr_mpi_verdict
end_fully(struct completion *completion, enum fr_fn fn, const fr_word *registers, fr_word statuses,
          int rc)
{
    completion->fn = fn;
    completion->registers = registers;
    completion->statuses = (char *)statuses;
    completion->rc = rc;
    return return_code(fr_mpi_enter_late(registers, take_completed, completion));
}

// The end of a call that has completed all that was found, or failed. `ignore` stands for no
// statuses.
static inline struct fr_mpi_verdict end(struct completion *completion, enum fr_fn fn,
                                        const fr_word *registers, fr_word statuses, fr_word ignore,
                                        int rc)
{
    struct fr_request_found *found = completion->found, *end = found + completion->found_count;
    fr_word given = statuses == ignore ? 0 : statuses;
    bool over = rc == fr_real_mpi.SUCCESS;
    if (FR_UNLIKELY(!over))
        return end_fully(completion, fn, registers, given, rc);
    do { // there is one
        fr_word status = given ? given + found->index * fr_real_mpi.status_bytes : 0;
        over &= fr_request_posted_end_found(found, (const char *)status);
    } while (++found < end);
    return FR_LIKELY(over) ? return_code(rc) : end_fully(completion, fn, registers, given, rc);
}

// Of those that were found some, or all, are not complete.
static inline struct fr_mpi_verdict put_back_rest(const struct completion *completion)
{
    if (completion->found_count != 1 || completion->found[0].place != FR_REQUEST_FOUND_OVER)
        fr_request_posted_put_back(completion->found, completion->found_count);
    return return_code(fr_real_mpi.SUCCESS);
}

// Finds the receives of a call. False when there are none; else it is to be told apart from what
// MPI calls meanwhile.
static inline bool find(struct completion *completion, const fr_word *registers)
{
    completion->found_count = fr_request_posted_find((const void *)registers[1],
                                                     (unsigned)registers[0], completion->found);
    if (completion->found_count)
        fr_mpi_handler_frame = (uintptr_t)registers;
    return completion->found_count != 0;
}

static inline bool find_one(struct completion *completion, const fr_word *registers)
{
    completion->found_count =
        fr_request_posted_find_one((const void *)registers[0], completion->found);
    if (completion->found_count)
        fr_mpi_handler_frame = (uintptr_t)registers;
    return completion->found_count != 0;
}

static FR_HOT struct fr_mpi_verdict quick_wait(unsigned slot, void *real, const fr_word *registers,
                                               const fr_word *stack)
{
    struct completion completion;
    if (FR_UNLIKELY(!registers[0] || !are_alone()))
        return fr_mpi_enter_fully(slot, registers, stack);
    if (!find_one(&completion, registers))
        return (struct fr_mpi_verdict){.jump = real};
    int rc = ((call2 *)real)(registers[0], registers[1]);
    fr_mpi_handler_frame = 0;
    return end(&completion, FR_FN_MPI_Wait, registers, registers[1], fr_real_mpi.STATUS_IGNORE, rc);
}

static FR_HOT struct fr_mpi_verdict quick_test(unsigned slot, void *real, const fr_word *registers,
                                               const fr_word *stack)
{
    struct completion completion;
    if (FR_UNLIKELY(!registers[0] || !registers[1] || !are_alone()))
        return fr_mpi_enter_fully(slot, registers, stack);
    if (!find_one(&completion, registers))
        return (struct fr_mpi_verdict){.jump = real};
    int rc = ((call3 *)real)(registers[0], registers[1], registers[2]);
    fr_mpi_handler_frame = 0;
    if (rc == fr_real_mpi.SUCCESS && !*(const int *)registers[1])
        return put_back_rest(&completion);
    return end(&completion, FR_FN_MPI_Test, registers, registers[2], fr_real_mpi.STATUS_IGNORE, rc);
}

static FR_HOT struct fr_mpi_verdict quick_waitall(unsigned slot, void *real,
                                                  const fr_word *registers, const fr_word *stack)
{
    struct completion completion;
    if (FR_UNLIKELY(!is_short(registers[0]) || !registers[1] || !are_alone()))
        return fr_mpi_enter_fully(slot, registers, stack);
    if (!find(&completion, registers))
        return (struct fr_mpi_verdict){.jump = real};
    int rc = ((call3 *)real)(registers[0], registers[1], registers[2]);
    fr_mpi_handler_frame = 0;
    return end(&completion, FR_FN_MPI_Waitall, registers, registers[2], fr_real_mpi.STATUSES_IGNORE,
               rc);
}

// Statuses of our own where the application wants none and more than one request may fail: MPI
// tells of which ones by them alone.
static inline fr_word statuses_of(fr_word given, char *own, fr_word count)
{
    if (given != fr_real_mpi.STATUSES_IGNORE)
        return given;
    memset(own, 0, (unsigned)count * fr_real_mpi.status_bytes);
    return FR_PTR(own);
}

static FR_HOT struct fr_mpi_verdict quick_testall(unsigned slot, void *real,
                                                  const fr_word *registers, const fr_word *stack)
{
    struct completion completion;
    _Alignas(16) char own[FR_REQUEST_SHORT_LIST * FR_STATUS_BYTES];
    if (FR_UNLIKELY(!is_short(registers[0]) || !registers[1] || !registers[2] || !are_alone()))
        return fr_mpi_enter_fully(slot, registers, stack);
    if (!find(&completion, registers))
        return (struct fr_mpi_verdict){.jump = real};
    fr_word statuses = statuses_of(registers[3], own, registers[0]);
    int rc = ((call4 *)real)(registers[0], registers[1], registers[2], statuses);
    fr_mpi_handler_frame = 0;
    if (rc == fr_real_mpi.SUCCESS && !*(const int *)registers[2])
        return put_back_rest(&completion);
    return end(&completion, FR_FN_MPI_Testall, registers, statuses, 0, rc);
}

// Ends one request, unless it is not among those that were found. False where it has brought an
// RTS.
static inline bool end_one(struct completion *completion, unsigned index, const char *status)
{
    bool over = true;
    for (size_t i = 0; i < completion->found_count; i++) {
        struct fr_request_found *found = &completion->found[i];
        if (found->index == index && found->place != FR_REQUEST_FOUND_OVER)
            over = fr_request_posted_end_found(found, status);
    }
    return over;
}

// Where a call says which request of any is complete. An MPI that refuses the call writes nothing
// there, so that what the application has there says nothing, and stays.
struct answer {
    int *index, *flag; // the latter of MPI_Testany alone
    int index_before, flag_before;
};

static inline void begin_answer(struct answer *answer, int *index, int *flag)
{
    answer->index = index;
    answer->flag = flag;
    answer->index_before = *index;
    *index = fr_real_mpi.UNDEFINED;
    if (flag) {
        answer->flag_before = *flag;
        *flag = 0;
    }
}

static void restore(const struct answer *answer)
{
    if (*answer->index != fr_real_mpi.UNDEFINED)
        return;
    *answer->index = answer->index_before;
    if (answer->flag && !*answer->flag)
        *answer->flag = answer->flag_before;
}

static inline struct fr_mpi_verdict end_any(struct completion *completion,
                                            const struct answer *answer, enum fr_fn fn,
                                            const fr_word *registers, fr_word status, int rc)
{
    fr_word given = status == fr_real_mpi.STATUS_IGNORE ? 0 : status;
    int index = *answer->index;
    bool none = index == fr_real_mpi.UNDEFINED || (answer->flag && !*answer->flag);
    fr_mpi_handler_frame = 0;
    if (FR_LIKELY(rc == fr_real_mpi.SUCCESS) &&
        (none || end_one(completion, (unsigned)index, (const char *)given)))
        return put_back_rest(completion);
    struct fr_mpi_verdict verdict = end_fully(completion, fn, registers, given, rc);
    if ((int)verdict.result != fr_real_mpi.SUCCESS)
        restore(answer);
    return verdict;
}

static FR_HOT struct fr_mpi_verdict quick_waitany(unsigned slot, void *real,
                                                  const fr_word *registers, const fr_word *stack)
{
    struct completion completion;
    struct answer answer;
    if (FR_UNLIKELY(!is_short(registers[0]) || !registers[1] || !registers[2] || !are_alone()))
        return fr_mpi_enter_fully(slot, registers, stack);
    if (!find(&completion, registers))
        return (struct fr_mpi_verdict){.jump = real};
    begin_answer(&answer, (int *)registers[2], NULL);
    int rc = ((call4 *)real)(registers[0], registers[1], registers[2], registers[3]);
    return end_any(&completion, &answer, FR_FN_MPI_Waitany, registers, registers[3], rc);
}

static FR_HOT struct fr_mpi_verdict quick_testany(unsigned slot, void *real,
                                                  const fr_word *registers, const fr_word *stack)
{
    struct completion completion;
    struct answer answer;
    if (FR_UNLIKELY(!is_short(registers[0]) || !registers[1] || !registers[2] || !registers[3] ||
                    !are_alone()))
        return fr_mpi_enter_fully(slot, registers, stack);
    if (!find(&completion, registers))
        return (struct fr_mpi_verdict){.jump = real};
    begin_answer(&answer, (int *)registers[2], (int *)registers[3]);
    int rc = ((call5 *)real)(registers[0], registers[1], registers[2], registers[3], registers[4]);
    return end_any(&completion, &answer, FR_FN_MPI_Testany, registers, registers[4], rc);
}

// MPI_Waitsome and MPI_Testsome.
static inline struct fr_mpi_verdict some(enum fr_fn fn, unsigned slot, void *real,
                                         const fr_word *registers, const fr_word *stack)
{
    struct completion completion;
    _Alignas(16) char own[FR_REQUEST_SHORT_LIST * FR_STATUS_BYTES];
    const int *count = (const int *)registers[2], *indices = (const int *)registers[3];
    if (FR_UNLIKELY(!is_short(registers[0]) || !registers[1] || !count || !indices || !are_alone()))
        return fr_mpi_enter_fully(slot, registers, stack);
    if (!find(&completion, registers))
        return (struct fr_mpi_verdict){.jump = real};
    fr_word statuses = statuses_of(registers[4], own, registers[0]);
    int rc = ((call5 *)real)(registers[0], registers[1], registers[2], registers[3], statuses);
    bool over = FR_LIKELY(rc == fr_real_mpi.SUCCESS);
    int complete = over && *count != fr_real_mpi.UNDEFINED ? *count : 0;
    fr_mpi_handler_frame = 0;
    for (int i = 0; i < complete; i++)
        over &= end_one(&completion, (unsigned)indices[i],
                        (const char *)statuses + (size_t)i * fr_real_mpi.status_bytes);
    return over ? put_back_rest(&completion) : end_fully(&completion, fn, registers, statuses, rc);
}

static FR_HOT struct fr_mpi_verdict quick_waitsome(unsigned slot, void *real,
                                                   const fr_word *registers, const fr_word *stack)
{
    return some(FR_FN_MPI_Waitsome, slot, real, registers, stack);
}

static FR_HOT struct fr_mpi_verdict quick_testsome(unsigned slot, void *real,
                                                   const fr_word *registers, const fr_word *stack)
{
    return some(FR_FN_MPI_Testsome, slot, real, registers, stack);
}

fr_mpi_quick *fr_mpi_quick_completion(enum fr_fn fn)
{
    switch (fn) {
    case FR_FN_MPI_Wait:
        return quick_wait;
    case FR_FN_MPI_Test:
        return quick_test;
    case FR_FN_MPI_Waitall:
        return quick_waitall;
    case FR_FN_MPI_Testall:
        return quick_testall;
    case FR_FN_MPI_Waitany:
        return quick_waitany;
    case FR_FN_MPI_Testany:
        return quick_testany;
    case FR_FN_MPI_Waitsome:
        return quick_waitsome;
    case FR_FN_MPI_Testsome:
        return quick_testsome;
    default:
        return NULL;
    }
}
