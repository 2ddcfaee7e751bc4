// SPDX-License-Identifier: BSD-3-Clause
// How the ranks get environment variables through each launcher, and where the program stands among
// a launcher's arguments.
#include "config.h"

#include "command.h"
#include "launch.h"

#include <stdlib.h>
#include <string.h>

// Options of a launcher by the number of words that follow, names without dashes, between blanks.
struct dialect {
    const char *none, *one, *two;
};

static const struct dialect openmpi = {
    .none = " oversubscribe nooversubscribe use-hwthread-cpus nolocal no-local report-bindings "
            "bynode bycore byslot tag-output timestamp-output merge-stderr-to-stdout "
            "allow-run-as-root quiet q verbose v display-map display-allocation "
            "display-topo do-not-launch continuous get-stack-traces report-state-on-timeout "
            "enable-recovery disable-recovery index-argv-by-rank bind-to-core bind-to-none "
            "noprefix novm no-ready-msg xml d debug-daemons preload-binary s forward-signals ",
    .one = " n np c app H host hostfile machinefile default-hostfile x wdir wd path bind-to map-by "
           "rank-by npernode npersocket N pernode report-uri am rankfile rf cpu-set cpu-list "
           "output-filename output tune timeout stdin prefix personality output-proctable "
           "preload-files launch-agent max-restarts display runtime-options set-cwd-to-session-dir "
           "report-child-jobs-separately ",
    .two = " mca gmca pmca prtemca pmixmca ",
};

static const struct dialect hydra = {
    .none = " genvall genvnone envall envnone l prepend-rank v verbose print-rank-map "
            "print-all-exitcodes disable-auto-cleanup disable-hostname-propagation localroot "
            "skip-launch-node order-nodes-ascending nolocal gtool-verbose ",
    .one = " n np f configfile hosts host hostfile machinefile ppn perhost grr genvlist envlist "
           "wdir path memory-alloc-kinds "
           "umask bind-to map-by membind launcher bootstrap launcher-exec bootstrap-exec rmk iface "
           "prepend-pattern outfile-pattern errfile-pattern demux topolib usize arch port "
           "exitinfo cleanup pmi-port hydra-dir silent-abort gpus-per-proc gpu-subdevs-per-proc "
           "info ",
    .two = " genv env ",
};

// Long options of srun whose argument can be a word of its own begin otherwise: these have none, or
// one behind an equals sign alone.
static const char srun_none[] =
    " async bcast compress consolidate-segments contiguous debugger-test disable-status exact "
    "exclusive external-launcher help hold immediate interactive kill-on-bad-exit label multi-prog "
    "nice no-allocate no-kill oom-kill-step overcommit overlap oversubscribe parsable preserve-env "
    "propagate pty quiet quit-on-interrupt reboot resv-ports send-libs spread-job spread-segments "
    "stepmgr test-only unbuffered usage use-min-nodes verbose version wait-all-nodes "
    "wait-for-children whole x11 ";
static const char srun_letters[] = "ABcCdDeFGiJLmMnNopqrStTwWxb"; // with an argument
static const char srun_open_letters[] = "IKk"; // whose argument has no blank before

static const char env_list[] = "mca_base_env_list";

static bool holds(const char *names, const char *name)
{
    char wanted[64];
    int length = snprintf(wanted, sizeof(wanted), " %s ", name);
    return length < (int)sizeof(wanted) && strstr(names, wanted) != NULL;
}

static const char *undash(const char *word)
{
    return word + strspn(word, "-");
}

// Words that an option takes, itself included; 0 when it is not known.
static int words_of(const struct dialect *dialect, const char *word)
{
    const char *name = undash(word);
    if (strchr(name, '=') != NULL || holds(dialect->none, name))
        return 1;
    return holds(dialect->one, name) ? 2 : holds(dialect->two, name) ? 3 : 0;
}

static int words_of_srun(const char *word)
{
    if (word[1] != '-') {
        const char *letter = word + 1;
        while (letter[1] != '\0' && !strchr(srun_letters, *letter) &&
               !strchr(srun_open_letters, *letter))
            letter++;
        return strchr(srun_letters, *letter) != NULL && letter[1] == '\0' ? 2 : 1;
    }
    return strchr(word, '=') != NULL || holds(srun_none, word + 2) ? 1 : 2;
}

