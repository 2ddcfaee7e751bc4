// SPDX-License-Identifier: BSD-3-Clause
// Settings: every type of row, its limits plus and minus one, and what is said of wrong ones.
#include "config.h"

#include "fabrail/core.h"

#include "check.h"

#include <stdlib.h>

static char said[4096];

static void listen(void *cookie, const char *text)
{
    (void)cookie;
    strncat(said, text, sizeof(said) - strlen(said) - 2);
    strcat(said, "\n");
}

// Parses an environment of one or two variables; what was complained of is in `said`.
static struct fr_settings parse(const char *first, const char *second, unsigned complaints)
{
    char *environment[] = {(char *)"HOME=/", (char *)first, (char *)second, NULL};
    struct fr_settings settings;
    said[0] = '\0';
    unsigned count = fr_core_settings_parse(environment, &settings, listen, NULL);
    CHECK(count == complaints, "%s %s: %u complaints, not %u: %s", first, second ? second : "",
          count, complaints, said);
    return settings;
}

static void test_defaults(void)
{
    struct fr_settings settings = parse("PATH=/bin", NULL, 0);
    CHECK(!settings.disable);
    CHECK(settings.log == FR_LOG_WARN);
    CHECK(settings.paths ==
          (FR_PATH_BIT_PASS | FR_PATH_BIT_HOST | FR_PATH_BIT_FABRIC | FR_PATH_BIT_PEER));
    CHECK(settings.mpi_gpu_aware == FR_AUTO);
    CHECK(settings.staging_max_bytes == (size_t)4 << 30);
    CHECK(settings.staging_keep_bytes == (size_t)4 << 30);
    CHECK(strcmp(settings.report, "") == 0);

    CHECK(fr_core_settings_parse(NULL, &settings, NULL, NULL) == 0);
    CHECK(settings.staging_max_bytes == (size_t)4 << 30);
}

// A number of seconds takes no unit, and is said to be one.
static void test_seconds(void)
{
    CHECK(parse("FABRAIL_TIMEOUT=60", NULL, 0).timeout_s == 60);
    (void)parse("FABRAIL_TIMEOUT=60s", NULL, 1);
    CHECK(strstr(said, "it takes 0 to 1G seconds; using the default 0"), "%s", said);
    (void)parse("FABRAIL_STAGING_MAX=60s", NULL, 1);
    CHECK(!strstr(said, "seconds"), "%s", said);
}

// Module files set these beside the settings of a package.
static void test_names_of_sites(void)
{
    static const char *const of_sites[] = {"ROOT",    "HOME", "DIR",     "INSTALL_DIR",
                                           "VERSION", "LIB",  "INCLUDE", "ROOT_DIR",
                                           "PREFIX",  "BASE", "BIN"};
    static const char *const wrong[] = {"LGO", "PATH",  "ROOTS",    "",
                                        "_",   "HOME_", "ROOT_MAX", "root"};
    char variable[64];
    for (size_t i = 0; i < sizeof(of_sites) / sizeof(of_sites[0]); i++) {
        snprintf(variable, sizeof(variable), "FABRAIL_%s=/opt/fabrail", of_sites[i]);
        (void)parse(variable, NULL, 0);
    }
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        snprintf(variable, sizeof(variable), "FABRAIL_%s=/opt/fabrail", wrong[i]);
        (void)parse(variable, NULL, 1);
    }
}

