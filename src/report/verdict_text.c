// SPDX-License-Identifier: BSD-3-Clause
// The verdict in words: one sentence, and lines whose columns are aligned.
#include "config.h"

#include "fabrail/report/units.h"
#include "fabrail/report/verdict.h"

#include <stdio.h>
#include <string.h>

enum { BYTES = FR_VERDICT_LINE_BYTES };

// Texts of one line, which snprintf cuts off where it must.
static const char *percent(uint64_t part, uint64_t whole, char text[16])
{
    unsigned permille = fr_permille(part, whole);
    if (permille < 100)
        snprintf(text, 16, "%u.%u %%", permille / 10, permille % 10);
    else
        snprintf(text, 16, "%u %%", (permille + 5) / 10);
    return text;
}

static const char *way(const struct fr_verdict *verdict, int path, char text[48])
{
    static const char *const ways[FR_PATH_COUNT] = {
        [FR_PATH_PASS] = "as the MPI library does it", [FR_PATH_HOST] = "through host memory",
        [FR_PATH_FABRIC] = "through fabric memory",    [FR_PATH_PEER] = "over NVLink",
        [FR_PATH_REFUSE] = "which was refused",
    };
    if (path != FR_PATH_RAIL)
        return ways[path];
    snprintf(text, 48, "over %u rail%s", verdict->rails, verdict->rails == 1 ? "" : "s");
    return text;
}

void fr_verdict_late_text(const struct fr_verdict *verdict, char text[BYTES])
{
    size_t used = 0;
    if (verdict->late_count == 0) {
        snprintf(text, BYTES, "one another");
        return;
    }
    for (unsigned i = 0; i < verdict->late_count && used < BYTES; i++) {
        const char *before = i == 0 ? "" : i + 1 == verdict->late_count ? " and " : ", ";
        used += (size_t)snprintf(text + used, BYTES - used, "%s%s%d",
                                 i == 0 ? verdict->late_count == 1 ? "rank " : "ranks " : "",
                                 before, verdict->late[i]);
    }
}

// Writes what most of the time went to.
static void say_most(const struct fr_verdict *verdict, char text[BYTES])
{
    char share[16], where[48], late[BYTES];
    const struct fr_verdict_row *row = &verdict->slowest[0];
    uint64_t work = row->fabrail_ns + row->copies_ns + row->mpi_ns;
    if (2 * verdict->wait_ns >= verdict->ns || verdict->wait_ns >= work) {
        fr_verdict_late_text(verdict, late);
        snprintf(text, BYTES, "%s of that waiting for %.60s",
                 percent(verdict->wait_ns, verdict->ns, share), late);
        return;
    }
    bool copies = row->copies_ns > row->mpi_ns && row->copies_ns > row->fabrail_ns;
    bool wire = !copies && (row->path == FR_PATH_RAIL || row->mpi_ns > row->fabrail_ns);
    snprintf(text, BYTES, "%s of that in %s %s, mostly %s", percent(work, verdict->ns, share),
             row->name, way(verdict, row->path, where),
             copies ? "copies"
             : wire ? "on the wire"
                    : "Fabrail's own work");
}

void fr_verdict_sentence(const struct fr_verdict *verdict, char text[BYTES])
{
    char share[16], most[BYTES], rails[16], where[48];
    if (verdict->ns == 0) {
        snprintf(text, BYTES, "No MPI call of this job had device buffers.");
        return;
    }
    say_most(verdict, most);
    int used = snprintf(text, BYTES, "MPI calls with device buffers took %s of the run, %s",
                        percent(verdict->ns, verdict->wall_ns, share), most);
    uint64_t by_rail = verdict->path_bytes[FR_PATH_RAIL];
    bool tells = 2 * by_rail >= verdict->bytes && by_rail && !strstr(most, " rail");
    if (tells && used < BYTES)
        used +=
            snprintf(text + used, (size_t)(BYTES - used), "; %s of the bytes went %s",
                     percent(by_rail, verdict->bytes, rails), way(verdict, FR_PATH_RAIL, where));
    if (used < BYTES - 1)
        memcpy(text + used, ".", 2);
}

void fr_verdict_deed_text(const struct fr_verdict *verdict, const struct fr_verdict_deed *deed,
                          char text[BYTES])
{
    char time[FR_UNIT_TEXT_BYTES], share[16], late[BYTES];
    const char *spared = fr_unit_text(FR_UNIT_NS, deed->ns, time);
    (void)percent(deed->ns, verdict->ns, share);
    if (deed->topic >= 0) {
        snprintf(text, BYTES, "up to %s, %s: %s: %s", spared, share,
                 fr_verdict_topic_title(deed->topic), fr_verdict_topic_brief(deed->topic));
        return;
    }
    fr_verdict_late_text(verdict, late);
    snprintf(text, BYTES, "up to %s, %s: %s", spared, share,
             verdict->late_count ? "Late ranks: give less work to "
                                 : "Waiting: share the work more evenly");
    if (verdict->late_count) {
        size_t used = strlen(text);
        snprintf(text + used, BYTES - used, "%.60s", late);
    }
}

// Returns the width of a field for a number of ten columns. A micro sign is two bytes, and one
// column.
static int width_of(const char *number)
{
    return strstr(number, "µ") ? 11 : 10;
}

// Writes a line with a time and its share of a whole.
static void put_time(char line[BYTES], const char *label, uint64_t ns, uint64_t whole,
                     const char *of)
{
    char time[FR_UNIT_TEXT_BYTES], share[16];
    snprintf(line, BYTES, "%-12s %*s %8s  %s", label, width_of(fr_unit_text(FR_UNIT_NS, ns, time)),
             fr_unit_text(FR_UNIT_NS, ns, time), percent(ns, whole, share), of);
}

