// SPDX-License-Identifier: BSD-3-Clause
// All the ways that MPI has to complete a list of requests.
#include "completion.h"

#include <stdlib.h>

struct work {
    int count;
    MPI_Request *requests;
    MPI_Status *statuses;
    int *indices;
    void (*done)(void *context, int index, const MPI_Status *status);
    void *context;
};

static void tell(const struct work *work, int index, const MPI_Status *status)
{
    if (work->done != NULL)
        work->done(work->context, index, status);
}

static void tell_all(const struct work *work)
{
    for (int i = 0; i < work->count; i++)
        tell(work, i, &work->statuses[i]);
}

// Last request first, so that completion does not follow the order of posting.
static void complete_single(const struct work *work, bool test)
{
    for (int i = work->count - 1; i >= 0; i--) {
        int flag = 0;
        while (test && !flag)
            MPI_Test(&work->requests[i], &flag, &work->statuses[i]);
        if (!test)
            MPI_Wait(&work->requests[i], &work->statuses[i]);
        tell(work, i, &work->statuses[i]);
    }
}

static void complete_all(const struct work *work, bool test)
{
    int flag = 0;
    while (test && !flag)
        MPI_Testall(work->count, work->requests, &flag, work->statuses);
    if (!test)
        MPI_Waitall(work->count, work->requests, work->statuses);
    tell_all(work);
}

static void complete_any(const struct work *work, bool test)
{
    for (;;) {
        int index = MPI_UNDEFINED, flag = !test;
        MPI_Status status;
        if (test)
            MPI_Testany(work->count, work->requests, &index, &flag, &status);
        else
            MPI_Waitany(work->count, work->requests, &index, &status);
        if (flag && index == MPI_UNDEFINED)
            return;
        if (flag)
            tell(work, index, &status);
    }
}

static void complete_some(const struct work *work, bool test)
{
    for (;;) {
        int done = 0;
        if (test)
            MPI_Testsome(work->count, work->requests, &done, work->indices, work->statuses);
        else
            MPI_Waitsome(work->count, work->requests, &done, work->indices, work->statuses);
        if (done == MPI_UNDEFINED)
            return;
        for (int i = 0; i < done; i++)
            tell(work, work->indices[i], &work->statuses[i]);
    }
}

const char *completion_name(enum completion how)
{
    static const char *const names[COMPLETIONS] = {"Wait",    "Test",    "Waitall",  "Testall",
                                                   "Waitany", "Testany", "Waitsome", "Testsome"};
    return names[how];
}

void complete(enum completion how, int count, MPI_Request *requests,
              void (*done)(void *context, int index, const MPI_Status *status), void *context)
{
    struct work work = {count,
                        requests,
                        table_new((size_t)count, sizeof(MPI_Status)),
                        table_new((size_t)count, sizeof(int)),
                        done,
                        context};
    bool test = how % 2 != 0;
    if (how <= COMPLETE_TEST)
        complete_single(&work, test);
    else if (how <= COMPLETE_TESTALL)
        complete_all(&work, test);
    else if (how <= COMPLETE_TESTANY)
        complete_any(&work, test);
    else
        complete_some(&work, test);
    free(work.statuses);
    free(work.indices);
}
