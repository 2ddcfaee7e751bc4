// SPDX-License-Identifier: BSD-3-Clause
// fabrail info: the MPIs on the path. Each is asked which one it is and whether it takes device
// pointers, in a rank that its own launcher starts, with the library preloaded. So this also shows
// that the two work together.
#include "config.h"

#include "info.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { START_SECONDS = 30, GPU_SUPPORT_CUDA = 0 };

// The lines that the rank prints begin with these.
#define SAYS_LIBRARY "fabrail-probe library "
#define SAYS_AWARE   "fabrail-probe gpu-aware "
#define SAYS_REPORT  "info: report: " // printed by the library itself

// Names of libraries by family, newest first. Debian's MPICH has one of its own.
static const char *const openmpi_names[] = {"libmpi.so.40", "libmpi.so.20", "libmpi.so", NULL};
static const char *const mpich_names[] = {"libmpi.so.12",    "libmpich.so.12", "libmpi_abi.so.1",
                                          "libmpi_abi.so.0", "libmpich.so",    NULL};

// Several names in one folder are of one MPI.
static bool is_known(const struct fr_info_mpis *mpis, const struct fr_launcher *launcher)
{
    char own[PATH_MAX], other[PATH_MAX];
    for (int i = 0; i < mpis->count; i++) {
        const struct fr_launcher *known = &mpis->mpis[i].launcher;
        if (known->family != launcher->family || realpath(launcher->path, own) == NULL ||
            realpath(known->path, other) == NULL)
            continue;
        *strrchr(own, '/') = '\0';
        *strrchr(other, '/') = '\0';
        if (strcmp(own, other) == 0)
            return true;
    }
    return false;
}

// Two of one version have their files behind it.
static void tell_apart(const struct fr_info_mpis *mpis, struct fr_info_mpi *mpi)
{
    char *version = mpi->launcher.version;
    for (int i = 0; i < mpis->count; i++) {
        if (strcmp(mpis->mpis[i].launcher.version, version) != 0)
            continue;
        char longer[sizeof(mpi->launcher.version) + 160];
        snprintf(longer, sizeof(longer), "%s (%.120s)", version, mpi->launcher.path);
        snprintf(version, sizeof(mpi->launcher.version), "%.159s", longer);
        return;
    }
}

// The libraries beside a launcher first, then those that the loader knows by name.
static void add_libraries(const struct fr_launcher *launcher, struct fr_words *words)
{
    static const char *const folders[] = {"lib", "lib64"};
    const char *const *names = launcher->family == FR_LAUNCH_OPENMPI ? openmpi_names : mpich_names;
    char real[PATH_MAX], file[PATH_MAX + 64];
    bool found = realpath(launcher->path, real) != NULL;
    for (int up = 0; found && up < 2 && strrchr(real, '/') != NULL; up++)
        *strrchr(real, '/') = '\0';
    for (size_t f = 0; found && f < FR_ARRAY_LENGTH(folders); f++) {
        for (const char *const *name = names; *name != NULL; name++) {
            snprintf(file, sizeof(file), "%s/%s/%s", real, folders[f], *name);
            if (access(file, R_OK) == 0)
                fr_words_add(words, "%s", file);
        }
    }
    for (const char *const *name = names; *name != NULL; name++)
        fr_words_add(words, "%s", *name);
}

static bool compose(const struct fr_launcher *launcher, const char *library,
                    struct fr_words *command)
{
    char own[FR_FILE_NAME_BYTES], preload[FR_FILE_NAME_BYTES + 16];
    char report_to[] = "FABRAIL_REPORT=text";
    char quiet[] = "FABRAIL_LOG=error", on[] = "FABRAIL_DISABLE=no";
    char passive[] = "FABRAIL_PATHS=pass"; // else Fabrail answers that it takes device pointers
    char traceless[] = "FABRAIL_TRACE=";   // what a job has left under that name stays
    struct fr_words words = {.list = NULL};
    ssize_t length = readlink("/proc/self/exe", own, sizeof(own) - 1);
    if (length <= 0)
        return false;
    own[length] = '\0';
    snprintf(preload, sizeof(preload), "LD_PRELOAD=%s", library);
    char *const assignments[] = {preload, report_to, quiet, on, passive, traceless, NULL};
    fr_words_add(&words, "%s", launcher->path);
    fr_words_add(&words, "-n");
    fr_words_add(&words, "1");
    fr_words_add(&words, "%s", own);
    fr_words_add(&words, "--probe-mpi");
    add_libraries(launcher, &words);
    bool good = !words.failed && fr_launch_compose(launcher->family, (int)words.count, words.list,
                                                   assignments, command);
    fr_words_free(&words);
    return good;
}

// Copies what follows `mark` on its line. Returns whether the mark is there.
static bool find_line(const char *output, const char *mark, char *text, size_t room)
{
    const char *line = output != NULL ? strstr(output, mark) : NULL;
    if (line == NULL)
        return false;
    line += strlen(mark);
    snprintf(text, room, "%.*s", (int)strcspn(line, "\n\r"), line);
    return true;
}

