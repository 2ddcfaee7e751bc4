// SPDX-License-Identifier: BSD-3-Clause
// Exchange of rail addresses: what a process tells others of its rails, in as many control messages
// as it takes.
#include "config.h"

#include "rndv/rail_connect.h"

#include <stdlib.h>
#include <string.h>

enum { PIECE_BYTES = FR_CONTROL_BYTES - 8 };

// A piece of that: where it stands in the whole, and how long the whole is.
struct piece {
    uint32_t all_bytes;
    uint32_t offset;
    unsigned char data[PIECE_BYTES];
};
_Static_assert(sizeof(struct piece) <= FR_CONTROL_BYTES, "it fits");

void fr_rndv_rail_address_take(struct fr_rndv_rail_address *address,
                               const struct fr_job_control_message *message)
{
    struct piece piece = {.all_bytes = 0};
    memcpy(&piece, message->data, message->bytes < sizeof(piece) ? message->bytes : sizeof(piece));
    size_t bytes = message->bytes - offsetof(struct piece, data);
    if (message->bytes <= offsetof(struct piece, data) || message->bytes > sizeof(piece) ||
        piece.all_bytes > FR_RNDV_RAIL_ADDRESS_MAX || piece.offset != address->arrived_bytes ||
        bytes > piece.all_bytes - piece.offset)
        return;
    if (address->bytes == NULL) {
        address->bytes = malloc(piece.all_bytes);
        address->all_bytes = piece.all_bytes;
    }
    if (address->bytes == NULL || piece.all_bytes != address->all_bytes)
        return;
    memcpy(address->bytes + piece.offset, piece.data, bytes);
    address->arrived_bytes += bytes;
}

bool fr_rndv_rail_address_is_whole(const struct fr_rndv_rail_address *address)
{
    return address->bytes != NULL && address->arrived_bytes == address->all_bytes;
}

bool fr_rndv_rail_address_send(int to, size_t *sent_bytes)
{
    size_t own_bytes;
    const unsigned char *own = fr_rndv_rail_probe_own(&own_bytes);
    while (*sent_bytes < own_bytes) {
        struct piece piece = {.all_bytes = (uint32_t)own_bytes, .offset = (uint32_t)*sent_bytes};
        size_t left = own_bytes - *sent_bytes;
        size_t bytes = left < PIECE_BYTES ? left : PIECE_BYTES;
        memcpy(piece.data, own + *sent_bytes, bytes);
        if (!fr_job_control_send(to, FR_CONTROL_RAIL_ADDRESS, &piece,
                                 offsetof(struct piece, data) + bytes))
            return false;
        *sent_bytes += bytes;
    }
    return true;
}
