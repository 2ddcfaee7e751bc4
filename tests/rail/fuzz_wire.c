// SPDX-License-Identifier: BSD-3-Clause
// A libFuzzer target for the one parser of what other processes send. Whatever it takes has to be
// in bounds, and what would have been written.
#include "config.h"

#include "rail/wire.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition)
        __builtin_trap();
}

static void check_address(const uint8_t *data, size_t size)
{
    unsigned char again[FR_RAIL_WIRE_ADDRESS_MAX];
    struct fr_rail_wire_address address;
    if (!fr_rail_wire_read_address(data, size, &address))
        return;
    require(size <= sizeof(again) && address.count > 0 && address.count <= FR_RAILS_MAX);
    for (unsigned i = 0; i < address.count; i++) {
        require(strlen(address.rails[i].provider) < FR_RAIL_WIRE_NAME);
        require(strlen(address.rails[i].fabric) < FR_RAIL_WIRE_NAME);
        require(address.rails[i].target_bytes <= FR_RAIL_WIRE_ADDR);
        require(address.rails[i].initiator_bytes <= FR_RAIL_WIRE_ADDR);
    }
    require(fr_rail_wire_write_address(&address, again) == size && memcmp(again, data, size) == 0);
}

static void check_key(const uint8_t *data, size_t size)
{
    unsigned char again[FR_RAIL_WIRE_KEY_MAX];
    struct fr_rail_wire_key key;
    if (!fr_rail_wire_read_key(data, size, &key))
        return;
    require(size <= sizeof(again) && key.count > 0 && key.count <= FR_RAILS_MAX);
    require(key.offset < key.region_bytes && key.bytes <= key.region_bytes - key.offset);
    require(key.base + key.region_bytes >= key.base && (key.keyed >> key.count) == 0);
    require(fr_rail_wire_write_key(&key, again) == size && memcmp(again, data, size) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_address(data, size);
    check_key(data, size);
    return 0;
}
