// SPDX-License-Identifier: BSD-3-Clause
// The command: its table of subcommands, one row each, and what is done before one of them runs.
#include "config.h"

#include "command.h"
#include "info.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct fr_tool_command commands[] = {
    {.name = "run",
     .run = fabrail_run,
     .options = fabrail_run_options,
     .operands = "[--] LAUNCHER [ARGUMENT...]",
     .summary = "start an MPI job with Fabrail preloaded into its ranks",
     .about =
         "Runs a launcher (mpirun, mpiexec or srun, of Open MPI, the MPICH family or Slurm) so\n"
         "that the ranks of its job have libfabrail.so preloaded and the settings in their\n"
         "environment. Settings of this command's own environment reach all ranks, too.\n"
         "Signals and the exit status are the launcher's.",
     .stops = true},
    {.name = "info",
     .run = fabrail_info,
     .options = fabrail_info_options,
     .operands = "",
     .summary = "show what this machine offers and which paths will be used",
     .about = "Shows the GPUs, what joins them and which handles of their memory can be made; the\n"
              "MPIs on the path and whether they take GPU pointers; NICs; and for each MPI which\n"
              "paths will be used, and why not the others."},
    {.name = "explain",
     .run = fabrail_explain,
     .options = fabrail_explain_options,
     .operands = "[FILE...]",
     .summary = "say which path a call takes, or why those of a job went as they did",
     .about =
         "Says for an MPI function, sizes and kinds of memory which path they take, by what, and\n"
         "why, by the policy that the library itself goes by, under the first MPI on the path or\n"
         "as if under another. With --report it explains a job by the JSON reports of its ranks."},
    {.name = "report",
     .run = fabrail_report,
     .options = fabrail_report_options,
     .operands = "FILE...",
     .summary = "make one page of a job's reports, to be read in a browser",
     .about =
         "Makes one HTML page, which needs nothing beside it, of the reports that FABRAIL_REPORT\n"
         "had a job write: the file of the job, or those of its ranks. With --trace it merges\n"
         "the files of FABRAIL_TRACE into one for Perfetto."},
    {.name = "tune",
     .run = fabrail_tune,
     .options = fabrail_tune_options,
     .operands = "[LAUNCHER [ARGUMENT...]]",
     .summary = "measure which way of moving messages between GPUs is fastest",
     .about =
         "Measures between the GPUs of this host from which message size on copy engines are\n"
         "faster than kernels, and collectives that all GPUs share the work of, and keeps it\n"
         "in the tuning file, which libfabrail.so reads. With --rails it measures, between two\n"
         "hosts on which LAUNCHER starts a rank each, from which size on rails are faster:\n"
         "fabrail tune --rails -- mpirun -n 2 --host a,b",
     .stops = true},
    {.name = "bench",
     .run = fabrail_bench,
     .options = fabrail_bench_options,
     .operands = "",
     .summary = "measure what Fabrail costs and what it gains on this machine",
     .about =
         "Runs the benchmarks that were installed with the library, under each MPI on the path,\n"
         "and prints their tables, or CSV or JSON, and draws plots; or shows, by --from, what a\n"
         "former run has written as JSON, on any machine."},
    {.name = NULL},
};

static const struct fr_tool_command *find(const char *name)
{
    for (const struct fr_tool_command *c = commands; c->name != NULL; c++) {
        if (strcmp(c->name, name) == 0)
            return c;
    }
    return NULL;
}

static void print_commands(void)
{
    puts("Usage: fabrail COMMAND [OPTION...]\n"
         "Lets MPI programs pass GPU pointers to any MPI.\n");
    for (const struct fr_tool_command *c = commands; c->name != NULL; c++)
        printf("  %-10s %s\n", c->name, c->summary);
    puts(
        "\nfabrail COMMAND --help names the options of one; the manual page, fabrail(1), says "
        "more.\n"
        "fabrail --completion prints what bash sources to complete them all, --completion=zsh and\n"
        "--completion=fish what those do.");
}

// Returns the exit status of what has been printed.
static int flush(int status)
{
    if ((fflush(stdout) == 0 && !ferror(stdout)) || status != EXIT_SUCCESS)
        return status;
    (void)fr_tool_complain("standard output cannot be written to");
    return EXIT_FAILURE;
}

static int run(const struct fr_tool_command *command, int argc, char **argv, char *name)
{
    argv[0] = name;
    fr_tool_begin(command, name);
    return flush(command->run(argc, argv));
}

// Prints the help of a command, as COMMAND --help does.
static int help_on(const char *name)
{
    const struct fr_tool_command *command = find(name);
    char full[64];
    if (command == NULL)
        return fr_tool_misuse("\"%s\" is no command", name);
    snprintf(full, sizeof(full), "fabrail %s", command->name);
    fr_tool_begin(command, full);
    fr_tool_print_help(command);
    return EXIT_SUCCESS;
}

// Subcommands of the command's own. The probes are for its own use.
static int run_none(const char *argument, int argc, char **argv)
{
    if (strcmp(argument, "--probe-mpi") == 0)
        return fr_info_probe_mpi(argc, argv);
    if (strcmp(argument, "--probe-fabric") == 0)
        return fr_info_probe_fabric(argc, argv);
    int status = EXIT_SUCCESS;
    if (strcmp(argument, "help") == 0 && argc > 0)
        status = help_on(argv[0]);
    else if (strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0 ||
             strcmp(argument, "help") == 0)
        print_commands();
    else if (strcmp(argument, "--version") == 0 || strcmp(argument, "-V") == 0)
        fr_tool_print_version();
    else if (strcmp(argument, "--manual") == 0) // for the build
        fr_tool_write_manual(stdout, commands);
    else if (strcmp(argument, "--complete") == 0) // for the scripts of shells
        fr_tool_complete(commands, argc, argv);
    else if (strcmp(argument, "--completion") == 0)
        (void)fr_tool_write_completion(stdout, "bash");
    else if (strncmp(argument, "--completion=", 13) != 0 ||
             !fr_tool_write_completion(stdout, argument + 13))
        return fr_tool_misuse("\"%s\" is no command", argument);
    return flush(status);
}

// Opens standard streams that are closed, lest a file of the driver's or of another library take
// their place and get what is printed. They fail as closed ones do, and are closed in what is run.
static void hold_streams(void)
{
    for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; stream++) {
        int way = stream == STDIN_FILENO ? O_WRONLY : O_RDONLY;
        if (fcntl(stream, F_GETFD) < 0 && open("/dev/null", way | O_CLOEXEC) < 0)
            return;
    }
}

int main(int argc, char **argv)
{
    char name[64];
    hold_streams();
    if (argc < 2)
        return fr_tool_misuse("which command?");
    const struct fr_tool_command *command = find(argv[1]);
    if (command == NULL)
        return run_none(argv[1], argc - 2, argv + 2);
    snprintf(name, sizeof(name), "fabrail %s", command->name);
    return run(command, argc - 1, argv + 1, name);
}
