// SPDX-License-Identifier: BSD-3-Clause
// Secrets for one use each: the published values of SipHash-2-4 with 128 bits of output, key 00 to
// 0f, input 00, 00 01, ...; and that every byte of secret and use counts.
#include "config.h"

#include "fabrail/job/control.h"

#include "check.h"

static void check_value(size_t bytes, const char *expected)
{
    struct fr_job_secret secret;
    unsigned char use[64];
    char text[33];
    for (unsigned i = 0; i < sizeof(secret.bytes); i++)
        secret.bytes[i] = (unsigned char)i;
    for (unsigned i = 0; i < sizeof(use); i++)
        use[i] = (unsigned char)i;
    struct fr_job_secret made = fr_job_secret_derive(&secret, use, bytes);
    for (unsigned i = 0; i < sizeof(made.bytes); i++)
        snprintf(text + 2 * i, 3, "%02x", made.bytes[i]);
    CHECK(strcmp(text, expected) == 0, "%zu bytes: %s", bytes, text);
}

int main(void)
{
    struct fr_job_secret secret, changed;
    unsigned char use[20];
    check_value(0, "a3817f04ba25a8e66df67214c7550293");
    check_value(1, "da87c1d86b99af44347659119b22fc45");
    check_fill(&secret, sizeof(secret), 1);
    check_fill(use, sizeof(use), 2);
    struct fr_job_secret first = fr_job_secret_derive(&secret, use, sizeof(use));
    for (size_t i = 0; i < sizeof(secret); i++) {
        changed = secret;
        changed.bytes[i] ^= 1;
        changed = fr_job_secret_derive(&changed, use, sizeof(use));
        CHECK(memcmp(&changed, &first, sizeof(first)) != 0, "byte %zu of the secret", i);
    }
    for (size_t i = 0; i < sizeof(use); i++) {
        use[i] ^= 1;
        changed = fr_job_secret_derive(&secret, use, sizeof(use));
        use[i] ^= 1;
        CHECK(memcmp(&changed, &first, sizeof(first)) != 0, "byte %zu of the use", i);
    }
    changed = fr_job_secret_derive(&secret, use, sizeof(use) - 1);
    CHECK(memcmp(&changed, &first, sizeof(first)) != 0, "the length counts");
    return check_result();
}
