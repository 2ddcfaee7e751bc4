// SPDX-License-Identifier: BSD-3-Clause
// Which sizes the library goes by, from the settings and the tuning files that a process finds.
// Each case runs in a process of its own, with a home of its own and its warnings in a file.
#include "config.h"

#include "fabrail/ipc/engine.h"

#include "driver.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

// Stands for the name of this machine in a file.
#define OWN "[@]"

enum { DEFAULT = 4 << 20 };

struct variant {
    const char *name;
    const char *settings[8]; // "NAME=VALUE", % in one is the folder of the case
    const char *home;        // text of home/.config/fabrail/tuning, NULL for no file
    const char *other;       // of the file "other"
    size_t exchange, message;
    const char *warning; // part of the only line of the log, NULL for none
};

static const struct variant variants[] = {
    {"defaults", {NULL}, NULL, NULL, DEFAULT, 0, NULL},
    {"home", {NULL}, OWN "\nexchange_ce_min=1M\nmessage_ce_min=64K\n", NULL, 1 << 20, 65536, NULL},
    {"one value", {NULL}, OWN "\nmessage_ce_min=64K\n", NULL, DEFAULT, 65536, NULL},
    {"another machine", {NULL}, "[x]\nexchange_ce_min=1M\n", NULL, DEFAULT, 0, NULL},
    {"unknown names", {NULL}, OWN "\nx=y\nexchange_ce_min=1M\n", NULL, 1 << 20, 0, NULL},
    {"empty file", {NULL}, "", NULL, DEFAULT, 0, NULL},
    {"broken",
     {NULL},
     OWN "\nexchange_ce_min=1M\nmessage_ce_min\n",
     NULL,
     DEFAULT,
     0,
     "tuning is broken, and nothing in it counts: line 3"},
    {"broken, silent", {"FABRAIL_LOG=error"}, "x\n", NULL, DEFAULT, 0, NULL},
    {"XDG before HOME",
     {"XDG_CONFIG_HOME=%/xdg"},
     OWN "\nexchange_ce_min=1M\n",
     NULL,
     DEFAULT,
     0,
     NULL},
    {"XDG", {"XDG_CONFIG_HOME=%/.config", "HOME=/"}, OWN "\nexchange_ce_min=7\n", NULL, 7, 0, NULL},
    {"relative XDG", {"XDG_CONFIG_HOME=.config"}, OWN "\nexchange_ce_min=7\n", NULL, 7, 0, NULL},
    {"relative home", {"HOME=."}, OWN "\nexchange_ce_min=7\n", NULL, DEFAULT, 0, NULL},
    {"named",
     {"FABRAIL_TUNING=%/other"},
     OWN "\nexchange_ce_min=7\nmessage_ce_min=7\n",
     OWN "\nexchange_ce_min=9\n",
     9,
     0,
     NULL},
    {"named, missing",
     {"FABRAIL_TUNING=%/other"},
     OWN "\nexchange_ce_min=7\n",
     NULL,
     DEFAULT,
     0,
     "cannot be read: No such file"},
    {"named, a folder",
     {"FABRAIL_TUNING=%"},
     OWN "\nexchange_ce_min=7\n",
     NULL,
     DEFAULT,
     0,
     "cannot be read: Is a directory"},
    {"named, a pipe",
     {"FABRAIL_TUNING=%/pipe"},
     NULL,
     NULL,
     DEFAULT,
     0,
     "cannot be read: Operation not supported"},
    {"none", {"FABRAIL_TUNING="}, OWN "\nexchange_ce_min=7\n", NULL, DEFAULT, 0, NULL},
    {"set wins", {"FABRAIL_PEER_CE_MIN=3"}, OWN "\nexchange_ce_min=7\n", NULL, 3, 3, NULL},
    {"set, broken",
     {"FABRAIL_PEER_CE_MIN=0"},
     "x\n",
     NULL,
     0,
     0,
     "tuning is broken, and nothing in it counts: line 1"},
    {"all set, broken",
     {"FABRAIL_PEER_CE_MIN=0", "FABRAIL_BCAST_SPLIT_MIN=5", "FABRAIL_REDUCE_SHARE_MIN=6",
      "FABRAIL_RAIL_MIN=7", "FABRAIL_CPU_READ_MAX=8", "FABRAIL_CPU_WRITE_MAX=9",
      "FABRAIL_PACK_FIRST_MIN=10", "FABRAIL_COMBINE_MIN=11"},
     "x\n",
     NULL,
     0,
     0,
     NULL},
    {"each other size",
     {NULL},
     OWN "\nbcast_split_min=1K\nreduce_share_min=2K\nrail_min=3K\n",
     NULL,
     DEFAULT,
     0,
     NULL},
    {"settings win one by one",
     {"FABRAIL_BCAST_SPLIT_MIN=5", "FABRAIL_RAIL_MIN=7"},
     OWN "\nexchange_ce_min=9\nbcast_split_min=1K\nreduce_share_min=2K\nrail_min=3K\n",
     NULL,
     9,
     0,
     NULL},
    {"set to auto", {"FABRAIL_PEER_CE_MIN=auto"}, OWN "\nexchange_ce_min=7\n", NULL, 7, 0, NULL},
    {"no NVML",
     {"FRSIM_NVML=0"},
     "[Fabrail simulated device, 4 GPUs, driver of CUDA @]\nexchange_ce_min=7\n",
     NULL,
     7,
     0,
     NULL},
    {"fewer to see", {"CUDA_VISIBLE_DEVICES=2"}, OWN "\nexchange_ce_min=7\n", NULL, 7, 0, NULL},
    {"fewer GPUs", {"FRSIM_DEVICES=2"}, OWN "\nexchange_ce_min=7\n", NULL, DEFAULT, 0, NULL},
};

