// SPDX-License-Identifier: BSD-3-Clause
// Parts of the page: paths, and sizes.
#include "config.h"

#include "report.h"

enum measure { BYTES, CALLS, TIME, MEASURES };

static uint64_t measure_of(const struct fr_tools_job_totals *totals, enum measure measure)
{
    return measure == BYTES   ? totals->bytes
           : measure == CALLS ? totals->calls
                              : fr_tools_job_ns(totals);
}

static void write_segment(FILE *out, unsigned path, uint64_t part, uint64_t whole)
{
    unsigned permille = fr_permille(part, whole);
    fprintf(out, "<span class=\"seg p-%s\" style=\"flex-grow:%u\">", fr_tools_job_path_name(path),
            permille ? permille : 1);
    if (permille >= 90)
        fprintf(out, "<i>%s %u%%</i>", fr_tools_job_path_name(path), (permille + 5) / 10);
    fputs("</span>", out);
}

// A bar of all paths, which together are the whole.
static void write_bar(FILE *out, const struct fr_tools_job_totals paths[FR_TOOLS_JOB_PATHS],
                      enum measure measure)
{
    static const char *const titles[MEASURES] = {"Bytes", "Calls", "Time"};
    uint64_t whole = 0;
    for (unsigned path = 0; path < FR_TOOLS_JOB_NONE; path++)
        whole += measure_of(&paths[path], measure);
    fprintf(out,
            "<div class=\"share\"><span class=\"what\">%s</span><div class=\"stack\" "
            "aria-hidden=\"true\">",
            titles[measure]);
    for (unsigned path = 0; path < FR_TOOLS_JOB_NONE; path++) {
        if (measure_of(&paths[path], measure))
            write_segment(out, path, measure_of(&paths[path], measure), whole);
    }
    fputs(whole ? "</div></div>\n" : "<span class=\"none\">none</span></div></div>\n", out);
}

static void write_share(FILE *out, uint64_t part, uint64_t whole)
{
    unsigned permille = fr_permille(part, whole);
    if (whole)
        fprintf(out, "<small>%u.%u%%</small>", permille / 10, permille % 10);
}

static void write_cell(FILE *out, enum fr_unit unit, uint64_t value, uint64_t whole,
                       const char *path, const char *what)
{
    fputs(value ? "<td>" : "<td class=\"zero\">", out);
    fr_html_number(out, unit, value, "paths.%s.%s", path, what);
    write_share(out, value, whole);
    fputs("</td>", out);
}

static void write_path_row(FILE *out, unsigned path, const struct fr_tools_job_totals *totals,
                           const struct fr_tools_job_totals *all)
{
    const char *name = fr_tools_job_path_name(path);
    bool counts = path != FR_TOOLS_JOB_NONE;
    fprintf(out,
            "<tr%s><th scope=\"row\"><span class=\"swatch p-%s\"></span>%s<small>%s</small></th>",
            counts ? "" : " class=\"quiet\"", name, counts ? name : "no buffer",
            fr_tools_job_path_about(path));
    write_cell(out, FR_UNIT_BYTES, totals->bytes, counts ? all->bytes : 0, name, "bytes");
    write_cell(out, FR_UNIT_COUNT, totals->buffers, 0, name, "buffers");
    write_cell(out, FR_UNIT_COUNT, totals->calls, counts ? all->calls : 0, name, "calls");
    write_cell(out, FR_UNIT_NS, fr_tools_job_ns(totals), counts ? fr_tools_job_ns(all) : 0, name,
               "ns");
    write_cell(out, FR_UNIT_NS, totals->wait_ns, 0, name, "wait_ns");
    write_cell(out, FR_UNIT_NS, totals->fabrail_ns, 0, name, "fabrail_ns");
    write_cell(out, FR_UNIT_NS, totals->copies_ns, 0, name, "copies_ns");
    write_cell(out, FR_UNIT_NS, totals->mpi_ns, 0, name, "mpi_ns");
    fputs("</tr>\n", out);
}

