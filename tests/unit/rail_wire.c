// SPDX-License-Identifier: BSD-3-Clause
// Addresses and keys as bytes: what is written is read again, and nothing else is taken: each
// length but the right one, each field beyond its bound, each byte changed.
#include "config.h"

#include "rail/wire.h"

#include "check.h"

#include <stdlib.h>

static struct fr_rail_wire_address some_address(unsigned count)
{
    struct fr_rail_wire_address address = {.count = count};
    for (unsigned i = 0; i < count; i++) {
        struct fr_rail_wire_rail *rail = &address.rails[i];
        snprintf(rail->provider, sizeof(rail->provider), "verbs;ofi_rxm");
        snprintf(rail->fabric, sizeof(rail->fabric), "10.0.%u.0/24", i);
        rail->target_bytes = i == 0 ? FR_RAIL_WIRE_ADDR : i + 1;
        rail->initiator_bytes = i + 1;
        check_fill(rail->target, rail->target_bytes, i);
        check_fill(rail->initiator, rail->initiator_bytes, i + 100);
    }
    return address;
}

static struct fr_rail_wire_key some_key(unsigned count)
{
    struct fr_rail_wire_key key = {
        .count = count,
        .keyed = (uint32_t)((1u << count) - 1),
        .virtual = 1,
        .base = 0x7f0000000000,
        .region_bytes = 1 << 20,
        .offset = 4096,
        .bytes = (1 << 20) - 4096,
    };
    for (unsigned i = 0; i < count; i++)
        key.keys[i] = 0x0123456789abcdef + i;
    return key;
}

static void test_address(unsigned count)
{
    unsigned char bytes[FR_RAIL_WIRE_ADDRESS_MAX + 1];
    struct fr_rail_wire_address address = some_address(count), read;
    size_t length = fr_rail_wire_write_address(&address, bytes);
    CHECK(length <= FR_RAIL_WIRE_ADDRESS_MAX);
    memset(&read, 0, sizeof(read));
    CHECK(fr_rail_wire_read_address(bytes, length, &read));
    CHECK(memcmp(&read, &address, sizeof(read)) == 0, "%u rails", count);
    for (size_t cut = 0; cut < length; cut++) {
        unsigned char *copy = malloc(cut + 1); // of exactly that size, for valgrind and sanitizers
        memcpy(copy, bytes, cut);
        CHECK(!fr_rail_wire_read_address(copy, cut, &read), "%zu of %zu bytes", cut, length);
        free(copy);
    }
    bytes[length] = 0;
    CHECK(!fr_rail_wire_read_address(bytes, length + 1, &read), "a byte more");
}

static void test_key(unsigned count)
{
    unsigned char bytes[FR_RAIL_WIRE_KEY_MAX + 1];
    struct fr_rail_wire_key key = some_key(count), read;
    size_t length = fr_rail_wire_write_key(&key, bytes);
    CHECK(length <= FR_RAIL_WIRE_KEY_MAX);
    CHECK(fr_rail_wire_read_key(bytes, length, &read));
    CHECK(memcmp(&read, &key, sizeof(read)) == 0, "%u rails", count);
    for (size_t cut = 0; cut < length; cut++)
        CHECK(!fr_rail_wire_read_key(bytes, cut, &read), "%zu of %zu bytes", cut, length);
    bytes[length] = 0;
    CHECK(!fr_rail_wire_read_key(bytes, length + 1, &read), "a byte more");
}

static bool takes(struct fr_rail_wire_key key)
{
    unsigned char bytes[FR_RAIL_WIRE_KEY_MAX];
    struct fr_rail_wire_key read;
    return fr_rail_wire_read_key(bytes, fr_rail_wire_write_key(&key, bytes), &read);
}

#define CHANGED(change)                                                                            \
    ({                                                                                             \
        struct fr_rail_wire_key key = some_key(4);                                                 \
        key.change;                                                                                \
        takes(key);                                                                                \
    })

