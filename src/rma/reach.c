// SPDX-License-Identifier: BSD-3-Clause
// How a rank reaches the memory that others give to a window: mapped for its device, in another
// process of the host, or by messages.
#include "config.h"

#include "rma/advert.h"

// Finds whether and how this process reaches host memory that a rank gives.
static bool reach_host(struct fr_rma_part *part, const struct fr_job_process *owner, bool own)
{
    part->range = (struct fr_device_range)FR_DEVICE_HOST;
    part->address = (uintptr_t)part->base;
    part->pid = own ? 0 : owner->pid;
    return own ||
           (owner->pid_namespace == fr_job_control_self()->pid_namespace && fr_rma_reaches(part));
}

// Finds what the device may do with a rank's memory. Memory that is mapped for another device or
// context is for copies alone, which run where it is mapped.
void fr_rma_describe(struct fr_rma_part *part)
{
    const struct fr_ipc_mapping *mapping = &part->mapping;
    part->address = fr_ipc_mapping_at(mapping, &part->handle, part->base);
    fr_device_classify((const void *)part->address, (size_t)part->bytes, &part->range);
    if (mapping->user.context)
        part->range.context = mapping->user.context;
    part->range.device = mapping->user.device;
}

// Maps the memory of a rank. Returns whether only its descriptor is missing.
static bool map(struct fr_rma_part *part, const struct fr_device_range *user)
{
    enum fr_status status = fr_ipc_pin_beyond(&part->handle, user, &part->mapping);
    part->is_mapped = status == FR_OK;
    if (status == FR_OK)
        fr_rma_describe(part);
    return status == FR_ERR_NOT_FOUND && fr_device_present();
}

// Finds how this process reaches the memory of a rank. Returns whether only a descriptor is missing
// for it to be mapped.
static bool reach(struct fr_rma_window *window, int rank, const struct fr_rma_advert *adverts,
                  const struct fr_device_range *own, const struct fr_device_range *user)
{
    const struct fr_rma_advert *advert = &adverts[rank];
    const struct fr_rma_advert *giver = advert->is_shared ? adverts : advert;
    struct fr_rma_part *part = &window->parts[rank];
    bool is_own = rank == window->rank;
    part->base = giver->base + advert->before;
    part->bytes = advert->bytes;
    part->unit = advert->unit;
    part->handle = giver->handle;
    if (part->is_mapped || window->words.is_dynamic)
        return false;
    if (part->bytes == 0)
        part->is_mapped = true;
    else if (part->handle.bytes != 0)
        return map(part, user);
    else if (is_own && advert->on_device) {
        part->address = (uintptr_t)part->base;
        part->range = *own;
        part->mapping.direct = part->is_mapped = true;
    } else if (!advert->on_device && !part->is_remote)
        part->is_mapped = reach_host(part, fr_job_process_of(window->world[rank]), is_own);
    return false;
}

bool fr_rma_reach_all(struct fr_rma_window *window, const struct fr_rma_advert *adverts,
                      const struct fr_device_range *own)
{
    int device = fr_device_current(); // of a rank that gives no device memory
    const struct fr_device_range current = {
        .caps = FR_DEVICE_OWNED, .device = device, .home = device};
    const struct fr_device_range *user = fr_device_owns(own) ? own : &current;
    bool all = true;
    for (int rank = 0; rank < window->size; rank++) {
        if (reach(window, rank, adverts, own, user))
            all = false;
    }
    if (adverts[window->rank].is_shared && fr_rma_own_part(window)->is_mapped)
        fr_rma_own_part(window)->base = fr_rma_own_part(window)->address;
    return all;
}

bool fr_rma_reaches_all(const struct fr_rma_window *window)
{
    bool all = !window->spans_hosts;
    if (window->words.is_dynamic)
        return window->size == 1;
    for (int rank = 0; rank < window->size; rank++)
        all = all && window->parts[rank].is_mapped;
    return all;
}
