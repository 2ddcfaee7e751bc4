// SPDX-License-Identifier: BSD-3-Clause
// The top of the page: the verdict, which module report finds. Beside it the comparison with
// another job, and what the job was.
#include "config.h"

#include "report.h"

#include <string.h>

void fr_text_write(FILE *out, const struct fr_job *job)
{
    char lines[FR_VERDICT_LINES][FR_VERDICT_LINE_BYTES];
    if (!job->judged) {
        fputs("There is no verdict without the files of the ranks.\n", out);
        return;
    }
    fr_verdict_lines(&job->verdict, lines);
    for (int i = 0; i < FR_VERDICT_LINES; i++)
        fprintf(out, "%s\n", lines[i]);
}

static void write_share(FILE *out, uint64_t part, uint64_t whole)
{
    unsigned permille = fr_permille(part, whole);
    fprintf(out, "<small>%u.%u%%</small>", permille / 10, permille % 10);
}

// A part of the time in calls with device buffers.
struct part {
    const char *name;
    const char *class;
    const char *key;
    uint64_t ns;
};
enum { PARTS = 4 };

static void list_parts(const struct fr_verdict *verdict, struct part parts[PARTS])
{
    parts[0] = (struct part){"Waiting", "t-wait", "wait_ns", verdict->wait_ns};
    parts[1] = (struct part){"Copies", "t-copy", "copies_ns", verdict->copies_ns};
    parts[2] = (struct part){"Wire", "t-mpi", "wire_ns", verdict->wire_ns};
    parts[3] = (struct part){"Fabrail", "t-own", "fabrail_ns", verdict->fabrail_ns};
}

static void write_parts(FILE *out, const struct fr_verdict *verdict)
{
    struct part parts[PARTS];
    char late[FR_VERDICT_LINE_BYTES];
    list_parts(verdict, parts);
    fputs("<div class=\"stack\" aria-hidden=\"true\">", out);
    for (int i = 0; i < PARTS; i++) {
        if (parts[i].ns)
            fprintf(out, "<span class=\"seg %s\" style=\"flex-grow:%u\"></span>", parts[i].class,
                    fr_permille(parts[i].ns, verdict->ns) + 1);
    }
    fputs("</div>\n<dl class=\"parts\">", out);
    for (int i = 0; i < PARTS; i++) {
        fprintf(out, "<div><dt><span class=\"swatch %s\"></span>%s</dt><dd>", parts[i].class,
                parts[i].name);
        fr_html_number(out, FR_UNIT_NS, parts[i].ns, "verdict.%s", parts[i].key);
        write_share(out, parts[i].ns, verdict->ns);
        if (i == 0 && parts[i].ns) {
            fr_verdict_late_text(verdict, late);
            fprintf(out, "<small>for %s</small>", late);
        }
        fputs("</dd></div>", out);
    }
    fputs("</dl>\n", out);
}

static void write_deeds(FILE *out, const struct fr_verdict *verdict)
{
    char text[FR_VERDICT_LINE_BYTES];
    if (verdict->deed_count == 0)
        return;
    fputs("<h3>What to do, most saved first</h3>\n<ol class=\"deeds\">\n", out);
    for (unsigned i = 0; i < verdict->deed_count; i++) {
        fr_verdict_deed_text(verdict, &verdict->deeds[i], text);
        fprintf(out, "<li value=\"%u\">", i + 1);
        fr_html_text(out, text);
        fputs("</li>\n", out);
    }
    fputs("</ol>\n", out);
}

void fr_page_verdict(FILE *out, const struct fr_job *job)
{
    char sentence[FR_VERDICT_LINE_BYTES];
    if (!job->judged)
        return;
    fr_verdict_sentence(&job->verdict, sentence);
    fputs("<p id=\"verdict\" class=\"verdict\">", out);
    fr_html_text(out, sentence);
    fputs("</p>\n", out);
    if (job->verdict.ns == 0)
        return;
    write_parts(out, &job->verdict);
    write_deeds(out, &job->verdict);
}

static void write_change(FILE *out, uint64_t now, uint64_t before)
{
    if (before == 0) {
        fputs("<td class=\"zero\">–</td></tr>\n", out);
        return;
    }
    double ratio = (double)now / (double)before;
    if (ratio >= 2)
        fprintf(out, "<td>× %.*f</td></tr>\n", ratio < 10 ? 1 : 0, ratio);
    else
        fprintf(out, "<td>%+.1f&thinsp;%%</td></tr>\n", (ratio - 1) * 100);
}

static void write_row(FILE *out, const char *title, enum fr_unit unit, const char *key,
                      uint64_t now, uint64_t before)
{
    fputs("<tr><th scope=\"row\">", out);
    fr_html_text(out, title);
    fputs("</th><td>", out);
    fr_html_number(out, unit, now, "compare.%s.here", key);
    fputs("</td><td>", out);
    fr_html_number(out, unit, before, "compare.%s.there", key);
    fputs("</td>", out);
    write_change(out, now, before);
}