static void test_bytes(void)
{
    static const struct {
        const char *text;
        size_t bytes; // 0: refused
    } cases[] = {
        {"4194304", 4194304},
        {"64M", (size_t)64 << 20},
        {"64m", (size_t)64 << 20},
        {"64MB", (size_t)64 << 20},
        {"64MiB", (size_t)64 << 20},
        {"1.5G", (size_t)3 << 29},
        {"0.25G", (size_t)1 << 28},
        {"2.G", (size_t)2 << 30},
        {"1.0000000000000000000000000M", 1 << 20},
        {"1048576B", 1 << 20},
        {"1024K", 1 << 20},
        {"1M", 1 << 20},
        {"1048575", 0},
        {"1048577", 1048577},
        {"16T", (size_t)16 << 40},
        {"17592186044417", 0},
        {"17592186044416", (size_t)16 << 40},
        {"18446744073709551615", 0},
        {"18446744073709551616", 0},
        {"99999999999999999999999999G", 0},
        {"16777217T", 0},
        {"-1M", 0},
        {"+1M", 0},
        {" 1M", 0},
        {"1M ", 0},
        {"1 M", 0},
        {"M", 0},
        {".5G", 0},
        {"1048576.5", 0},
        {"1,5G", 0},
        {"0x100000", 0},
        {"1e9", 0},
        {"1MX", 0},
        {"nan", 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char variable[128];
        snprintf(variable, sizeof(variable), "FABRAIL_STAGING_MAX=%s", cases[i].text);
        struct fr_settings settings = parse(variable, NULL, cases[i].bytes == 0);
        size_t expected = cases[i].bytes ? cases[i].bytes : (size_t)4 << 30;
        CHECK(settings.staging_max_bytes == expected, "%s gave %zu", cases[i].text,
              settings.staging_max_bytes);
    }
    CHECK(parse("FABRAIL_STAGING_KEEP=0", NULL, 0).staging_keep_bytes == 0);
}

static void test_choices(void)
{
    static const char *const names[] = {"error", "warn", "info", "debug", "trace"};
    for (unsigned level = FR_LOG_ERROR; level <= FR_LOG_TRACE; level++) {
        char variable[64];
        snprintf(variable, sizeof(variable), "FABRAIL_LOG=%s", names[level]);
        CHECK(parse(variable, NULL, 0).log == (enum fr_log_level)level);
    }
    CHECK(parse("FABRAIL_LOG=Debug", NULL, 0).log == FR_LOG_DEBUG);
    CHECK(parse("FABRAIL_LOG=debugs", NULL, 1).log == FR_LOG_WARN);
    CHECK(parse("FABRAIL_LOG=debu", NULL, 1).log == FR_LOG_WARN);
    CHECK(parse("FABRAIL_LOG=", NULL, 0).log == FR_LOG_WARN);

    CHECK(parse("FABRAIL_DISABLE=1", NULL, 0).disable);
    CHECK(parse("FABRAIL_DISABLE=yes", NULL, 0).disable);
    CHECK(parse("FABRAIL_DISABLE=ON", NULL, 0).disable);
    CHECK(!parse("FABRAIL_DISABLE=0", NULL, 0).disable);
    CHECK(!parse("FABRAIL_DISABLE=2", NULL, 1).disable);

    CHECK(parse("FABRAIL_MPI_GPU_AWARE=auto", NULL, 0).mpi_gpu_aware == FR_AUTO);
    CHECK(parse("FABRAIL_MPI_GPU_AWARE=true", NULL, 0).mpi_gpu_aware == FR_YES);
    CHECK(parse("FABRAIL_MPI_GPU_AWARE=no", NULL, 0).mpi_gpu_aware == FR_NO);
    CHECK(parse("FABRAIL_MPI_GPU_AWARE=maybe", NULL, 1).mpi_gpu_aware == FR_AUTO);

    CHECK(parse("FABRAIL_PATHS=host", NULL, 0).paths == FR_PATH_BIT_HOST);
    CHECK(parse("FABRAIL_PATHS=host,pass", NULL, 0).paths == (FR_PATH_BIT_HOST | FR_PATH_BIT_PASS));
    unsigned all = FR_PATH_BIT_HOST | FR_PATH_BIT_PASS | FR_PATH_BIT_FABRIC | FR_PATH_BIT_PEER;
    CHECK(parse("FABRAIL_PATHS=host,", NULL, 1).paths == all);
    CHECK(parse("FABRAIL_PATHS=hos", NULL, 1).paths == all);
    CHECK(parse("FABRAIL_PATHS=fabric,peer,pass,host", NULL, 0).paths == all);
    CHECK(parse(NULL, NULL, 0).paths == all);

    CHECK(parse(NULL, NULL, 0).fabric == FR_FABRIC_AUTO);
    CHECK(parse("FABRAIL_FABRIC=force", NULL, 0).fabric == FR_FABRIC_FORCE);
    CHECK(parse("FABRAIL_FABRIC=off", NULL, 0).fabric == FR_FABRIC_OFF);
    CHECK(parse("FABRAIL_FABRIC=yes", NULL, 1).fabric == FR_FABRIC_AUTO);
    CHECK(parse("FABRAIL_PEER_SMS=0", NULL, 1).peer_sms == 32);
    CHECK(parse(NULL, NULL, 0).clique_min_bytes == 16384);
    CHECK(parse("FABRAIL_CLIQUE_MIN=0", NULL, 0).clique_min_bytes == 0);
    CHECK(parse(NULL, NULL, 0).shared_gpu_min_bytes == (size_t)1 << 20);
    CHECK(parse("FABRAIL_SHARED_GPU_MIN=0", NULL, 0).shared_gpu_min_bytes == 0);
    CHECK(parse("FABRAIL_PIPELINE_MIN=0", NULL, 0).pipeline_min_bytes == 0);
    CHECK(parse("FABRAIL_PIPELINE_MIN=64k", NULL, 0).pipeline_min_bytes == 65536);
    CHECK(parse("FABRAIL_PIPELINE_MIN=none", NULL, 1).pipeline_min_bytes == (size_t)1 << 20);
    CHECK(parse("FABRAIL_PEER_CE_MIN=0", NULL, 0).peer_ce_min_bytes == 0);
    CHECK(parse("FABRAIL_PEER_CE_MIN=16T", NULL, 0).peer_ce_min_bytes == (size_t)16 << 40);
    CHECK(parse("FABRAIL_PEER_CE_MIN=Auto", NULL, 0).peer_ce_min_bytes == FR_BYTES_AUTO);
    CHECK(parse("FABRAIL_PEER_CE_MIN=", NULL, 0).peer_ce_min_bytes == FR_BYTES_AUTO);
    CHECK(parse("FABRAIL_PEER_CE_MIN=automatic", NULL, 1).peer_ce_min_bytes == FR_BYTES_AUTO);
    CHECK(strstr(said, "auto, 0 to 16T") != NULL, "%s", said);
    CHECK(parse(NULL, NULL, 0).bcast_split_min_bytes == FR_BYTES_AUTO);
    CHECK(parse("FABRAIL_BCAST_SPLIT_MIN=1M", NULL, 0).bcast_split_min_bytes == (size_t)1 << 20);
    CHECK(parse("FABRAIL_REDUCE_SHARE_MIN=0", NULL, 0).reduce_share_min_bytes == 0);
    CHECK(parse("FABRAIL_REDUCE_SHARE_MIN=x", NULL, 1).reduce_share_min_bytes == FR_BYTES_AUTO);
    CHECK(parse("FABRAIL_RAIL_MIN=auto", NULL, 0).rail_min_bytes == FR_BYTES_AUTO);
    CHECK(parse("FABRAIL_RAIL_MIN=64", NULL, 0).rail_min_bytes == 64);
    CHECK(parse("FABRAIL_PEER_SMS=auto", NULL, 1).peer_sms == 32);
    CHECK(parse("FABRAIL_TIMEOUT=90", NULL, 0).timeout_s == 90);
    CHECK(parse(NULL, NULL, 0).sync == FR_SYNC_OFF);
    CHECK(parse("FABRAIL_SYNC=check", NULL, 0).sync == FR_SYNC_CHECK);
    CHECK(parse("FABRAIL_SYNC=Auto", NULL, 0).sync == FR_SYNC_AUTO);
    CHECK(parse("FABRAIL_SYNC=on", NULL, 1).sync == FR_SYNC_OFF);
    CHECK(parse(NULL, NULL, 0).sync_wait_s == 10);
    CHECK(parse("FABRAIL_SYNC_WAIT=0", NULL, 1).sync_wait_s == 10);
    CHECK(parse("FABRAIL_WORKSPACE_MAX=0", NULL, 0).workspace_max_bytes == 0);
    CHECK(parse("FABRAIL_WORKSPACE_MAX=2M", NULL, 0).workspace_max_bytes == (size_t)2 << 20);

    CHECK(strcmp(parse("FABRAIL_REPORT=/a/b=c", NULL, 0).report, "/a/b=c") == 0);
    CHECK(strcmp(parse("FABRAIL_TUNING=", NULL, 0).tuning, "") == 0);
    CHECK(strcmp(parse("FABRAIL_TUNING=/a", NULL, 0).tuning, "/a") == 0);
    CHECK(strcmp(parse(NULL, NULL, 0).tuning, "auto") == 0);
}

static void test_complaints(void)
{
    parse("FABRAIL_STAGINGMAX=1G", NULL, 1);
    CHECK(strstr(said, "FABRAIL_STAGINGMAX is not") != NULL, "%s", said);
    CHECK(strstr(said, "nearest is FABRAIL_STAGING_MAX") != NULL, "%s", said);
    parse("FABRAIL_DISABLED=1", NULL, 1);
    CHECK(strstr(said, "nearest is FABRAIL_DISABLE\n") != NULL, "%s", said);
    parse("FABRAIL_REPROT=x", NULL, 1);
    CHECK(strstr(said, "nearest is FABRAIL_REPORT\n") != NULL, "%s", said);
    parse("FABRAIL_=x", NULL, 1);
    parse("FABRAIL_LOG", NULL, 0);

    parse("FABRAIL_STAGING_MAX=1023K", NULL, 1);
    CHECK(strstr(said, "\"1023K\"") != NULL, "%s", said);
    CHECK(strstr(said, "1M to 16T") != NULL, "%s", said);
    CHECK(strstr(said, "default 4G") != NULL, "%s", said);
    parse("FABRAIL_LOG=loud", NULL, 1);
    CHECK(strstr(said, "error, warn, info, debug, trace") != NULL, "%s", said);
    parse("FABRAIL_LOG=loud", "FABRAIL_PATH=host", 2);

    // A name or a value of any length is cut, not followed.
    static char variable[70000] = "FABRAIL_";
    memset(variable + 8, 'X', sizeof(variable) - 10);
    variable[30000] = '=';
    parse(variable, NULL, 1);
    memcpy(variable, "FABRAIL_LOG=", 12);
    parse(variable, NULL, 1);

    // The first of two counts, as getenv has it.
    CHECK(parse("FABRAIL_LOG=info", "FABRAIL_LOG=debug", 0).log == FR_LOG_INFO);
}

// Checks what the ranks of a job compare. It is the same for equal settings, however they were
// spelt.
static void check_alike(const char *first, const char *second, const char *expected)
{
    char text[FR_ALIKE_BYTES];
    struct fr_settings settings = parse(first, second, 0);
    fr_core_settings_alike(&settings, text);
    CHECK(strcmp(text, expected) == 0, "%s, not %s", text, expected);
}

static void test_alike(void)
{
    const char *defaults =
        "FABRAIL_PATHS=pass,host,fabric,peer;FABRAIL_FABRIC=auto;FABRAIL_RAIL_HOST=no";
    check_alike("PATH=/bin", NULL, defaults);
    check_alike("FABRAIL_PATHS=peer,FABRIC,host,pass", "FABRAIL_LOG=debug", defaults);
    check_alike("FABRAIL_PATHS=host,pass", "FABRAIL_FABRIC=off",
                "FABRAIL_PATHS=pass,host;FABRAIL_FABRIC=off;FABRAIL_RAIL_HOST=no");
    check_alike("FABRAIL_RAIL_HOST=1", "FABRAIL_PATHS=pass,host",
                "FABRAIL_PATHS=pass,host;FABRAIL_FABRIC=auto;FABRAIL_RAIL_HOST=yes");
}

static void test_rows(void)
{
    struct fr_core_setting setting;
    bool found = false;
    size_t count = 0;
    for (; fr_core_setting_at(count, &setting); count++) {
        CHECK(strncmp(setting.name, "FABRAIL_", 8) == 0 && *setting.help, "%s", setting.name);
        if (strcmp(setting.name, "FABRAIL_STAGING_MAX") == 0)
            found =
                strcmp(setting.values, "1M to 16T") == 0 && strcmp(setting.default_text, "4G") == 0;
    }
    CHECK(found && count > 30, "%zu settings", count);
}

static void test_process(void)
{
    setenv("FABRAIL_REPORT", "first", 1);
    setenv("FABRAIL_LOG", "error", 1);
    setenv("FABRAIL_STAGING_KEEP", "none", 1); // below the level, so nothing is written
    const struct fr_settings *settings = fr_core_settings();
    CHECK(fr_core_log_level == FR_LOG_ERROR);
    CHECK(strcmp(settings->report, "first") == 0);
    CHECK(settings->staging_keep_bytes == (size_t)4 << 30);
    setenv("FABRAIL_REPORT", "second", 1);
    CHECK(fr_core_settings() == settings);
    CHECK(strcmp(settings->report, "first") == 0);
}

int main(void)
{
    test_defaults();
    test_seconds();
    test_names_of_sites();
    test_bytes();
    test_choices();
    test_complaints();
    test_alike();
    test_process();
    test_rows(); // reads the settings of the process
    return check_result();
}