int fr_launch_find_program(enum fr_launch_family family, int count, char *const *words)
{
    int at = 1;
    while (at < count && words[at][0] == '-' && words[at][1] != '\0') {
        int taken = family == FR_LAUNCH_SLURM     ? words_of_srun(words[at])
                    : family == FR_LAUNCH_OPENMPI ? words_of(&openmpi, words[at])
                    : family == FR_LAUNCH_MPICH   ? words_of(&hydra, words[at])
                                                  : 0;
        if (taken == 0)
            return -1;
        at += taken;
    }
    return at < count ? at : count;
}

// Words of the user's own list of variables, by the parameter that names it; 0 for other words.
static int words_of_list(int left, char *const *words)
{
    return words[0][0] == '-' && left > 2 && strcmp(words[1], env_list) == 0 ? 3 : 0;
}

// Returns the list of variables that Open MPI's parameter has already, NULL for none. Open MPI 4
// takes no -x beside such a list.
static const char *asked_list(int end, char *const *words)
{
    const char *list = getenv("OMPI_MCA_mca_base_env_list");
    for (int i = 1; i < end; i++) {
        if (words_of_list(end - i, words + i) > 0)
            list = words[i + 2];
    }
    return list;
}

// Returns whether the programs stand in a file, for which Open MPI 4 takes no -x of the command
// line, and PRRTE nothing else.
static bool has_file(int end, char *const *words)
{
    for (int i = 1; i < end; i++) {
        if (words[i][0] == '-' && strcmp(undash(words[i]), "app") == 0)
            return true;
    }
    return false;
}

// Returns whether the launcher's own options set LD_PRELOAD for the ranks, which would undo ours.
static bool sets_preload(enum fr_launch_family family, int count, char *const *words)
{
    static const char name[] = "LD_PRELOAD";
    int program = fr_launch_find_program(family, count, words);
    int end = program < 0 ? count : program;
    for (int i = 1; i + 1 < end; i++) {
        const char *option = undash(words[i]);
        bool sets = family == FR_LAUNCH_OPENMPI
                        ? strcmp(option, "x") == 0
                        : strcmp(option, "genv") == 0 || strcmp(option, "env") == 0;
        if (words[i][0] == '-' && sets && strncmp(words[i + 1], name, strlen(name)) == 0)
            return true;
    }
    const char *list = family == FR_LAUNCH_OPENMPI ? asked_list(end, words) : NULL;
    return list != NULL && strstr(list, name) != NULL;
}

static void add_rest(int count, char *const *words, struct fr_words *command)
{
    for (int i = 1; i < count; i++)
        fr_words_add(command, "%s", words[i]);
}

static void add_exports(char *const *assignments, struct fr_words *command)
{
    for (; *assignments != NULL; assignments++) {
        fr_words_add(command, "-x");
        fr_words_add(command, "%s", *assignments);
    }
}

static bool add_list(char *const *assignments, const char *list, struct fr_words *command)
{
    char text[4 * FR_FILE_NAME_BYTES];
    size_t used = (size_t)snprintf(text, sizeof(text), "%s", list != NULL ? list : "");
    for (; *assignments != NULL && used < sizeof(text); assignments++) {
        if (strchr(*assignments, ';') != NULL)
            return fr_tool_complain("beside -app and %s no value can have a semicolon: %s",
                                    env_list, *assignments);
        used += (size_t)snprintf(text + used, sizeof(text) - used, used > 0 ? ";%s" : "%s",
                                 *assignments);
    }
    fr_words_add(command, "--mca");
    fr_words_add(command, "%s", env_list);
    fr_words_add(command, "%s", text);
    return used < sizeof(text) || fr_tool_complain("the list of %s is too long", env_list);
}

// The programs of a job are separated by colons, and -x is for one of them.
static bool compose_openmpi(int count, char *const *words, char *const *assignments,
                            struct fr_words *command)
{
    int program = fr_launch_find_program(FR_LAUNCH_OPENMPI, count, words);
    int end = program < 0 ? count : program;
    const char *list = asked_list(end, words);
    if ((list != NULL || has_file(end, words)) && !add_list(assignments, list, command))
        return false;
    if (list == NULL)
        add_exports(assignments, command);
    for (int i = 1; i < count; i++) {
        if (i < end)
            i += words_of_list(end - i, words + i);
        if (i < count)
            fr_words_add(command, "%s", words[i]);
        if (list == NULL && i < count && strcmp(words[i], ":") == 0)
            add_exports(assignments, command);
    }
    return true;
}

