// SPDX-License-Identifier: BSD-3-Clause
// The part of the page that says who talked to whom: a map of all pairs, which report.js draws and
// lets the reader walk in, and the largest pairs as a table for everybody.
#include "config.h"

#include "report.h"

#include <inttypes.h>
#include <stdlib.h>

enum { LARGEST = 10 };

struct pair {
    int from, to;
    struct fr_tools_job_cell cell;
};

static int find_largest(const struct fr_job *job, struct pair pairs[LARGEST])
{
    int used = 0;
    for (int i = 0; i < job->side * job->side; i++) {
        const struct fr_tools_job_cell *cell = &job->matrix[i];
        if (!cell->bytes || (used == LARGEST && cell->bytes <= pairs[used - 1].cell.bytes))
            continue;
        int at = used < LARGEST ? used++ : used - 1;
        for (; at > 0 && pairs[at - 1].cell.bytes < cell->bytes; at--)
            pairs[at] = pairs[at - 1];
        pairs[at] = (struct pair){.from = i / job->side, .to = i % job->side, .cell = *cell};
    }
    return used;
}

static void write_ranks(FILE *out, const struct fr_job *job, int index)
{
    int first = index * job->group, last = first + job->group - 1;
    if (job->group == 1)
        fprintf(out, "%d", first);
    else
        fprintf(out, "%d to %d", first, last < job->size ? last : job->size - 1);
}

static void write_largest(FILE *out, const struct fr_job *job)
{
    struct pair pairs[LARGEST];
    int count = find_largest(job, pairs);
    fputs("<div class=\"pairs\"><h3>Largest pairs</h3><table><thead><tr><th scope=\"col\">From"
          "</th><th scope=\"col\">To</th><th scope=\"col\">Bytes</th><th scope=\"col\">Messages"
          "</th></tr></thead><tbody>\n",
          out);
    for (int i = 0; i < count; i++) {
        fputs("<tr><td>", out);
        write_ranks(out, job, pairs[i].from);
        fputs("</td><td>", out);
        write_ranks(out, job, pairs[i].to);
        fputs("</td><td>", out);
        fr_html_number(out, FR_UNIT_BYTES, pairs[i].cell.bytes, "pair.%d.%d.bytes", pairs[i].from,
                       pairs[i].to);
        fputs("</td><td>", out);
        fr_html_number(out, FR_UNIT_COUNT, pairs[i].cell.messages, NULL);
        fputs("</td></tr>\n", out);
    }
    fputs("</tbody></table></div>", out);
}

static void write_rows(FILE *out, const struct fr_job *job, bool bytes)
{
    for (int i = 0; i < job->side; i++) {
        fputs(i ? ",\n[" : "[", out);
        for (int j = 0; j < job->side; j++) {
            const struct fr_tools_job_cell *cell = &job->matrix[i * job->side + j];
            fprintf(out, "%s%" PRIu64, j ? "," : "", bytes ? cell->bytes : cell->messages);
        }
        fputs("]", out);
    }
}

void fr_page_matrix(FILE *out, const struct fr_job *job)
{
    uint64_t bytes = 0, most = 0, least = UINT64_MAX;
    for (int i = 0; job->matrix && i < job->side * job->side; i++) {
        bytes += job->matrix[i].bytes;
        most = job->matrix[i].bytes > most ? job->matrix[i].bytes : most;
        if (job->matrix[i].bytes && job->matrix[i].bytes < least)
            least = job->matrix[i].bytes;
    }
    if (!bytes)
        return;
    fputs("<section id=\"matrix\"><h2>Who talked to whom</h2>\n<p class=\"about\">Bytes that "
          "device buffers sent, ",
          out);
    fr_html_number(out, FR_UNIT_BYTES, bytes, "matrix.bytes");
    fputs(" in all: messages, and collectives that say to whom. Reductions, neighbourhood "
          "collectives and one-sided calls are not in it.",
          out);
    if (job->group > 1)
        fprintf(out, " Each cell stands for %d ranks each way.", job->group);
    fputs("</p>\n<div class=\"map\"><figure>\n<canvas id=\"heat\" tabindex=\"0\" role=\"img\" "
          "aria-label=\"Map of senders and receivers. Arrow keys move from pair to pair, and what "
          "a pair sent is read out.\" aria-describedby=\"cell\"></canvas>\n"
          "<figcaption><output id=\"cell\" aria-live=\"polite\">Point at a pair, tap it, or use "
          "the arrow keys.</output><span class=\"scale\" aria-hidden=\"true\"><span>",
          out);
    char text[32];
    fputs(fr_unit_text(FR_UNIT_BYTES, least, text), out);
    fputs("</span><i></i><span>", out);
    fputs(fr_unit_text(FR_UNIT_BYTES, most, text), out);
    fputs("</span></span></figcaption>\n</figure>\n<noscript><p>The map takes a script.</p>"
          "</noscript>\n",
          out);
    write_largest(out, job);
    fprintf(out,
            "</div>\n<script type=\"application/json\" id=\"pairs\">{\"size\":%d,\"side\":%d,"
            "\"group\":%d,\"bytes\":[",
            job->size, job->side, job->group);
    write_rows(out, job, true);
    fputs("],\"messages\":[", out);
    write_rows(out, job, false);
    fputs("]}</script></section>\n", out);
}