static void find_last_line(const char *output, char *text, size_t room)
{
    for (const char *line = output; line != NULL && *line != '\0';) {
        size_t length = strcspn(line, "\n\r");
        if (length > 0 && strspn(line, " -") < length)
            snprintf(text, room, "%.*s", (int)length, line);
        line += length + (line[length] != '\0');
    }
}

static void judge(const struct fr_child_result *result, struct fr_info_mpi *mpi)
{
    char answer[16] = "";
    mpi->started = result->status == 0 &&
                   find_line(result->output, SAYS_LIBRARY, mpi->library, sizeof(mpi->library));
    if (find_line(result->output, SAYS_AWARE, answer, sizeof(answer)))
        mpi->gpu_aware = strcmp(answer, "yes") == 0 ? FR_INFO_YES : FR_INFO_NO;
    if (mpi->started)
        mpi->served = strstr(result->output, SAYS_REPORT) ? FR_INFO_YES : FR_INFO_NO;
    else if (result->timed_out)
        snprintf(mpi->problem, sizeof(mpi->problem), "a job of one rank did not end in %d s",
                 START_SECONDS);
    else
        find_last_line(result->output, mpi->problem, sizeof(mpi->problem));
}

// As root too: this program does no harm.
void fr_info_mpi_ask(struct fr_info_mpi *mpi, const char *library)
{
    char root[] = "OMPI_ALLOW_RUN_AS_ROOT=1", confirm[] = "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1";
    char newer[] = "PRTE_ALLOW_RUN_AS_ROOT=1", sure[] = "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1";
    char *const assignments[] = {root, confirm, newer, sure, NULL};
    struct fr_words command = {.list = NULL};
    struct fr_child_result result = {.output = NULL};
    mpi->gpu_aware = mpi->served = FR_INFO_UNKNOWN;
    if (compose(&mpi->launcher, library, &command)) {
        fr_child_run(command.list, assignments, START_SECONDS, &result);
        judge(&result, mpi);
    }
    free(result.output);
    fr_words_free(&command);
}

void fr_info_mpis_find(struct fr_info_mpis *mpis, bool start, const char *library)
{
    static const char *const names[] = {
        "mpirun",  "mpiexec",       "mpirun.openmpi", "mpiexec.openmpi", "orterun",
        "prterun", "mpiexec.hydra", "mpirun.mpich",   "mpiexec.mpich",   "srun",
    };
    char path[FR_FILE_NAME_BYTES];
    mpis->count = 0;
    for (size_t i = 0; i < FR_ARRAY_LENGTH(names) && mpis->count < FR_INFO_MOST_MPIS; i++) {
        struct fr_info_mpi *mpi = &mpis->mpis[mpis->count];
        if (!fr_launch_find_file(names[i], path))
            continue;
        memset(mpi, 0, sizeof(*mpi));
        mpi->gpu_aware = mpi->served = FR_INFO_UNKNOWN;
        if (fr_launch_identify(names[i], &mpi->launcher) != FR_OK || is_known(mpis, &mpi->launcher))
            continue;
        tell_apart(mpis, mpi);
        mpis->count++;
    }
    for (int i = 0; i < mpis->count && start; i++) {
        if (mpis->mpis[i].launcher.family != FR_LAUNCH_SLURM) // it wants an allocation
            fr_info_mpi_ask(&mpis->mpis[i], library);
    }
}

// In the rank. MPI_Init and MPI_Finalize come from the process, so that the preloaded library's are
// called. A look-up by the MPI library's handle may give Fabrail's functions too, which pass the
// question on while Fabrail moves nothing itself.
int fr_info_probe_mpi(int count, char **libraries)
{
    void *mpi = NULL;
    for (int i = 0; i < count && mpi == NULL; i++)
        mpi = dlopen(libraries[i], RTLD_NOW | RTLD_GLOBAL);
    int (*init)(int *, char ***) = (int (*)(int *, char ***))dlsym(RTLD_DEFAULT, "MPI_Init");
    int (*finalize)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "MPI_Finalize");
    if (mpi == NULL || init == NULL || finalize == NULL) {
        fprintf(stderr, "the MPI library of this launcher was not found\n");
        return EXIT_FAILURE;
    }
    int (*version)(char *, int *) = (int (*)(char *, int *))dlsym(mpi, "MPI_Get_library_version");
    int (*ask_openmpi)(void) = (int (*)(void))dlsym(mpi, "MPIX_Query_cuda_support");
    int (*ask_mpich)(int, int *) = (int (*)(int, int *))dlsym(mpi, "MPIX_GPU_query_support");
    char text[8192] = "unknown"; // as long as any MPI's longest
    int length = 0, aware = 0;
    if (init(NULL, NULL) != 0)
        return EXIT_FAILURE;
    if (version != NULL)
        (void)version(text, &length);
    if (ask_mpich != NULL) // whose other function calls this one, by a name that is preloaded
        (void)ask_mpich(GPU_SUPPORT_CUDA, &aware);
    else if (ask_openmpi != NULL)
        aware = ask_openmpi() == 1;
    text[strcspn(text, "\n")] = '\0';
    for (char *tab = text; (tab = strchr(tab, '\t')) != NULL;)
        *tab = ' ';
    printf(SAYS_LIBRARY "%s\n" SAYS_AWARE "%s\n", text, aware ? "yes" : "no");
    fflush(stdout);
    return finalize() == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