static void test_key_bounds(void)
{
    CHECK(CHANGED(offset = 4096));
    CHECK(!CHANGED(offset = 4097));
    CHECK(!CHANGED(bytes = (1 << 20) - 4095));
    CHECK(!CHANGED(bytes = 0));
    CHECK(!CHANGED(bytes = UINT64_MAX));
    CHECK(!CHANGED(offset = UINT64_MAX));
    CHECK(!CHANGED(region_bytes = 0));
    CHECK(CHANGED(base = UINT64_MAX - (1 << 20)));
    CHECK(!CHANGED(base = UINT64_MAX - (1 << 20) + 1));
    CHECK(!CHANGED(keyed = 0));
    CHECK(!CHANGED(keyed = 0x1f));
    CHECK(CHANGED(virtual = 0xf));
    CHECK(!CHANGED(virtual = 0x10));
    CHECK(CHANGED(keyed = 0x9));
    CHECK(!CHANGED(count = 3)); // a rail that is not there has a key
}

static void test_heads(void)
{
    unsigned char bytes[FR_RAIL_WIRE_ADDRESS_MAX];
    struct fr_rail_wire_address address = some_address(2), read;
    struct fr_rail_wire_key key = some_key(2), read_key;
    size_t length = fr_rail_wire_write_address(&address, bytes);
    for (size_t i = 0; i < 5; i++) { // magic and version
        bytes[i] ^= 1;
        CHECK(!fr_rail_wire_read_address(bytes, length, &read), "byte %zu", i);
        bytes[i] ^= 1;
    }
    static const unsigned char counts[] = {0, 1, 3, FR_RAILS_MAX + 1, 255};
    for (size_t i = 0; i < FR_ARRAY_LENGTH(counts); i++) {
        bytes[5] = counts[i];
        CHECK(!fr_rail_wire_read_address(bytes, length, &read), "%u rails", counts[i]);
    }
    bytes[5] = 2;
    bytes[10] = ' '; // in the name of a provider
    CHECK(!fr_rail_wire_read_address(bytes, length, &read));
    bytes[10] = '\0';
    CHECK(!fr_rail_wire_read_address(bytes, length, &read));
    CHECK(!fr_rail_wire_read_key(bytes, length, &read_key), "an address is no key");
    length = fr_rail_wire_write_key(&key, bytes);
    CHECK(!fr_rail_wire_read_address(bytes, length, &read), "a key is no address");
}

// Whatever comes, what is read could have been written: it is written as the same bytes again.
static void test_random(void)
{
    unsigned char bytes[FR_RAIL_WIRE_ADDRESS_MAX], again[FR_RAIL_WIRE_ADDRESS_MAX];
    struct fr_rail_wire_address address = some_address(3), read;
    struct fr_rail_wire_key key = some_key(3), read_key;
    uint64_t state = 3;
    for (int i = 0; i < 200000; i++) {
        bool is_key = i % 2 != 0;
        size_t length = is_key ? fr_rail_wire_write_key(&key, bytes)
                               : fr_rail_wire_write_address(&address, bytes);
        for (int changes = 1 + i % 3; changes > 0; changes--)
            bytes[check_random(&state) % length] = (unsigned char)check_random(&state);
        if (is_key ? fr_rail_wire_read_key(bytes, length, &read_key)
                   : fr_rail_wire_read_address(bytes, length, &read)) {
            size_t same = is_key ? fr_rail_wire_write_key(&read_key, again)
                                 : fr_rail_wire_write_address(&read, again);
            CHECK(same == length && memcmp(bytes, again, length) == 0, "change %d", i);
        }
    }
}

int main(void)
{
    for (unsigned count = 1; count <= FR_RAILS_MAX; count++) {
        test_address(count);
        test_key(count);
    }
    test_key_bounds();
    test_heads();
    test_random();
    return check_result();
}
