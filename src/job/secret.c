// SPDX-License-Identifier: BSD-3-Clause
// Secrets for one use each, derived from one secret by a keyed hash that cannot be inverted:
// SipHash-2-4 with 128 bits of output (Aumasson and Bernstein, 2012).
#include "config.h"

#include "fabrail/job/control.h"

#include <string.h>

struct state {
    uint64_t v[4];
};

static uint64_t rotate(uint64_t word, unsigned bits)
{
    return word << bits | word >> (64 - bits);
}

// Loads a word in little endian order, as the hash is defined.
static uint64_t load(const unsigned char *bytes)
{
    uint64_t word = 0;
    for (unsigned i = 0; i < 8; i++)
        word |= (uint64_t)bytes[i] << 8 * i;
    return word;
}

static void store(unsigned char *bytes, uint64_t word)
{
    for (unsigned i = 0; i < 8; i++)
        bytes[i] = (unsigned char)(word >> 8 * i);
}

static void mix(struct state *s, unsigned rounds)
{
    for (unsigned i = 0; i < rounds; i++) {
        s->v[0] += s->v[1];
        s->v[2] += s->v[3];
        s->v[1] = rotate(s->v[1], 13) ^ s->v[0];
        s->v[3] = rotate(s->v[3], 16) ^ s->v[2];
        s->v[0] = rotate(s->v[0], 32);
        s->v[2] += s->v[1];
        s->v[0] += s->v[3];
        s->v[1] = rotate(s->v[1], 17) ^ s->v[2];
        s->v[3] = rotate(s->v[3], 21) ^ s->v[0];
        s->v[2] = rotate(s->v[2], 32);
    }
}

static void absorb(struct state *s, uint64_t word)
{
    s->v[3] ^= word;
    mix(s, 2);
    s->v[0] ^= word;
}

static uint64_t digest(const struct state *s)
{
    return s->v[0] ^ s->v[1] ^ s->v[2] ^ s->v[3];
}

struct fr_job_secret fr_job_secret_derive(const struct fr_job_secret *secret, const void *use,
                                          size_t bytes)
{
    struct fr_job_secret made;
    uint64_t low = load(secret->bytes), high = load(secret->bytes + 8);
    struct state s = {{low ^ 0x736f6d6570736575u, high ^ 0x646f72616e646f83u,
                       low ^ 0x6c7967656e657261u, high ^ 0x7465646279746573u}};
    unsigned char last[8] = {0};
    size_t whole = bytes - bytes % 8;
    for (size_t at = 0; at < whole; at += 8)
        absorb(&s, load((const unsigned char *)use + at));
    if (bytes > whole)
        memcpy(last, (const unsigned char *)use + whole, bytes - whole);
    absorb(&s, load(last) | (uint64_t)(bytes & 0xff) << 56);
    s.v[2] ^= 0xee;
    mix(&s, 4);
    store(made.bytes, digest(&s));
    s.v[1] ^= 0xdd;
    mix(&s, 4);
    store(made.bytes + 8, digest(&s));
    return made;
}
