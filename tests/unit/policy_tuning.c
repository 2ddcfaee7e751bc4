// SPDX-License-Identifier: BSD-3-Clause
// The tuning file's text: what is read for one machine, where its section stands, each way in which
// a file can be broken; which size counts, with a byte more and a byte less; and what traffic a
// rank's pieces are.
#include "config.h"

#include "fabrail/policy/tuning.h"

#include "check.h"

#define OWN   "NVIDIA H200, 4 GPUs, driver 580.65.06"
#define OTHER "NVIDIA H200, 8 GPUs, driver 580.65.06"

enum { AUTO = -1 };

// The defaults that the manual pages name.
static const size_t defaults[FR_SIZE_COUNT] = {
    [FR_SIZE_EXCHANGE_CE] = 4 << 20, [FR_SIZE_SPREAD_CE] = 4 << 20,
    [FR_SIZE_GATHER_CE] = 4 << 20,   [FR_SIZE_MESSAGE_CE] = 0,
    [FR_SIZE_COPY_CE] = 4 << 20,     [FR_SIZE_BCAST_SPLIT] = 8 << 20,
    [FR_SIZE_REDUCE_SHARE] = 4096,   [FR_SIZE_RAIL] = 256 << 10,
    [FR_SIZE_CPU_READ] = 1024,       [FR_SIZE_CPU_WRITE] = 8192,
    [FR_SIZE_PACK_FIRST] = 2 << 20,  [FR_SIZE_COMBINE] = 128 << 10,
};

struct sample {
    const char *text;
    long long exchange, message; // AUTO: not said
    const char *section;         // the bytes of the own section, NULL for none
};

static const struct sample samples[] = {
    {"", AUTO, AUTO, NULL},
    {"\n\n# nothing\n", AUTO, AUTO, NULL},
    {"[" OTHER "]\nexchange_ce_min = 5\n", AUTO, AUTO, NULL},
    {"[" OWN "]", AUTO, AUTO, "[" OWN "]"},
    {"[" OWN "]\nexchange_ce_min = 5", 5, AUTO, "[" OWN "]\nexchange_ce_min = 5"},
    {"[" OWN "]\nmessage_ce_min=4K\n", AUTO, 4096, "[" OWN "]\nmessage_ce_min=4K\n"},
    {"[" OWN "]\nexchange_ce_min=0\nmessage_ce_min=1\n# next\n\n", 0, 1,
     "[" OWN "]\nexchange_ce_min=0\nmessage_ce_min=1\n"},
    {"  [ " OWN "\t] \r\n\t exchange_ce_min \t=  12M \r\n", 12 << 20, AUTO,
     "  [ " OWN "\t] \r\n\t exchange_ce_min \t=  12M \r\n"},
    // Sections of others come before and after it, with the same names in them.
    {"# top\n[" OTHER "]\nexchange_ce_min = 1\n# of the next\n[" OWN "]\n# made by hand\n"
     "message_ce_min = 2\n# of the last\n[x]\nmessage_ce_min = 3\n",
     AUTO, 2, "[" OWN "]\n# made by hand\nmessage_ce_min = 2\n"},
    {"[" OTHER "]\nmessage_ce_min = 3\n[" OTHER "]\nmessage_ce_min = 4\n", AUTO, AUTO, NULL},
    // Names of a later version.
    {"[" OWN "]\nsize = much\nexchange_ce_min = 7\nEXCHANGE_CE_MIN = x\ne = \n", 7, AUTO,
     "[" OWN "]\nsize = much\nexchange_ce_min = 7\nEXCHANGE_CE_MIN = x\ne = \n"},
};

static const struct {
    const char *text;
    unsigned line;
} broken[] = {
    {"x", 1},
    {"exchange_ce_min = 1\n", 1},
    {"[" OWN "\nexchange_ce_min = 1\n", 1},
    {"# good\n[]\n", 2},
    {"[ ]\n", 1},
    {"[\n", 1},
    {"[" OWN "] 5\n", 1},
    {"[" OWN "]\n = 5\n", 2},
    {"[" OWN "]\nexchange_ce_min 5\n", 2},
    {"[" OWN "]\nexchange_ce_min =\n", 2},
    {"[" OWN "]\nexchange_ce_min = much\n", 2},
    {"[" OWN "]\nexchange_ce_min = -5\n", 2},
    {"[" OWN "]\nexchange_ce_min = 5 # no comment here\n", 2},
    {"[" OWN "]\nexchange_ce_min = 18446744073709551615\n", 2},
    {"[" OWN "]\nexchange_ce_min = 18446744073709551616\n", 2},
    {"[" OWN "]\nexchange_ce_min = 00000000000000000000000000000000000000000000000000000001\n", 2},
    {"[" OWN "]\nexchange_ce_min = 5\nexchange_ce_min = 5\n", 3},
    {"[" OWN "]\nexchange_ce_min = 5\n[" OWN "]\n", 3},
    {"[" OWN "]\nexchange_ce_min = 5\n\n[" OTHER "]\nmessage_ce_min = x\n", 5},
};

static bool is_value(size_t bytes, long long wanted)
{
    return wanted == AUTO ? bytes == FR_BYTES_AUTO : bytes == (size_t)wanted;
}

static void check_sample(const struct sample *sample)
{
    struct fr_policy_tuning_file file;
    const char *text = sample->text;
    enum fr_status status = fr_policy_tuning_read(text, strlen(text), OWN, &file);
    CHECK(status == (sample->section != NULL ? FR_OK : FR_ERR_NOT_FOUND), "%s", text);
    CHECK(file.fault == NULL && file.found == (sample->section != NULL), "%s", text);
    CHECK(is_value(file.tuning.bytes[FR_SIZE_EXCHANGE_CE], sample->exchange), "%s", text);
    CHECK(is_value(file.tuning.bytes[FR_SIZE_MESSAGE_CE], sample->message), "%s", text);
    if (sample->section == NULL || !file.found)
        return;
    CHECK(file.end - file.begin == strlen(sample->section), "%s", text);
    CHECK(strncmp(text + file.begin, sample->section, strlen(sample->section)) == 0, "%s", text);
}

