// SPDX-License-Identifier: BSD-3-Clause
// A tool for NVTX, as Nsight Systems is one: NVTX finds it by NVTX_INJECTION64_PATH. It writes a
// line for each range that a thread pushes and pops in a named domain to FRNVTX_LOG, with the
// process's id behind that name.
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static FILE *trail;
static char domain_name[64];

static nvtxDomainHandle_t create_domain(const char *name)
{
    snprintf(domain_name, sizeof(domain_name), "%s", name);
    return (nvtxDomainHandle_t)domain_name;
}

static int push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *attributes)
{
    fprintf(trail, "push %s %s\n", (const char *)domain, attributes->message.ascii);
    return 0;
}

static int pop(nvtxDomainHandle_t domain)
{
    fprintf(trail, "pop %s\n", (const char *)domain);
    return 0;
}

static void set(NvtxFunctionTable table, unsigned size, unsigned id, NvtxFunctionPointer function)
{
    if (id < size)
        *table[id] = function;
}

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_export_table);
__attribute__((visibility("default"))) int
InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_export_table)
{
    const NvtxExportTableCallbacks *callbacks = get_export_table(NVTX_ETID_CALLBACKS);
    NvtxFunctionTable table = NULL;
    unsigned size = 0;
    char name[4096];
    const char *log = getenv("FRNVTX_LOG");
    if (!log || !callbacks ||
        !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size))
        return 0;
    snprintf(name, sizeof(name), "%s.%d", log, (int)getpid());
    trail = fopen(name, "w");
    if (!trail)
        return 0;
    set(table, size, NVTX_CBID_CORE2_DomainCreateA, (NvtxFunctionPointer)create_domain);
    set(table, size, NVTX_CBID_CORE2_DomainRangePushEx, (NvtxFunctionPointer)push);
    set(table, size, NVTX_CBID_CORE2_DomainRangePop, (NvtxFunctionPointer)pop);
    return 1;
}
