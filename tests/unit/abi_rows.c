// SPDX-License-Identifier: BSD-3-Clause
// Where rows of functions say that their arguments are.
#include "config.h"

#include "fabrail/abi.h"

#include "check.h"

#include <string.h>

static bool is_letter_at(enum fr_fn fn, int arg, const char *letters)
{
    return arg < 0 || strchr(letters, fr_abi_rows[fn].signature[arg]);
}

static void check_side(enum fr_fn fn, const struct fr_abi_side *side, const char *buffers)
{
    CHECK(is_letter_at(fn, side->buffer, buffers) &&
              is_letter_at(fn, side->count, side->has_counts ? "v" : "nN") &&
              is_letter_at(fn, side->displacements, side->wide_displacements ? "A" : "dD") &&
              is_letter_at(fn, side->type, side->has_types ? "T" : "t"),
          "%s", fr_abi_rows[fn].name);
}

static bool is_side(const struct fr_abi_side *side, int buffer, int count, int displacements,
                    int type)
{
    return side->buffer == buffer && side->count == count && side->displacements == displacements &&
           side->type == type;
}

int main(void)
{
    fr_abi_rows_fill();
    for (enum fr_fn fn = 0; fn < FR_FN_STUB_COUNT; fn++) {
        check_side(fn, &fr_abi_rows[fn].send, "sb");
        check_side(fn, &fr_abi_rows[fn].receive, "rb");
    }
    const struct fr_abi_row *row = &fr_abi_rows[FR_FN_MPI_Sendrecv];
    CHECK(is_side(&row->send, 0, 1, -1, 2) && is_side(&row->receive, 5, 6, -1, 7));
    CHECK(row->peer == 3 && row->sender == 8 && row->comm == 10 && row->status == 11 &&
          row->request == -1 && row->buffer_count == 2 && row->buffers[1] == 5);
    row = &fr_abi_rows[FR_FN_MPI_Sendrecv_replace];
    CHECK(is_side(&row->send, 0, 1, -1, 2) && is_side(&row->receive, 0, 1, -1, 2));
    CHECK(row->peer == 3 && row->sender == 5 && row->buffer_count == 1);
    row = &fr_abi_rows[FR_FN_MPI_Scatterv];
    CHECK(is_side(&row->send, 0, 1, 2, 3) && is_side(&row->receive, 4, 5, -1, 6) &&
          row->send.has_counts && !row->receive.has_counts && row->root == 7);
    row = &fr_abi_rows[FR_FN_MPI_Ineighbor_alltoallw];
    CHECK(is_side(&row->send, 0, 1, 2, 3) && is_side(&row->receive, 4, 5, 6, 7) &&
          row->send.has_types && row->receive.wide_displacements && row->request == 9);
    row = &fr_abi_rows[FR_FN_MPI_Reduce_scatter];
    CHECK(is_side(&row->send, 0, 2, -1, 3) && is_side(&row->receive, 1, 2, -1, 3) &&
          row->send.has_counts && row->operation == 4);
    row = &fr_abi_rows[FR_FN_MPI_Compare_and_swap];
    CHECK(is_side(&row->send, 0, -1, -1, 3) && is_side(&row->receive, 2, -1, -1, 3) &&
          row->buffer_count == 3 && row->peer == 4 && row->window == 6);
    row = &fr_abi_rows[FR_FN_MPI_Psend_init];
    CHECK(is_side(&row->send, 0, 2, -1, 3) && row->send.wide_count && row->receive.buffer == -1);
    row = &fr_abi_rows[FR_FN_MPI_Unpack];
    CHECK(is_side(&row->send, 0, -1, -1, -1) && is_side(&row->receive, 3, 4, -1, 5) &&
          row->size == 1 && row->position == 2);
    return check_result();
}