// Returns the time of all calls of a function with device buffers.
static uint64_t time_of(const struct fr_job *job, const char *name)
{
    uint64_t ns = 0;
    for (size_t i = 0; i < job->function_count; i++) {
        const struct fr_tools_job_function *function = &job->functions[i];
        if (function->path != FR_TOOLS_JOB_NONE && strcmp(function->name, name) == 0)
            ns += fr_tools_job_ns(&function->totals);
    }
    return ns;
}

// Returns whether a function is among the first `count` of a job, and had device buffers there.
static bool has_among(const struct fr_job *job, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (job->functions[i].path != FR_TOOLS_JOB_NONE &&
            strcmp(job->functions[i].name, name) == 0)
            return true;
    }
    return false;
}

// Writes a row for each function of `job` that had device buffers, the slowest first. `swapped`
// says that `other` is this job, whose functions have their rows already.
static void write_functions(FILE *out, const struct fr_job *job, const struct fr_job *other,
                            bool swapped)
{
    for (size_t i = 0; i < job->function_count; i++) {
        const char *name = job->functions[i].name;
        uint64_t own = time_of(job, name), others = time_of(other, name);
        bool seen = job->functions[i].path == FR_TOOLS_JOB_NONE || has_among(job, i, name) ||
                    (swapped && has_among(other, other->function_count, name));
        if (!seen)
            write_row(out, name, FR_UNIT_NS, name, swapped ? others : own, swapped ? own : others);
    }
}

static void write_sentence(FILE *out, const char *whose, const struct fr_verdict *verdict)
{
    char sentence[FR_VERDICT_LINE_BYTES];
    fr_verdict_sentence(verdict, sentence);
    fprintf(out, "<p><b>%s</b> ", whose);
    fr_html_text(out, sentence);
    fputs("</p>\n", out);
}

void fr_page_compare(FILE *out, const struct fr_job *job, const struct fr_job *other)
{
    const struct fr_verdict *a = &job->verdict, *b = &other->verdict;
    fputs("<section id=\"compare\"><h2>Side by side</h2>\n", out);
    write_sentence(out, "This job:", a);
    write_sentence(out, "The other:", b);
    fputs("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Comparison\"><table>"
          "<thead><tr><th scope=\"col\">All ranks</th><th scope=\"col\">This job</th>"
          "<th scope=\"col\">The other</th><th scope=\"col\">Change</th></tr></thead><tbody>\n",
          out);
    write_row(out, "Ranks", FR_UNIT_COUNT, "ranks", (uint64_t)a->ranks, (uint64_t)b->ranks);
    write_row(out, "Longest rank", FR_UNIT_NS, "longest_ns", a->longest_ns, b->longest_ns);
    write_row(out, "In MPI, device buffers", FR_UNIT_NS, "ns", a->ns, b->ns);
    write_row(out, "Waiting", FR_UNIT_NS, "wait_ns", a->wait_ns, b->wait_ns);
    write_row(out, "Copies", FR_UNIT_NS, "copies_ns", a->copies_ns, b->copies_ns);
    write_row(out, "Wire", FR_UNIT_NS, "wire_ns", a->wire_ns, b->wire_ns);
    write_row(out, "Fabrail", FR_UNIT_NS, "fabrail_ns", a->fabrail_ns, b->fabrail_ns);
    write_row(out, "Device data", FR_UNIT_BYTES, "bytes", a->bytes, b->bytes);
    write_row(out, "Staged", FR_UNIT_BYTES, "staged", a->path_bytes[FR_PATH_HOST],
              b->path_bytes[FR_PATH_HOST]);
    write_functions(out, job, other, false);
    write_functions(out, other, job, true);
    fputs("</tbody></table></div></section>\n", out);
}

void fr_page_job(FILE *out, const struct fr_job *job)
{
    if (!job->detailed)
        return;
    fputs("<section id=\"job\"><h2>Job</h2>\n<dl class=\"facts\">\n<dt>GPUs</dt><dd>", out);
    fr_html_text(out, job->gpu ? job->gpu : "unknown");
    fputs(job->gpu && strstr(job->gpu, "simulated") ? " <b>no real GPU</b>" : "", out);
    fputs("</dd>\n<dt>Command</dt><dd><code>", out);
    fr_html_text(out, job->command ? job->command : "unknown");
    fputs("</code></dd>\n<dt>Settings</dt><dd>", out);
    for (size_t i = 0; i < job->setting_count; i++) {
        fputs("<code>", out);
        fr_html_text(out, job->settings[i].name);
        fputs("=", out);
        fr_html_text(out, job->settings[i].value);
        fputs("</code> ", out);
    }
    fputs(job->setting_count ? "</dd>\n</dl></section>\n"
                             : "all as they are by default</dd>\n</dl></section>\n",
          out);
}