static void check_is_broken(const char *text, size_t bytes, unsigned line)
{
    struct fr_policy_tuning_file file;
    CHECK(fr_policy_tuning_read(text, bytes, OWN, &file) == FR_ERR_INVALID, "%s", text);
    CHECK(file.fault != NULL && file.fault_line == line, "%s: line %u", text, file.fault_line);
    CHECK(!file.found, "%s", text);
    for (int i = 0; i < FR_SIZE_COUNT; i++)
        CHECK(file.tuning.bytes[i] == FR_BYTES_AUTO, "%s", text);
}

// Any bytes, and every beginning of a good file, are read without harm.
static void test_garbage(void)
{
    const char *good = samples[8].text;
    struct fr_policy_tuning_file file;
    uint64_t state = 20;
    char text[64];
    for (size_t bytes = 0; bytes <= strlen(good); bytes++)
        (void)!fr_policy_tuning_read(good, bytes, OWN, &file);
    for (int i = 0; i < 20000; i++) {
        size_t bytes = check_random(&state) % sizeof(text);
        for (size_t b = 0; b < bytes; b++)
            text[b] = "[]=#\n\r \t0k\0x"[check_random(&state) % 12];
        (void)!fr_policy_tuning_read(text, bytes, "0", &file);
        CHECK(file.begin <= file.end && file.end <= bytes);
    }
}

// Every size by its own name, the others staying as they are.
static void test_names(void)
{
    struct fr_policy_tuning_file file;
    for (int i = 0; i < FR_SIZE_COUNT; i++) {
        char text[128];
        const char *name = fr_policy_tuning_name((enum fr_policy_size)i);
        int bytes = snprintf(text, sizeof(text), "[" OWN "]\n %s = %dK\n", name, i + 1);
        CHECK(fr_policy_tuning_read(text, (size_t)bytes, OWN, &file) == FR_OK, "%s", name);
        for (int k = 0; k < FR_SIZE_COUNT; k++)
            CHECK(file.tuning.bytes[k] == (k == i ? (size_t)(i + 1) * 1024 : FR_BYTES_AUTO), "%s",
                  name);
        bytes = snprintf(text, sizeof(text), "\t%s =x", name);
        CHECK((int)fr_policy_tuning_line(text, (size_t)bytes) == i, "%s", name);
        CHECK(fr_policy_tuning_line(text, (size_t)bytes - 2) == FR_SIZE_COUNT, "%s", name);
        text[1] = '#';
        CHECK(fr_policy_tuning_line(text, (size_t)bytes) == FR_SIZE_COUNT, "%s", name);
    }
}

static void test_choice(void)
{
    struct fr_policy_tuning measured;
    for (int i = 0; i < FR_SIZE_COUNT; i++)
        measured.bytes[i] = (size_t)i * 1000;
    for (int i = 0; i < FR_SIZE_COUNT; i++) {
        enum fr_policy_size size = (enum fr_policy_size)i;
        struct fr_policy_crossover found =
            fr_policy_crossover(size, FR_BYTES_AUTO, &fr_policy_untuned);
        CHECK(found.bytes == defaults[i] && strcmp(found.reason, "by default") == 0, "%d", i);
        found = fr_policy_crossover(size, FR_BYTES_AUTO, &measured);
        CHECK(found.bytes == measured.bytes[i] && strcmp(found.reason, "as measured") == 0);
        found = fr_policy_crossover(size, 0, &measured);
        CHECK(found.bytes == 0 && strcmp(found.reason, "as set") == 0);
        found = fr_policy_crossover(size, 77, &fr_policy_untuned);
        CHECK(found.bytes == 77 && strcmp(found.reason, "as set") == 0);
    }
    for (size_t bytes = 1; bytes < (size_t)1 << 44; bytes *= 2) {
        CHECK(fr_policy_engine(bytes - 1, bytes) == FR_POLICY_KERNELS);
        CHECK(fr_policy_engine(bytes, bytes) == FR_POLICY_KERNELS);
        CHECK(fr_policy_engine(bytes + 1, bytes) == FR_POLICY_COPY_ENGINES);
        CHECK(fr_policy_engine(bytes, 0) == FR_POLICY_COPY_ENGINES);
    }
}

static void test_traffic(void)
{
    CHECK(fr_policy_traffic(0, 0) == FR_SIZE_GATHER_CE);
    CHECK(fr_policy_traffic(1, 0) == FR_SIZE_GATHER_CE);
    CHECK(fr_policy_traffic(1, 7) == FR_SIZE_GATHER_CE);
    CHECK(fr_policy_traffic(2, 0) == FR_SIZE_SPREAD_CE);
    CHECK(fr_policy_traffic(2, 1) == FR_SIZE_EXCHANGE_CE);
    CHECK(fr_policy_traffic(72, 71) == FR_SIZE_EXCHANGE_CE);
}

int main(void)
{
    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++)
        check_sample(&samples[i]);
    for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); i++)
        check_is_broken(broken[i].text, strlen(broken[i].text), broken[i].line);
    check_is_broken("# a\0b\n", 6, 1);
    check_is_broken("[" OWN "]\nexchange_ce_min = 5\0\n",
                    sizeof("[" OWN "]\nexchange_ce_min = 5\n"), 2);
    test_garbage();
    test_names();
    test_choice();
    test_traffic();
    return check_result();
}
