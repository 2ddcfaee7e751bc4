// SPDX-License-Identifier: BSD-3-Clause
// NVTX ranges, which Nsight Systems shows: one around each operation, in the domain "Fabrail".
// NVTX's header finds the attached tool by itself. Without a tool nothing is called.
#include "config.h"

#include "report/report_int.h"

#ifdef HAVE_NVTX

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wundef"
#include <nvtx3/nvToolsExt.h>
#pragma GCC diagnostic pop

static nvtxDomainHandle_t domain;

bool fr_report_nvtx_start(void)
{
    domain = nvtxDomainCreateA("Fabrail"); // NULL where no tool is attached
    return domain != NULL;
}

void fr_report_nvtx_push(const char *name)
{
    nvtxEventAttributes_t attributes = {.version = NVTX_VERSION,
                                        .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
                                        .messageType = NVTX_MESSAGE_TYPE_ASCII};
    attributes.message.ascii = name;
    nvtxDomainRangePushEx(domain, &attributes);
}

void fr_report_nvtx_pop(void)
{
    nvtxDomainRangePop(domain);
}

#else

bool fr_report_nvtx_start(void)
{
    return false;
}

void fr_report_nvtx_push(const char *name)
{
    (void)name;
}

void fr_report_nvtx_pop(void)
{
}

#endif