static void put_paths(char line[BYTES], const struct fr_verdict *verdict)
{
    size_t used = (size_t)snprintf(line, BYTES, "%-12s ", "by path");
    for (int path = 0; path < FR_PATH_COUNT && used < BYTES; path++) {
        char share[16];
        if (verdict->path_bytes[path])
            used += (size_t)snprintf(line + used, BYTES - used, " %s %s",
                                     fr_policy_path_name((enum fr_policy_path)path),
                                     percent(verdict->path_bytes[path], verdict->bytes, share));
    }
}

static void put_slowest(char line[BYTES], const struct fr_verdict *verdict)
{
    size_t used = (size_t)snprintf(line, BYTES, "%-12s ", "slowest");
    for (unsigned i = 0; i < verdict->slowest_count && used < BYTES; i++) {
        const struct fr_verdict_row *row = &verdict->slowest[i];
        char time[FR_UNIT_TEXT_BYTES];
        uint64_t work = row->fabrail_ns + row->copies_ns + row->mpi_ns;
        used += (size_t)snprintf(line + used, BYTES - used, "%s %s by %s %s", i ? "," : "",
                                 row->name, fr_policy_path_name((enum fr_policy_path)row->path),
                                 fr_unit_text(FR_UNIT_NS, work, time));
    }
}

void fr_verdict_comm_text(const char *name, int ranks, char text[BYTES])
{
    if (ranks == 0 && !name[0])
        snprintf(text, BYTES, "no communicator");
    else if (ranks == 0)
        snprintf(text, BYTES, "%s", name);
    else
        snprintf(text, BYTES, "%s of %d rank%s", name[0] ? name : "a communicator", ranks,
                 ranks == 1 ? "" : "s");
}

static void put_site(char line[BYTES], const struct fr_verdict *verdict)
{
    const struct fr_verdict_site *site = &verdict->site;
    char time[FR_UNIT_TEXT_BYTES], share[16], comm[BYTES];
    fr_verdict_comm_text(site->comm, site->comm_ranks, comm);
    if (site->ns == 0)
        snprintf(line, BYTES, "%-12s  no call", "call site");
    else
        snprintf(line, BYTES, "%-12s  %s %s, %.60s: %s, %.62s", "call site",
                 fr_unit_text(FR_UNIT_NS, site->ns, time), percent(site->ns, verdict->ns, share),
                 site->where, site->name, comm);
}

static void put_data(char line[BYTES], const struct fr_verdict *verdict)
{
    char bytes[FR_UNIT_TEXT_BYTES], rate[FR_UNIT_TEXT_BYTES], calls[FR_UNIT_TEXT_BYTES];
    uint64_t moving = verdict->ns - verdict->wait_ns;
    uint64_t a_second = moving ? (uint64_t)((double)verdict->bytes * 1e9 / (double)moving) : 0;
    snprintf(line, BYTES, "%-12s %10s           in %s calls, %s/s a rank while it did not wait",
             "data", fr_unit_text(FR_UNIT_BYTES, verdict->bytes, bytes),
             fr_unit_text(FR_UNIT_COUNT, verdict->calls, calls),
             fr_unit_text(FR_UNIT_BYTES, a_second, rate));
}

void fr_verdict_lines(const struct fr_verdict *verdict, char lines[FR_VERDICT_LINES][BYTES])
{
    static const char *const ordinals[FR_VERDICT_DEEDS] = {"do first", "then", "then"};
    char late[BYTES], deed[BYTES], time[FR_UNIT_TEXT_BYTES];
    const char *whole = "of that";
    fr_verdict_late_text(verdict, late);
    snprintf(lines[0], BYTES, "%d of %d ranks, %u rail%s a rank, %u lost", verdict->ranks,
             verdict->size, verdict->rails, verdict->rails == 1 ? "" : "s", verdict->rails_lost);
    fr_verdict_sentence(verdict, lines[1]);
    snprintf(lines[2], BYTES, "%-12s %*s           the longest rank", "run time",
             width_of(fr_unit_text(FR_UNIT_NS, verdict->longest_ns, time)),
             fr_unit_text(FR_UNIT_NS, verdict->longest_ns, time));
    put_time(lines[3], "in MPI", verdict->ns, verdict->wall_ns,
             "of run time, with device buffers, all ranks together");
    snprintf(deed, BYTES, "of that, for %.100s", verdict->wait_ns ? late : "nobody");
    put_time(lines[4], "waiting", verdict->wait_ns, verdict->ns, deed);
    put_time(lines[5], "copies", verdict->copies_ns, verdict->ns, whole);
    put_time(lines[6], "wire", verdict->wire_ns, verdict->ns,
             "of that, in the MPI library and NICs");
    put_time(lines[7], "Fabrail", verdict->fabrail_ns, verdict->ns, whole);
    put_data(lines[8], verdict);
    put_paths(lines[9], verdict);
    put_slowest(lines[10], verdict);
    put_site(lines[11], verdict);
    for (unsigned i = 0; i < FR_VERDICT_DEEDS; i++) {
        snprintf(deed, BYTES, "nothing stands out");
        if (i < verdict->deed_count)
            fr_verdict_deed_text(verdict, &verdict->deeds[i], deed);
        snprintf(lines[12 + i], BYTES, "%-12s  %.*s", ordinals[i], BYTES - 16,
                 i < verdict->deed_count || i == 0 ? deed : "-");
    }
}
