// SPDX-License-Identifier: BSD-3-Clause
// Formats that processes send one another: the address of a process's rails, and the description of
// registered memory. Everything that arrives is read here, byte by byte. Nothing else of module
// rail looks at bytes of another process. All integers are little-endian, and lengths are exact.
//
// An address is: magic "FRra", version, number of rails; then the rails. A rail is: lengths of
// provider, fabric, target address and initiator address, a byte each; then these four.
//
// A key is: magic "FRrk", version, number of rails, mask of the rails with a key (2 bytes), mask of
// those with virtual addresses (2); base, region bytes, offset, bytes (8 each); a key (8) for each
// rail of the first mask.
#ifndef FR_RAIL_WIRE_H
#define FR_RAIL_WIRE_H

#include "fabrail/core.h"

enum {
    FR_RAIL_WIRE_VERSION = 1,
    FR_RAIL_WIRE_NAME = 64, // longest name of a provider or fabric, its terminating 0 included
    FR_RAIL_WIRE_ADDR = 64, // longest address of an endpoint
    FR_RAIL_WIRE_ADDRESS_MAX =
        6 + FR_RAILS_MAX * (4 + 2 * (FR_RAIL_WIRE_NAME - 1) + 2 * FR_RAIL_WIRE_ADDR),
    FR_RAIL_WIRE_KEY_MAX = 10 + 4 * 8 + FR_RAILS_MAX * 8,
};

// The address of one rail.
struct fr_rail_wire_rail {
    char provider[FR_RAIL_WIRE_NAME];
    char fabric[FR_RAIL_WIRE_NAME];
    unsigned char target[FR_RAIL_WIRE_ADDR]; // address of the endpoint that others read from
    unsigned char initiator[FR_RAIL_WIRE_ADDR];
    size_t target_bytes, initiator_bytes;
};

// The address of a process's rails.
struct fr_rail_wire_address {
    unsigned count;
    struct fr_rail_wire_rail rails[FR_RAILS_MAX];
};

// The description of registered memory.
struct fr_rail_wire_key {
    unsigned count;
    uint32_t keyed;   // bit i: rail i has a key
    uint32_t virtual; // bit i: rail i takes virtual addresses; other rails take offsets
    uint64_t base;    // virtual address of the region
    uint64_t region_bytes;
    uint64_t offset; // of the described bytes in the region
    uint64_t bytes;
    uint64_t keys[FR_RAILS_MAX];
};

// Writes an address as bytes and returns their number. Names and addresses must be within their
// bounds.
size_t fr_rail_wire_write_address(const struct fr_rail_wire_address *address,
                                  unsigned char bytes[FR_RAIL_WIRE_ADDRESS_MAX]);
// Writes a key as bytes and returns their number.
size_t fr_rail_wire_write_key(const struct fr_rail_wire_key *key,
                              unsigned char bytes[FR_RAIL_WIRE_KEY_MAX]);

// Reads an address. Returns false, and writes nothing, for bytes that fr_rail_wire_write_address
// cannot have written. They have another version, a wrong length, a bound exceeded, or names with
// bytes that no name has.
bool fr_rail_wire_read_address(const void *bytes, size_t length,
                               struct fr_rail_wire_address *address);
// Reads a key. Returns false, and writes nothing, for bytes that fr_rail_wire_write_key cannot have
// written.
bool fr_rail_wire_read_key(const void *bytes, size_t length, struct fr_rail_wire_key *key);

#endif
