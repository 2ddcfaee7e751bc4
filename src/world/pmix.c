// SPDX-License-Identifier: BSD-3-Clause
// Records by PMIx, which Open MPI is started by. The MPI library begins and ends it; Fabrail only
// adds a value to those that the library commits in MPI_Init, before the fence that makes them
// known to all. So the library exports PMIx_Commit: the MPI library's call of it comes here, and
// goes on to the real one.
#include "config.h"

#include "world/census.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Of pmix_common.h, the same in all releases from 2 to 6; what is longer there is only read by
// PMIx itself.
enum { PMIX_SUCCESS = 0, PMIX_ERR_NOT_SUPPORTED = -47 };
enum { PMIX_BOOL = 1, PMIX_STRING = 3, PMIX_INT = 6 };
enum { PMIX_GLOBAL = 3 };
struct value {
    uint16_t type;
    union {
        bool flag;
        int integer;
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

// Releases of Open MPI before 5 that bring a PMIx of their own have its names behind a prefix.
static const char *const prefixes[] = {"", "OPAL_MCA_PMIX3X_"};
enum { PREFIXES = FR_ARRAY_LENGTH(prefixes) };

// Written by the thread that is in MPI_Init.
static const char *record;
static enum fr_world_record state;
static get_fn *get_value;

static void *find(const char *prefix, const char *name)
{
    char symbol[64];
    snprintf(symbol, sizeof(symbol), "%s%s", prefix, name);
    return fr_real_find_loaded(symbol);
}

static void put_record(const char *prefix)
{
    put_fn *put = (put_fn *)find(prefix, "PMIx_Put");
    get_value = (get_fn *)find(prefix, "PMIx_Get");
    char *text = strdup(record);
    struct value value = {.type = PMIX_STRING, .data = {.string = text}};
    bool done = put && get_value && text && put(PMIX_GLOBAL, record_key, &value) == PMIX_SUCCESS;
    state = done ? FR_WORLD_RECORD_LEFT : FR_WORLD_RECORD_FAILED;
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
    if (record && state == FR_WORLD_RECORD_NONE)
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

static enum fr_world_record has_put(void)
{
    record = NULL;
    return state;
}

static bool get_text(int rank, const char *key, const struct info *how, char *text, size_t room)
{
    struct process process = {.rank = (uint32_t)rank};
    struct value *value = NULL;
    const char *nspace = fr_core_job_value("PMIX_NAMESPACE");
    snprintf(process.nspace, sizeof(process.nspace), "%s", nspace ? nspace : "");
    if (get_value(&process, key, how, 1, &value) != PMIX_SUCCESS || !value)
        return false;
    bool is_text = value->type == PMIX_STRING && value->data.string;
    if (is_text) {
        snprintf(text, room, "%s", value->data.string);
        free(value->data.string);
        free(value);
    }
    return is_text;
}

// The server of this host has all that there is, unless the MPI library was told not to have it
// collected: then the other's is asked, which answers at once for a process that has committed.
static bool get_anywhere(int rank, const char *key, char *text, size_t room)
{
    static const struct info here = {.key = "pmix.immediate",
                                     .value = {.type = PMIX_BOOL, .data = {.flag = true}}};
    static const struct info there = {.key = "pmix.timeout",
                                      .value = {.type = PMIX_INT, .data = {.integer = 1}}};
    return get_text(rank, key, &here, text, room) || get_text(rank, key, &there, text, room);
}

static bool get(int rank, char text[FR_WORLD_RECORD_BYTES])
{
    return get_anywhere(rank, record_key, text, FR_WORLD_RECORD_BYTES);
}

static bool get_host(int rank, char host[FR_WORLD_HOST_BYTES])
{
    return get_anywhere(rank, "pmix.hname", host, FR_WORLD_HOST_BYTES);
}

const struct fr_world_registry fr_world_pmix = {
    .name = "PMIx", .put = put, .has_put = has_put, .get = get, .get_host = get_host};
