// SPDX-License-Identifier: BSD-3-Clause
// The registry of PMIx, by which Open MPI is started. The MPI library begins and ends PMIx. Fabrail
// only adds a value to those that the MPI library commits in MPI_Init, before the fence that makes
// them known to all. So Fabrail exports PMIx_Commit: the MPI library's call of it comes here, and
// goes on to the real one.
#include "config.h"

#include "job/census.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Declarations from pmix_common.h, the same in all releases from 2 to 6. Structures that are longer
// there are only read by PMIx itself.
enum { PMIX_SUCCESS = 0, PMIX_ERR_NOT_SUPPORTED = -47 };
enum { PMIX_BOOL = 1, PMIX_STRING = 3 };
enum { PMIX_GLOBAL = 3 };
struct value {
    uint16_t type;
    union {
        bool flag;
        char *string;
        uint64_t room[5];
    } data;
};
struct process {
    char nspace[256];
    uint32_t rank;
};
struct info {
    char key[512];
    uint32_t flags;
    struct value value;
};
typedef int commit_fn(void);
typedef int put_fn(uint8_t scope, const char *key, struct value *value);
typedef int get_fn(const struct process *process, const char *key, const struct info *infos,
                   size_t count, struct value **value);

static const char record_key[] = "fabrail.record";

// Prefixes of PMIx's names. Releases of Open MPI before 5 that bring a PMIx of their own have one.
static const char *const prefixes[] = {"", "OPAL_MCA_PMIX3X_"};
enum { PREFIXES = FR_ARRAY_LENGTH(prefixes) };

// Written by the thread that is in MPI_Init.
static const char *record;
static enum fr_job_record state;
static get_fn *get_value;

static void *find(const char *prefix, const char *name)
{
    char symbol[64];
    snprintf(symbol, sizeof(symbol), "%s%s", prefix, name);
    return fr_abi_find_loaded(symbol);
}

static void put_record(const char *prefix)
{
    put_fn *put = (put_fn *)find(prefix, "PMIx_Put");
    get_value = (get_fn *)find(prefix, "PMIx_Get");
    char *text = strdup(record);
    struct value value = {.type = PMIX_STRING, .data = {.string = text}};
    bool done = put && get_value && text && put(PMIX_GLOBAL, record_key, &value) == PMIX_SUCCESS;
    state = done ? FR_JOB_RECORD_LEFT : FR_JOB_RECORD_FAILED;
    free(text);
}

static int commit(unsigned which)
{
    static _Atomic(commit_fn *) real[PREFIXES];
    commit_fn *next = atomic_load_explicit(&real[which], memory_order_acquire);
    if (!next) {
        next = (commit_fn *)find(prefixes[which], "PMIx_Commit");
        atomic_store_explicit(&real[which], next, memory_order_release);
    }
    if (record && state == FR_JOB_RECORD_NONE)
        put_record(prefixes[which]);
    return next ? next() : PMIX_ERR_NOT_SUPPORTED;
}

__attribute__((visibility("default"))) int PMIx_Commit(void);
int PMIx_Commit(void)
{
    return commit(0);
}

__attribute__((visibility("default"))) int OPAL_MCA_PMIX3X_PMIx_Commit(void);
int OPAL_MCA_PMIX3X_PMIx_Commit(void)
{
    return commit(1);
}

static void put(const char *text)
{
    record = text;
}

static enum fr_job_record has_put(void)
{
    record = NULL;
    return state;
}

// Reads a value that the PMIx server of this host has. Mostly it has all values that there are.
static bool get_text(int rank, const char *key, char *text, size_t room)
{
    static const struct info here = {.key = "pmix.immediate",
                                     .value = {.type = PMIX_BOOL, .data = {.flag = true}}};
    struct process process = {.rank = (uint32_t)rank};
    struct value *value = NULL;
    const char *nspace = fr_core_job_value("PMIX_NAMESPACE");
    snprintf(process.nspace, sizeof(process.nspace), "%s", nspace ? nspace : "");
    if (get_value(&process, key, &here, 1, &value) != PMIX_SUCCESS || !value)
        return false;
    bool is_text = value->type == PMIX_STRING && value->data.string;
    if (is_text) {
        snprintf(text, room, "%s", value->data.string);
        free(value->data.string);
        free(value);
    }
    return is_text;
}

static bool get(int rank, char text[FR_JOB_RECORD_BYTES])
{
    return get_text(rank, record_key, text, FR_JOB_RECORD_BYTES);
}

static bool get_host(int rank, char host[FR_JOB_HOST_BYTES])
{
    return get_text(rank, "pmix.hname", host, FR_JOB_HOST_BYTES);
}

// Returns whether every host has all values after the fence. Open MPI can be told to fetch what
// others commit when it needs it instead. Returns true where PMIx cannot be asked.
static bool is_collected(void)
{
    typedef int init_fn(int required, int *provided);
    typedef int index_fn(const char *name, int *index);
    typedef int open_fn(int index, void *object, void **handle, int *count);
    typedef int read_fn(void *handle, int *value);
    typedef int end_fn(void);
    init_fn *init = (init_fn *)fr_abi_find_loaded("MPI_T_init_thread");
    index_fn *find_index = (index_fn *)fr_abi_find_loaded("MPI_T_cvar_get_index");
    open_fn *open = (open_fn *)fr_abi_find_loaded("MPI_T_cvar_handle_alloc");
    read_fn *read = (read_fn *)fr_abi_find_loaded("MPI_T_cvar_read");
    end_fn *end = (end_fn *)fr_abi_find_loaded("MPI_T_finalize");
    int provided, index, count, values[16] = {true};
    void *handle;
    if (!init || !find_index || !open || !read || !end || init(0, &provided) != 0)
        return true;
    if (find_index("pmix_base_collect_data", &index) == 0 &&
        open(index, NULL, &handle, &count) == 0 && count == 1)
        (void)read(handle, values);
    end();
    return values[0];
}

static bool may_be_elsewhere(int rank)
{
    char host[FR_JOB_HOST_BYTES], own_host[FR_JOB_HOST_BYTES];
    if (get_host(rank, host) && get_host(fr_job_rank(), own_host) && strcmp(host, own_host) == 0)
        return false;
    return !is_collected();
}

const struct fr_job_registry fr_job_pmix = {.name = "PMIx",
                                            .put = put,
                                            .has_put = has_put,
                                            .get = get,
                                            .get_host = get_host,
                                            .may_be_elsewhere = may_be_elsewhere};