// Where the other sizes are not those by default.
static const struct {
    const char *name;
    size_t split, share, rail;
} others[] = {
    {"all set, broken", 5, 6, 7},
    {"each other size", 1024, 2048, 3072},
    {"settings win one by one", 5, 2048, 7},
};

static char folder[] = "/tmp/fabrail-engine-XXXXXX";

static const char *path_of(const char *name)
{
    static char path[256];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

// Writes `text` with `own` in place of each @.
static void write_text(const char *path, const char *text, const char *own)
{
    unlink(path);
    FILE *file = text != NULL ? fopen(path, "w") : NULL;
    CHECK(text == NULL || file != NULL, "%s: %s", path, strerror(errno));
    for (; file != NULL && *text != '\0'; text++) {
        if (*text == '@')
            fputs(own, file);
        else
            fputc(*text, file);
    }
    if (file != NULL)
        CHECK(fclose(file) == 0);
}

static void apply(const struct variant *variant)
{
    for (size_t i = 0; i < sizeof(variant->settings) / sizeof(variant->settings[0]); i++) {
        const char *setting = variant->settings[i];
        char name[64], value[256];
        if (setting == NULL)
            break;
        const char *equal = strchr(setting, '=');
        const char *mark = strchr(setting, '%');
        snprintf(name, sizeof(name), "%.*s", (int)(equal - setting), setting);
        snprintf(value, sizeof(value), "%s%s", mark == equal + 1 ? folder : "",
                 mark == equal + 1 ? mark + 1 : equal + 1);
        setenv(name, value, 1);
    }
}

static void check_threshold(enum fr_policy_size size, size_t threshold)
{
    CHECK(fr_ipc_engine(size, threshold + 1) == FR_ENGINE_CE, "%zu", threshold + 1);
    CHECK(fr_ipc_engine(size, threshold) == FR_ENGINE_SM, "%zu", threshold);
    CHECK(threshold == 0 || fr_ipc_engine(size, threshold - 1) == FR_ENGINE_SM, "%zu",
          threshold - 1);
    CHECK(fr_ipc_engine(size, SIZE_MAX) == FR_ENGINE_CE);
}

static void check_others(const char *name)
{
    size_t split = 8 << 20, share = 4096, rail = 256 << 10;
    for (size_t i = 0; i < FR_ARRAY_LENGTH(others); i++) {
        if (strcmp(others[i].name, name) != 0)
            continue;
        split = others[i].split;
        share = others[i].share;
        rail = others[i].rail;
    }
    CHECK(fr_ipc_tuned(FR_SIZE_BCAST_SPLIT) == split);
    CHECK(fr_ipc_tuned(FR_SIZE_REDUCE_SHARE) == share);
    CHECK(fr_ipc_tuned(FR_SIZE_RAIL) == rail);
}

static void check_log(const struct variant *variant)
{
    char log[1024] = "";
    FILE *file = fopen(path_of("log"), "r");
    if (file == NULL || fread(log, 1, sizeof(log) - 1, file) == 0)
        log[0] = '\0';
    if (file != NULL)
        fclose(file);
    const char *newline = strchr(log, '\n');
    if (variant->warning == NULL)
        CHECK(*log == '\0', "%s", log);
    else
        CHECK(strstr(log, variant->warning) != NULL && newline != NULL && newline[1] == '\0', "%s",
              log);
}

// In a process of its own. Returns its exit status.
static int run(const struct variant *variant)
{
    int old = dup(STDERR_FILENO);
    int log = open(path_of("log"), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    CUcontext context = NULL;
    alarm(60); // for what waits where it must not
    apply(variant);
    if (chdir(folder) != 0 || log < 0 || old < 0 || !driver_load() || !driver_start(&context))
        return CHECK_SKIP;
    CHECK(fr_device_present());
    dup2(log, STDERR_FILENO);
    bool first = fr_ipc_engine(FR_SIZE_EXCHANGE_CE, variant->exchange + 1) == FR_ENGINE_CE;
    dup2(old, STDERR_FILENO);
    CHECK(first);
    write_text(path_of(".config/fabrail/tuning"), "x", ""); // it is read once
    check_threshold(FR_SIZE_EXCHANGE_CE, variant->exchange);
    check_threshold(FR_SIZE_MESSAGE_CE, variant->message);
    check_others(variant->name);
    check_log(variant);
    return check_result();
}

static int run_alone(const struct variant *variant)
{
    int status = 0;
    fflush(NULL);
    write_text(path_of(".config/fabrail/tuning"), variant->home,
               strstr(variant->home != NULL ? variant->home : "", "CUDA @")
                   ? "13.0"
                   : "Fabrail simulated device, 4 GPUs, driver 580.0.simulated");
    write_text(path_of("other"), variant->other,
               "Fabrail simulated device, 4 GPUs, driver 580.0.simulated");
    pid_t child = fork();
    if (child == 0)
        _exit(run(variant));
    return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status)
                                                                    : CHECK_FAIL;
}

static void clean(void)
{
    static const char *const names[] = {".config/fabrail/tuning", "other", "log", "pipe"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        unlink(path_of(names[i]));
    rmdir(path_of(".config/fabrail"));
    rmdir(path_of(".config"));
    rmdir(folder);
}

int main(void)
{
    unsigned skipped = 0;
    if (mkdtemp(folder) == NULL || mkdir(path_of(".config"), 0700) != 0 ||
        mkdir(path_of(".config/fabrail"), 0700) != 0 || mkfifo(path_of("pipe"), 0600) != 0) {
        perror(folder);
        return CHECK_FAIL;
    }
    unsetenv("XDG_CONFIG_HOME");
    unsetenv("CUDA_VISIBLE_DEVICES");
    setenv("HOME", folder, 1);
    for (size_t i = 0; i < sizeof(variants) / sizeof(variants[0]); i++) {
        int code = run_alone(&variants[i]);
        skipped += code == CHECK_SKIP;
        CHECK(code == CHECK_PASS || code == CHECK_SKIP, "case %s", variants[i].name);
    }
    clean();
    if (skipped > 0 && check_result() == CHECK_PASS)
        return CHECK_SKIP;
    return check_result();
}
