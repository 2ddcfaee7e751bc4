// SPDX-License-Identifier: BSD-3-Clause
// Records by the key-value space of Hydra, MPICH's launcher. The MPI library asks on the process's
// socket in MPI_Init; before and after, nobody does.
#include "config.h"

#include "world/census.h"
#include "world/pmi.h"

#include <string.h>

// Written by the thread that is in MPI_Init.
static enum fr_world_record state;

// Intel's launcher is a relative of Hydra by the same names.
static bool is_relative(void)
{
    char version[8192] = ""; // MPI_MAX_LIBRARY_VERSION_STRING of the family
    int length = 0;
    if (fr_real_has(FR_FN_MPI_Get_library_version))
        FR_MPI(Get_library_version, FR_PTR(version), FR_PTR(&length));
    return strstr(version, "Intel(R) MPI") || fr_core_job_value("I_MPI_HYDRA_PMI_CONNECT");
}

// The first greeting that a proxy gets makes it forget what was put before.
static void put(const char *record)
{
    static const char greeting[] = "cmd=init pmi_version=1 pmi_subversion=1\n";
    char line[FR_WORLD_PMI_BYTES];
    if (strcmp(fr_real_mpi.family, "Open MPI") == 0 || is_relative())
        return;
    int proxy = fr_world_pmi_find("hydra_pmi_proxy");
    if (proxy < 0)
        return;
    bool done = fr_world_pmi_write(proxy, greeting, sizeof(greeting) - 1) &&
                fr_world_pmi_read_line(proxy, line) && fr_world_pmi_put(proxy, line, record);
    state = done ? FR_WORLD_RECORD_LEFT : FR_WORLD_RECORD_FAILED;
}

static enum fr_world_record has_put(void)
{
    return state;
}

static bool may_be_elsewhere(int rank)
{
    (void)rank;
    return false;
}

const struct fr_world_registry fr_world_hydra = {.name = "Hydra",
                                                 .put = put,
                                                 .has_put = has_put,
                                                 .get = fr_world_pmi_get,
                                                 .get_host = fr_world_pmi_get_host,
                                                 .may_be_elsewhere = may_be_elsewhere};