static void compose_mpich(int count, char *const *words, char *const *assignments,
                          struct fr_words *command)
{
    for (; *assignments != NULL; assignments++) {
        fr_words_add(command, "-genv");
        fr_words_add(command, "%.*s", (int)strcspn(*assignments, "="), *assignments);
        fr_words_add(command, "%s", strchr(*assignments, '=') + 1);
    }
    add_rest(count, words, command);
}

static bool set_own(const char *assignment)
{
    char *copy = strdup(assignment); // the environment keeps it
    return (copy != NULL && putenv(copy) == 0) || fr_tool_complain("no memory");
}

// The value of --export that the user gives, in an option or the environment; everything else.
static const char *asked_export(int end, char *const *words, int *first, int *taken)
{
    for (int i = 1; i < end; i += words_of_srun(words[i])) {
        *first = i;
        if (strncmp(words[i], "--export=", 9) == 0) {
            *taken = 1;
            return words[i] + 9;
        }
        if (strcmp(words[i], "--export") == 0 && i + 1 < end) {
            *taken = 2;
            return words[i + 1];
        }
    }
    *first = end;
    *taken = 0;
    const char *value = getenv("SLURM_EXPORT_ENV");
    return value != NULL ? value : "ALL";
}

static bool lists_all(const char *list)
{
    for (; list != NULL && *list != '\0'; list += strcspn(list, ","), list += *list == ',') {
        if (strcspn(list, ",") == 3 && strncmp(list, "ALL", 3) == 0)
            return true;
    }
    return false;
}

// srun takes values without commas alone, and those in its environment go before those in --export
// when that has ALL. So everything goes through srun's environment but the preload, which is not
// for srun itself.
static bool compose_slurm(int count, char *const *words, char *const *assignments,
                          struct fr_words *command)
{
    int end = fr_launch_find_program(FR_LAUNCH_SLURM, count, words), first, taken;
    const char *asked = asked_export(end, words, &first, &taken);
    bool is_none = strcmp(asked, "NONE") == 0 || strcmp(asked, "NIL") == 0;
    struct fr_words names = {.list = NULL};
    if (strstr(asked, "LD_PRELOAD") != NULL)
        return fr_tool_complain("--export=%s sets LD_PRELOAD itself; name further libraries by "
                                "fabrail run --preload",
                                asked);
    unsetenv("LD_PRELOAD");
    bool good = true;
    for (char *const *a = assignments; *a != NULL && good; a++) {
        bool is_plain = a == assignments && strchr(*a, ',') == NULL;
        good = is_plain || set_own(*a);
        fr_words_add(&names, ",%.*s", (int)(is_plain ? strlen(*a) : strcspn(*a, "=")), *a);
    }
    size_t shown = lists_all(asked) ? 1 : names.count; // ALL has what is in the environment
    char list[8192] = "";
    size_t used = (size_t)snprintf(list, sizeof(list), "%s", is_none ? "" : asked);
    for (size_t i = 0; i < shown && i < names.count && used < sizeof(list); i++)
        used += (size_t)snprintf(list + used, sizeof(list) - used, "%s", names.list[i]);
    fr_words_add(command, "--export=%s", list + (list[0] == ','));
    for (int i = 1; i < count; i++) {
        if (i < first || i >= first + taken)
            fr_words_add(command, "%s", words[i]);
    }
    good = good && !names.failed && used < sizeof(list);
    fr_words_free(&names);
    return good || fr_tool_complain("the list of --export is too long");
}

bool fr_launch_compose(enum fr_launch_family family, int count, char *const *words,
                       char *const *assignments, struct fr_words *command)
{
    bool good = true;
    if (family != FR_LAUNCH_SLURM && family != FR_LAUNCH_ENV && sets_preload(family, count, words))
        return fr_tool_complain(
            "%s sets LD_PRELOAD for the ranks itself; name further libraries by "
            "fabrail run --preload",
            words[0]);
    fr_words_add(command, "%s", words[0]);
    switch (family) {
    case FR_LAUNCH_OPENMPI:
        good = compose_openmpi(count, words, assignments, command);
        break;
    case FR_LAUNCH_MPICH:
        compose_mpich(count, words, assignments, command);
        break;
    case FR_LAUNCH_SLURM:
        good = compose_slurm(count, words, assignments, command);
        break;
    default:
        for (; *assignments != NULL && good; assignments++)
            good = set_own(*assignments);
        add_rest(count, words, command);
    }
    return good && (!command->failed || fr_tool_complain("no memory"));
}
