// SPDX-License-Identifier: BSD-3-Clause
// Microseconds from the start of a program to its end, the median of many: what a preloaded library
// adds to a process that has no use for it.
//
//   start PRELOAD PROGRAM [ARGUMENT...]     PRELOAD may be empty
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>

enum { RUNS = 201 };

extern char **environ;

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double now_us(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

int main(int argc, char **argv)
{
    double us[RUNS];
    if (argc < 3)
        return 2;
    if (argv[1][0] != '\0')
        setenv("LD_PRELOAD", argv[1], 1);
    for (int i = 0; i < RUNS; i++) {
        pid_t child;
        int status;
        double start = now_us();
        if (posix_spawnp(&child, argv[2], NULL, NULL, argv + 2, environ) != 0 ||
            waitpid(child, &status, 0) < 0 || status != 0) {
            fprintf(stderr, "cannot run %s\n", argv[2]);
            return 1;
        }
        us[i] = now_us() - start;
    }
    qsort(us, RUNS, sizeof *us, compare);
    printf("%.1f\n", us[RUNS / 2]);
    return 0;
}
