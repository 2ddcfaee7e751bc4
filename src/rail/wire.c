// SPDX-License-Identifier: BSD-3-Clause
// Addresses and keys as bytes. A reader holds a cursor that refuses to go beyond the end. It reads
// into a copy, which is given to the caller only when all of it was right.
#include "config.h"

#include "rail/wire.h"

#include <string.h>

struct cursor {
    const unsigned char *at;
    size_t rest;
    bool bad; // once true, everything read is 0
};

static const unsigned char address_magic[4] = "FRra";
static const unsigned char key_magic[4] = "FRrk";

static const unsigned char *take(struct cursor *cursor, size_t bytes)
{
    const unsigned char *at = cursor->at;
    if (cursor->bad || bytes > cursor->rest) {
        cursor->bad = true;
        return NULL;
    }
    cursor->at += bytes;
    cursor->rest -= bytes;
    return at;
}

static uint64_t take_integer(struct cursor *cursor, size_t bytes)
{
    const unsigned char *at = take(cursor, bytes);
    uint64_t value = 0;
    for (size_t i = bytes; at != NULL && i > 0; i--)
        value = value << 8 | at[i - 1];
    return value;
}

static void expect(struct cursor *cursor, bool condition)
{
    cursor->bad = cursor->bad || !condition;
}

static void take_head(struct cursor *cursor, const unsigned char magic[4])
{
    const unsigned char *at = take(cursor, 4);
    expect(cursor, at != NULL && memcmp(at, magic, 4) == 0);
    expect(cursor, take_integer(cursor, 1) == FR_RAIL_WIRE_VERSION);
}

static void take_name(struct cursor *cursor, size_t bytes, char name[FR_RAIL_WIRE_NAME])
{
    expect(cursor, bytes > 0 && bytes < FR_RAIL_WIRE_NAME);
    const unsigned char *at = take(cursor, bytes);
    if (at == NULL)
        return;
    for (size_t i = 0; i < bytes; i++)
        expect(cursor, at[i] > 0x20 && at[i] < 0x7f);
    memcpy(name, at, bytes);
    name[bytes] = '\0';
}

static void take_addr(struct cursor *cursor, size_t bytes, unsigned char addr[FR_RAIL_WIRE_ADDR])
{
    expect(cursor, bytes > 0 && bytes <= FR_RAIL_WIRE_ADDR);
    const unsigned char *at = take(cursor, bytes);
    if (at != NULL)
        memcpy(addr, at, bytes);
}

static void take_rail(struct cursor *cursor, struct fr_rail_wire_rail *rail)
{
    size_t provider = take_integer(cursor, 1);
    size_t fabric = take_integer(cursor, 1);
    rail->target_bytes = take_integer(cursor, 1);
    rail->initiator_bytes = take_integer(cursor, 1);
    take_name(cursor, provider, rail->provider);
    take_name(cursor, fabric, rail->fabric);
    take_addr(cursor, rail->target_bytes, rail->target);
    take_addr(cursor, rail->initiator_bytes, rail->initiator);
}

bool fr_rail_wire_read_address(const void *bytes, size_t length,
                               struct fr_rail_wire_address *address)
{
    struct cursor cursor = {bytes, length, false};
    struct fr_rail_wire_address read = {0};
    take_head(&cursor, address_magic);
    read.count = (unsigned)take_integer(&cursor, 1);
    expect(&cursor, read.count > 0 && read.count <= FR_RAILS_MAX);
    for (unsigned i = 0; !cursor.bad && i < read.count; i++)
        take_rail(&cursor, &read.rails[i]);
    expect(&cursor, cursor.rest == 0);
    if (cursor.bad)
        return false;
    *address = read;
    return true;
}

// Checks that the described range lies in the region, and the region in the address space.
static void expect_bounds(struct cursor *cursor, const struct fr_rail_wire_key *key)
{
    uint64_t end = 0;
    expect(cursor, key->region_bytes > 0 && key->bytes > 0);
    expect(cursor, !__builtin_add_overflow(key->base, key->region_bytes, &end));
    expect(cursor, key->offset < key->region_bytes);
    expect(cursor, key->bytes <= key->region_bytes - key->offset);
}

bool fr_rail_wire_read_key(const void *bytes, size_t length, struct fr_rail_wire_key *key)
{
    struct cursor cursor = {bytes, length, false};
    struct fr_rail_wire_key read = {0};
    take_head(&cursor, key_magic);
    read.count = (unsigned)take_integer(&cursor, 1);
    read.keyed = (uint32_t)take_integer(&cursor, 2);
    read.virtual = (uint32_t)take_integer(&cursor, 2);
    expect(&cursor, read.count > 0 && read.count <= FR_RAILS_MAX);
    if (cursor.bad)
        return false;
    expect(&cursor, read.keyed != 0 && read.keyed >> read.count == 0);
    expect(&cursor, (read.virtual & ~read.keyed) == 0);
    read.base = take_integer(&cursor, 8);
    read.region_bytes = take_integer(&cursor, 8);
    read.offset = take_integer(&cursor, 8);
    read.bytes = take_integer(&cursor, 8);
    expect_bounds(&cursor, &read);
    for (unsigned i = 0; i < read.count; i++)
        read.keys[i] = read.keyed >> i & 1 ? take_integer(&cursor, 8) : 0;
    expect(&cursor, cursor.rest == 0);
    if (cursor.bad)
        return false;
    *key = read;
    return true;
}

static unsigned char *put(unsigned char *at, const void *data, size_t bytes)
{
    memcpy(at, data, bytes);
    return at + bytes;
}

static unsigned char *put_integer(unsigned char *at, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        *at++ = (unsigned char)(value >> 8 * i);
    return at;
}

static unsigned char *put_head(unsigned char *at, const unsigned char magic[4], unsigned count)
{
    at = put(at, magic, 4);
    at = put_integer(at, FR_RAIL_WIRE_VERSION, 1);
    return put_integer(at, count, 1);
}

size_t fr_rail_wire_write_address(const struct fr_rail_wire_address *address,
                                  unsigned char bytes[FR_RAIL_WIRE_ADDRESS_MAX])
{
    unsigned char *at = put_head(bytes, address_magic, address->count);
    for (unsigned i = 0; i < address->count; i++) {
        const struct fr_rail_wire_rail *rail = &address->rails[i];
        size_t provider = strlen(rail->provider), fabric = strlen(rail->fabric);
        at = put_integer(at, provider, 1);
        at = put_integer(at, fabric, 1);
        at = put_integer(at, rail->target_bytes, 1);
        at = put_integer(at, rail->initiator_bytes, 1);
        at = put(at, rail->provider, provider);
        at = put(at, rail->fabric, fabric);
        at = put(at, rail->target, rail->target_bytes);
        at = put(at, rail->initiator, rail->initiator_bytes);
    }
    return (size_t)(at - bytes);
}

size_t fr_rail_wire_write_key(const struct fr_rail_wire_key *key,
                              unsigned char bytes[FR_RAIL_WIRE_KEY_MAX])
{
    unsigned char *at = put_head(bytes, key_magic, key->count);
    at = put_integer(at, key->keyed, 2);
    at = put_integer(at, key->virtual, 2);
    at = put_integer(at, key->base, 8);
    at = put_integer(at, key->region_bytes, 8);
    at = put_integer(at, key->offset, 8);
    at = put_integer(at, key->bytes, 8);
    for (unsigned i = 0; i < key->count; i++)
        if (key->keyed >> i & 1)
            at = put_integer(at, key->keys[i], 8);
    return (size_t)(at - bytes);
}
