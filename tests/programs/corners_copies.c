// SPDX-License-Identifier: BSD-3-Clause
// Messages whose buffer is somebody else's before they have arrived: buffered ones, which are
// complete though nobody has asked for them yet.
#include "corners.h"

#include <stdlib.h>

enum { AHEAD_SLOTS = 4 };

// All messages are sent, and their buffers written again, before the partner receives the first.
static void round_ahead(struct lane *lane)
{
    int count = (int)lane->bytes;
    MPI_Request requests[AHEAD_SLOTS];
    void *attached = lane_attach(lane->bytes, AHEAD_SLOTS);
    for (int i = 0; i < AHEAD_SLOTS && lane->sends; i++) {
        void *data = lane_give(lane, i, lane->bytes);
        if (lane->variant == 0)
            MPI_Bsend(data, count, MPI_BYTE, lane->partner, lane->tag, lane->comm);
        else
            MPI_Ibsend(data, count, MPI_BYTE, lane->partner, lane->tag, lane->comm, &requests[i]);
    }
    if (lane->sends && lane->variant != 0)
        MPI_Waitall(AHEAD_SLOTS, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < AHEAD_SLOTS && lane->sends; i++)
        lane_spoil(lane, i, lane->bytes);
    lane_sync(lane);
    for (int i = 0; i < AHEAD_SLOTS && !lane->sends; i++) {
        MPI_Status status;
        MPI_Recv(lane_take(lane, i), count, MPI_BYTE, lane->partner, lane->tag, lane->comm,
                 &status);
        lane_status(lane, &status, lane->tag, lane->bytes);
        lane_got(lane, i, lane->bytes);
    }
    lane_detach(lane, attached);
}

static const struct corner list[] = {
    {.name = "Bsend ahead", .round = round_ahead, .slots = AHEAD_SLOTS, .most = 65536},
    {.name = "Ibsend ahead",
     .round = round_ahead,
     .variant = 1,
     .slots = AHEAD_SLOTS,
     .most = 65536,
     .rounds = 8},
};

struct corners corners_copies(void)
{
    return (struct corners){list, COUNT_OF(list)};
}
