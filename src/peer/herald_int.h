// SPDX-License-Identifier: BSD-3-Clause
// Inside of room peer: heralds as they travel (herald.c), and what a receiver learns from them
// (expected.c).
#ifndef FR_PEER_HERALD_INT_H
#define FR_PEER_HERALD_INT_H

#include "peer/herald.h"

enum fr_herald_kind {
    FR_HERALD_MESSAGE = 1, // in chunks
    FR_HERALD_PLACED,      // whose bytes wait at `address` in the memory of `handle`
    FR_HERALD_READY,       // so many bytes of what is placed are there
    FR_HERALD_WITHDRAWN,
    FR_HERALD_FETCHED,
    FR_HERALD_LOST, // could not be fetched
    FR_HERALD_PLAIN,
    FR_HERALD_ALL_PLAIN,
    FR_HERALD_NOTE, // whose kind is `number`
};

// What travels: those without a handle end before it.
struct fr_herald {
    uint32_t kind;
    int32_t tag;
    uint64_t number;
    uint64_t bytes;
    uint64_t address;
    uint64_t ready;
    struct fr_memory_handle handle;
};
_Static_assert(sizeof(struct fr_herald) == 168, "all processes agree");

// Sends one. False without memory, or when MPI fails.
bool fr_peer_herald_send(int to, const struct fr_herald *herald);

// Notes one that has come from a process.
void fr_peer_expect(int from, const struct fr_herald *herald);

// Begins for so many processes, false without memory; and ends.
bool fr_peer_expected_open(size_t processes);
void fr_peer_expected_close(void);

// Calls a function for each message that is expected, by the only thread; where it returns true
// the message is forgotten.
void fr_peer_expected_visit(bool (*visit)(int from, uint64_t number, bool placed));

#endif