void fr_page_paths(FILE *out, const struct fr_job *job)
{
    struct fr_tools_job_totals paths[FR_TOOLS_JOB_PATHS], all = {.calls = 0};
    fr_tools_job_sum(job, paths);
    for (unsigned path = 0; path < FR_TOOLS_JOB_NONE; path++)
        fr_tools_job_add(&all, &paths[path]);
    fputs("<section id=\"paths\"><h2>Paths</h2>\n<p class=\"about\">Which way the device buffers "
          "of all ranks went.</p>\n",
          out);
    for (enum measure measure = BYTES; measure < MEASURES; measure++)
        write_bar(out, paths, measure);
    fputs("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Table of paths\">"
          "<table><thead><tr><th scope=\"col\">Path</th><th scope=\"col\">Bytes</th>"
          "<th scope=\"col\">Buffers</th><th scope=\"col\">Calls</th><th scope=\"col\">Time</th>"
          "<th scope=\"col\">waiting</th><th scope=\"col\">in Fabrail</th><th scope=\"col\">in "
          "copies</th>"
          "<th scope=\"col\">in MPI</th></tr></thead><tbody>\n",
          out);
    for (unsigned path = 0; path < FR_TOOLS_JOB_PATHS; path++) {
        if (paths[path].calls || paths[path].buffers)
            write_path_row(out, path, &paths[path], &all);
    }
    fputs("</tbody></table></div></section>\n", out);
}

static struct fr_tools_job_cell class_total(const struct fr_job *job, unsigned class)
{
    struct fr_tools_job_cell total = {.bytes = 0};
    for (unsigned path = 0; path < FR_TOOLS_JOB_PATHS; path++) {
        total.bytes += job->sizes[path][class].bytes;
        total.messages += job->sizes[path][class].messages;
    }
    return total;
}

// A bar as long as its class is large beside the largest, divided by paths.
static void write_class_bar(FILE *out, const struct fr_job *job, unsigned class, bool bytes,
                            uint64_t largest)
{
    fputs("<div class=\"row\" aria-hidden=\"true\">", out);
    for (unsigned path = 0; path < FR_TOOLS_JOB_PATHS; path++) {
        const struct fr_tools_job_cell *cell = &job->sizes[path][class];
        uint64_t value = bytes ? cell->bytes : cell->messages;
        if (value)
            fprintf(out, "<span class=\"seg p-%s\" style=\"width:max(2px,%.2f%%)\"></span>",
                    fr_tools_job_path_name(path),
                    (double)value * 100 / (double)(largest ? largest : 1));
    }
    fputs("</div>", out);
}

static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};

static void write_class(FILE *out, const struct fr_job *job, unsigned class,
                        const struct fr_tools_job_cell *largest)
{
    struct fr_tools_job_cell total = class_total(job, class);
    fputs("<tr><th scope=\"row\">", out);
    if (class == 0)
        fputs("0 or 1 B", out);
    else
        fprintf(out, "%u %s<small>up to %u %s</small>", 1u << class % 10, units[class / 10],
                1u << (class + 1) % 10, units[(class + 1) / 10]);
    fputs("</th><td class=\"plot\"><div class=\"beside\">", out);
    write_class_bar(out, job, class, false, largest->messages);
    fr_html_number(out, FR_UNIT_COUNT, total.messages, "sizes.%u.buffers", class);
    fputs("</div></td><td class=\"plot\"><div class=\"beside\">", out);
    write_class_bar(out, job, class, true, largest->bytes);
    fr_html_number(out, FR_UNIT_BYTES, total.bytes, "sizes.%u.bytes", class);
    fputs("</div></td></tr>\n", out);
}

void fr_page_sizes(FILE *out, const struct fr_job *job)
{
    struct fr_tools_job_cell largest = {.bytes = 0};
    for (unsigned class = 0; class < FR_TOOLS_JOB_CLASSES; class ++) {
        struct fr_tools_job_cell total = class_total(job, class);
        largest.bytes = total.bytes > largest.bytes ? total.bytes : largest.bytes;
        largest.messages = total.messages > largest.messages ? total.messages : largest.messages;
    }
    if (!largest.messages)
        return;
    fputs("<section id=\"sizes\"><h2>Sizes</h2>\n<p class=\"about\">Device buffers by the data "
          "that one call reads and writes in them.</p>\n<p class=\"legend\">",
          out);
    for (unsigned path = 0; path < FR_TOOLS_JOB_NONE; path++) {
        bool used = false;
        for (unsigned class = 0; class < FR_TOOLS_JOB_CLASSES; class ++)
            used = used || job->sizes[path][class].messages;
        if (used)
            fprintf(out, "<span><span class=\"swatch p-%s\"></span>%s</span> ",
                    fr_tools_job_path_name(path), fr_tools_job_path_name(path));
    }
    fputs("</p><table class=\"sizes\"><thead><tr><th scope=\"col\">Size</th><th scope=\"col\">"
          "Buffers</th><th scope=\"col\">Bytes</th></tr></thead><tbody>\n",
          out);
    for (unsigned class = 0; class < FR_TOOLS_JOB_CLASSES; class ++) {
        if (class_total(job, class).messages)
            write_class(out, job, class, &largest);
    }
    fputs("</tbody></table></section>\n", out);
}
