// SPDX-License-Identifier: BSD-3-Clause
// Host memory that another rank gives to a window. The CPU reads and writes it in that process, by
// system calls of Linux that the owner need not take part in.
#include "config.h"

#include "rma/rma_int.h"

#include <errno.h>
#include <sys/uio.h>

enum { AT_ONCE = 64 }; // rows of a call

// A copy between packed memory here and memory in the shape of a datatype there.
struct remote {
    const struct fr_rma_part *part;
    uintptr_t shaped;
    char *packed;
    bool writes;
    struct iovec here[AT_ONCE], there[AT_ONCE];
    unsigned long count;
    size_t bytes; // of these rows
};

// Copies the rows gathered so far. A system call may copy less, and stop within a row.
static enum fr_status copy_rows(struct remote *remote)
{
    while (remote->bytes > 0) {
        ssize_t (*call)(pid_t, const struct iovec *, unsigned long, const struct iovec *,
                        unsigned long, unsigned long) =
            remote->writes ? process_vm_writev : process_vm_readv;
        ssize_t done = call((pid_t)remote->part->pid, remote->here, remote->count, remote->there,
                            remote->count, 0);
        if (done <= 0) {
            fr_error("memory of process %d, a rank of a window, cannot be reached: %s",
                     remote->part->pid, strerror(errno));
            return FR_ERR_MPI;
        }
        remote->bytes -= (size_t)done;
        for (unsigned long i = 0; i < remote->count && done > 0; i++) {
            size_t step = remote->here[i].iov_len;
            step = (size_t)done < step ? (size_t)done : step;
            remote->here[i].iov_base = (char *)remote->here[i].iov_base + step;
            remote->there[i].iov_base = (char *)remote->there[i].iov_base + step;
            remote->here[i].iov_len -= step;
            remote->there[i].iov_len -= step;
            done -= (ssize_t)step;
        }
    }
    remote->count = 0;
    return FR_OK;
}

static enum fr_status add_rows(void *context, const struct fr_datatype_copy *piece)
{
    struct remote *remote = context;
    enum fr_status status = FR_OK;
    for (size_t i = 0; i < piece->n[0] * piece->n[1] && status == FR_OK; i++) {
        ptrdiff_t row = (ptrdiff_t)(i % piece->n[0]), plane = (ptrdiff_t)(i / piece->n[0]);
        ptrdiff_t there =
            piece->user_offset + row * piece->user_stride[0] + plane * piece->user_stride[1];
        ptrdiff_t here =
            piece->stage_offset + row * piece->stage_stride[0] + plane * piece->stage_stride[1];
        remote->there[remote->count] = (struct iovec){
            .iov_base = (void *)(remote->shaped + (uintptr_t)there), .iov_len = piece->bytes};
        remote->here[remote->count++] =
            (struct iovec){.iov_base = remote->packed + here, .iov_len = piece->bytes};
        remote->bytes += piece->bytes;
        if (remote->count == AT_ONCE)
            status = copy_rows(remote);
    }
    return status;
}

enum fr_status fr_rma_copy_target(const struct fr_rma_target *target,
                                  struct fr_staging_lease packed,
                                  enum fr_device_direction direction)
{
    const struct fr_staging_view *view = &target->view;
    if (target->part->pid == 0)
        return fr_rma_copy_packed(view, packed, direction);
    struct remote remote = {
        .part = target->part,
        .shaped = fr_rma_address_of(view),
        .packed = packed.address,
        .writes = direction == FR_FROM_STAGE,
    };
    const struct fr_staging_view_block *block = &view->blocks[0];
    enum fr_status status = fr_datatype_visit(block->layout, block->count, true,
                                              fr_rma_bytes_of(view), add_rows, &remote);
    return status == FR_OK ? copy_rows(&remote) : status;
}

bool fr_rma_reaches(const struct fr_rma_part *part)
{
    char ends[2];
    const struct iovec here = {.iov_base = ends, .iov_len = sizeof(ends)};
    const struct iovec there[2] = {
        {.iov_base = (void *)part->address, .iov_len = 1},
        {.iov_base = (void *)(part->address + (size_t)part->bytes - 1), .iov_len = 1},
    };
    return process_vm_readv((pid_t)part->pid, &here, 1, there, 2, 0) == 2;
}
