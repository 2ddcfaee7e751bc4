// SPDX-License-Identifier: BSD-3-Clause
// Counts the buffers of calls in the report.
#include "config.h"

#include "fabrail/report.h"
#include "intercept/intercept_int.h"

static struct fr_report_buffer describe(const struct fr_request_op *op,
                                        const struct fr_staging_view *view,
                                        struct fr_policy_choice choice, const char *scheme)
{
    return (struct fr_report_buffer){
        .fn = op->counted_as,
        .path = choice.path,
        .scheme = scheme,
        .kind = view->range.kind,
        .in_bytes = view->in_bytes,
        .out_bytes = view->out_bytes,
        .reason = choice.reason,
        .label = op->comm_label,
        .call = op->fn,
        .args = op->args,
        .arg = view->arg,
    };
}

struct fr_report_buffer fr_intercept_report_of(const struct fr_request_op *op,
                                               const struct fr_staging_view *view)
{
    return describe(op, view, (struct fr_policy_choice){.reason = NULL}, NULL);
}

void fr_intercept_count_view(const struct fr_request_op *op, const struct fr_staging_view *view,
                             struct fr_policy_choice choice, const char *scheme)
{
    const struct fr_report_buffer buffer = describe(op, view, choice, scheme);
    fr_report_buffer(&buffer);
}

void fr_intercept_count_later(struct fr_request_op *op, const struct fr_staging_view *view,
                              struct fr_policy_choice choice, const char *scheme)
{
    struct fr_report_buffer buffer = describe(op, view, choice, scheme);
    op->receive.staged_because = choice.reason;
    buffer.out_bytes = 0;
    if ((int)view->arg == fr_abi_rows[op->fn].send.buffer)
        fr_report_buffer(&buffer);
}
