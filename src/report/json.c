// SPDX-License-Identifier: BSD-3-Clause
// The report of a rank, as JSON (doc/report.schema.json) and as text. All of this may run in a
// signal handler, while other threads go on counting.
#include "config.h"

#include "fabrail/job.h"
#include "report/out.h"
#include "report/report_int.h"

#include <string.h>

static const struct fr_report_rail *rails;
static unsigned rail_count;

void fr_report_count_rails(uint32_t *count, uint32_t *lost)
{
    *count = rail_count;
    *lost = 0;
    for (unsigned i = 0; i < rail_count; i++)
        *lost += rails[i].lost;
}

void fr_report_rails(const struct fr_report_rail *all, unsigned count)
{
    rails = all;
    rail_count = count;
}

static void write_times(struct fr_report_out *out, const struct fr_report_sum *sum)
{
    fr_report_put(out, "\"fabrail_ns\": %u, \"copies_ns\": %u, \"mpi_ns\": %u, \"wait_ns\": %u",
                  fr_report_sum_within(sum), sum->copies_ns, sum->mpi_ns, sum->wait_ns);
}

static const char *path_name(unsigned path)
{
    return path == FR_NO_PATH ? "none" : fr_policy_path_name((enum fr_policy_path)path);
}

// Returns the total of all rows of a path, or of all paths for FR_PATH_COUNT + 1.
static struct fr_report_sum total_of(unsigned path)
{
    unsigned count;
    const struct fr_report_sum *sums = fr_report_sums(&count);
    struct fr_report_sum total = {.path = path};
    for (unsigned i = 0; i < count; i++) {
        if (path <= FR_NO_PATH && sums[i].path != path)
            continue;
        total.buffers += sums[i].buffers;
        total.bytes += sums[i].bytes;
        total.calls += sums[i].calls;
        total.copies_ns += sums[i].copies_ns;
        total.mpi_ns += sums[i].mpi_ns;
        total.wait_ns += sums[i].wait_ns;
        total.ns +=
            fr_report_sum_within(&sums[i]) + sums[i].copies_ns + sums[i].mpi_ns + sums[i].wait_ns;
    }
    return total;
}

// Writes the totals on one line, which the summary of the job takes over as it is (summary.c).
static void write_totals(struct fr_report_out *out, const struct fr_report_end *end)
{
    struct fr_report_sum all = total_of(FR_NO_PATH + 1);
    fr_report_put(out,
                  "  \"totals\": {\"rank\": %i, \"host\": %q, \"ended\": %q, \"wall_ns\": %u, ",
                  fr_report_rank(), fr_report_host(), end->how, fr_report_wall_ns());
    write_times(out, &all);
    fr_report_put(out, ", \"paths\": {");
    for (unsigned path = 0; path <= FR_NO_PATH; path++) {
        struct fr_report_sum total = total_of(path);
        fr_report_put(out, "%s\"%s\": {\"calls\": %u, \"buffers\": %u, \"bytes\": %u, ",
                      path ? ", " : "", path_name(path), total.calls, total.buffers, total.bytes);
        write_times(out, &total);
        fr_report_put(out, "}");
    }
    fr_report_put(out, "}},\n");
}

static void write_paths(struct fr_report_out *out)
{
    fr_report_put(out, "  \"paths\": {");
    for (unsigned path = 0; path < FR_PATH_COUNT; path++) {
        struct fr_report_sum total = total_of(path);
        fr_report_put(out, "%s\n    \"%s\": {\"buffers\": %u, \"bytes\": %u}", path ? "," : "",
                      path_name(path), total.buffers, total.bytes);
    }
    fr_report_put(out, "\n  },\n");
}

// Writes the rows that have buffers, or else those of calls without buffers of their own. Such
// calls completed others, or needed none.
static void write_functions(struct fr_report_out *out, bool with_buffers)
{
    unsigned count;
    const struct fr_report_sum *sums = fr_report_sums(&count);
    fr_report_put(out, "  \"%s\": %[", with_buffers ? "functions" : "calls");
    for (unsigned i = 0; i < count; i++) {
        const struct fr_report_sum *sum = &sums[i];
        if ((sum->buffers != 0) != with_buffers || (!sum->buffers && !sum->calls))
            continue;
        fr_report_put(out,
                      "%,{\"name\": %q, \"path\": %q, \"scheme\": %q, \"calls\": %u, "
                      "\"timed_calls\": %u, \"buffers\": %u, \"bytes\": %u, ",
                      fr_abi_rows[sum->fn].name, path_name(sum->path), sum->scheme, sum->calls,
                      sum->timed_calls, sum->buffers, sum->bytes);
        write_times(out, sum);
        fr_report_put(out, ", \"reason\": %q}", sum->reason);
    }
    fr_report_put(out, "%],\n");
}

static void write_sites(struct fr_report_out *out)
{
    unsigned count;
    const struct fr_core_site *found;
    const struct fr_report_site *sites = fr_report_sites(&found, &count);
    fr_report_put(out, "  \"sites\": %[");
    for (unsigned i = 0; i < count; i++) {
        const struct fr_report_site *site = &sites[i];
        const struct fr_report_label *label = fr_report_label(site->label);
        const char *function = found[i].function, *object = found[i].object;
        fr_report_put(out,
                      "%,{\"name\": %q, \"function\": %q, \"object\": %q, \"address\": %u, "
                      "\"communicator\": %q, \"ranks\": %i, \"calls\": %u, \"bytes\": {",
                      fr_report_site_function(site), function[0] ? function : NULL,
                      object[0] ? object : NULL, found[i].address, label ? label->name : NULL,
                      label ? label->ranks : 0, site->calls);
        for (unsigned path = 0, written = 0; path < FR_PATH_COUNT; path++) {
            if (site->bytes[path])
                fr_report_put(out, "%s\"%s\": %u", written++ ? ", " : "", path_name(path),
                              site->bytes[path]);
        }
        fr_report_put(out,
                      "}, \"fabrail_ns\": %u, \"copies_ns\": %u, \"mpi_ns\": %u, "
                      "\"wait_ns\": %u}",
                      fr_report_site_within(site), site->copies_ns, site->mpi_ns, site->wait_ns);
    }
    fr_report_put(out, "%],\n");
}

// Adds up one cell of every slab, which lies `offset` bytes into it.
static void add_cells(size_t offset, uint64_t *buffers, uint64_t *bytes)
{
    *buffers = *bytes = 0;
    for (const struct fr_slab *slab = fr_report_slabs(); slab; slab = slab->next) {
        const struct fr_cell *cell = (const struct fr_cell *)((const char *)slab + offset);
        *buffers += fr_count_get(&cell->buffers);
        *bytes += fr_count_get(&cell->bytes);
    }
}

static void add_kind(unsigned kind, unsigned path, uint64_t *buffers, uint64_t *bytes)
{
    *buffers = *bytes = 0;
    for (const struct fr_slab *slab = fr_report_slabs(); slab; slab = slab->next) {
        for (unsigned i = 0; i < FR_ROWS; i++) {
            const struct fr_row *row = &slab->rows[i];
            if (!atomic_load_explicit(&row->taken, memory_order_acquire) ||
                FR_ROW_KIND(row->key) != kind || FR_ROW_PATH(row->key) != path)
                continue;
            *buffers += fr_count_get(&row->data.buffers);
            *bytes += fr_count_get(&row->data.bytes);
        }
    }
}

static void write_kinds(struct fr_report_out *out)
{
    fr_report_put(out, "  \"memory\": %[");
    for (unsigned kind = 0; kind < FR_KIND_COUNT; kind++) {
        for (unsigned path = 0; path < FR_PATH_COUNT; path++) {
            uint64_t buffers, bytes;
            add_kind(kind, path, &buffers, &bytes);
            if (!buffers)
                continue;
            fr_report_put(out, "%,{\"kind\": %q, \"path\": %q, \"buffers\": %u, \"bytes\": %u}",
                          fr_device_kind_name((enum fr_device_kind)kind), path_name(path), buffers,
                          bytes);
        }
    }
    fr_report_put(out, "%],\n");
}

static void write_sizes(struct fr_report_out *out)
{
    fr_report_put(out, "  \"sizes\": %[");
    for (unsigned path = 0; path < FR_PATH_COUNT; path++) {
        for (unsigned class = 0; class < FR_SIZE_CLASSES; class ++) {
            uint64_t buffers, bytes;
            add_cells(offsetof(struct fr_slab, sizes[path][class]), &buffers, &bytes);
            if (!buffers)
                continue;
            fr_report_put(out,
                          "%,{\"path\": %q, \"from_bytes\": %u, \"buffers\": %u, \"bytes\": %u}",
                          path_name(path), class ? (uint64_t)1 << class : 0, buffers, bytes);
        }
    }
    fr_report_put(out, "%],\n");
}

static void add_peers(int rank, unsigned path, uint64_t *messages, uint64_t *bytes)
{
    *messages = *bytes = 0;
    for (const struct fr_slab *slab = fr_report_slabs(); slab; slab = slab->next) {
        const struct fr_cell(*peers)[FR_PATH_COUNT] = slab->peers;
        if (!peers || rank >= slab->peer_count)
            continue;
        *messages += fr_count_get(&peers[rank][path].buffers);
        *bytes += fr_count_get(&peers[rank][path].bytes);
    }
}

static void write_peers(struct fr_report_out *out)
{
    fr_report_put(out, "  \"peers\": %[");
    for (int rank = 0; rank < fr_job_size(); rank++) {
        for (unsigned path = 0; path < FR_PATH_COUNT; path++) {
            uint64_t messages, bytes;
            add_peers(rank, path, &messages, &bytes);
            if (!messages)
                continue;
            fr_report_put(out, "%,{\"rank\": %i, \"path\": %q, \"messages\": %u, \"bytes\": %u}",
                          rank, path_name(path), messages, bytes);
        }
    }
    fr_report_put(out, "%],\n  \"everyone\": %[");
    for (unsigned path = 0; path < FR_PATH_COUNT; path++) {
        uint64_t messages, bytes;
        add_cells(offsetof(struct fr_slab, everyone[path]), &messages, &bytes);
        if (!messages)
            continue;
        fr_report_put(out, "%,{\"path\": %q, \"messages\": %u, \"bytes\": %u}", path_name(path),
                      messages, bytes);
    }
    fr_report_put(out, "%],\n");
}

// Writes how long this rank has waited for messages of each rank.
static void write_waits(struct fr_report_out *out)
{
    fr_report_put(out, "  \"waits\": %[");
    for (int rank = 0; rank < fr_job_size(); rank++) {
        uint64_t ns = fr_report_waited_ns(rank);
        if (!ns)
            continue;
        fr_report_put(out, "%,{\"rank\": %i, \"ns\": %u}", rank, ns);
    }
    fr_report_put(out, "%],\n");
}

static void write_settings(struct fr_report_out *out)
{
    struct fr_core_setting setting;
    fr_report_put(out, "  \"settings\": %[");
    for (size_t i = 0; fr_core_setting_at(i, &setting); i++) {
        if (!setting.is_given)
            continue;
        fr_report_put(out, "%,{\"name\": %q, \"value\": %q}", setting.name, setting.value);
    }
    fr_report_put(out, "%],\n");
}

static void write_rails(struct fr_report_out *out)
{
    fr_report_put(out, "  \"rails\": %[");
    for (unsigned i = 0; i < rail_count; i++) {
        fr_report_put(out,
                      "%,{\"name\": %q, \"sent_bytes\": %u, \"received_bytes\": %u, "
                      "\"device_bytes\": %u, \"stripes\": %u, \"lost\": %b}",
                      rails[i].name, fr_count_get(&rails[i].sent_bytes),
                      fr_count_get(&rails[i].received_bytes), fr_count_get(&rails[i].device_bytes),
                      fr_count_get(&rails[i].stripes), (int)rails[i].lost);
    }
    fr_report_put(out, "%],\n");
}

static void write_warnings(struct fr_report_out *out)
{
    enum fr_log_level level;
    const char *text;
    fr_report_put(out, "  \"warnings\": %[");
    for (unsigned i = 0; (text = fr_core_log_recorded(i, &level)); i++)
        fr_report_put(out, "%,{\"level\": %q, \"text\": %q}",
                      level == FR_LOG_ERROR ? "error" : "warn", text);
    fr_report_put(out, "%]\n");
}

static void write_head(struct fr_report_out *out, const struct fr_report_end *end,
                       const struct fr_report_job *job)
{
    fr_report_put(out, "{\n  \"format\": \"fabrail-report\",\n  \"version\": %i,\n",
                  FR_REPORT_VERSION);
    fr_report_put(out, "  \"kind\": \"rank\",\n  \"fabrail\": %q,\n", PACKAGE_VERSION);
    fr_report_put(out, "  \"job\": %q,\n  \"rank\": %i,\n  \"size\": %i,\n  \"host\": %q,\n",
                  fr_report_job_name(), fr_report_rank(), fr_report_size(), fr_report_host());
    fr_report_put(out, "  \"started_unix_ns\": %u,\n  \"ended\": %q,\n  \"signal\": %i,\n",
                  fr_report_started_unix_ns(), end->how, end->signal);
    fr_report_put(out, "  \"mpi\": %q,\n  \"mpi_gpu_aware\": %b,\n", fr_abi_mpi.family,
                  (int)job->mpi_gpu_aware);
    fr_report_put(out, "  \"hosts\": %i,\n  \"nvlink_cliques\": %i,\n  \"fabric_memory\": %q,\n",
                  job->hosts, job->cliques, job->fabric_memory);
    fr_report_put(out, "  \"workspace_peak_bytes\": %u,\n", (uint64_t)job->workspace_peak_bytes);
    fr_report_put(out, "  \"gpu\": %q,\n  \"command\": %q,\n", fr_report_gpu(),
                  fr_report_command());
    write_settings(out);
    fr_report_put(out,
                  "  \"typed\": {\n    \"kernel\": {\"copies\": %u, \"bytes\": %u},\n"
                  "    \"driver\": {\"copies\": %u, \"bytes\": %u},\n"
                  "    \"cpu\": {\"copies\": %u, \"bytes\": %u}\n  },\n",
                  job->by_kernel.copies, job->by_kernel.bytes, job->by_driver.copies,
                  job->by_driver.bytes, job->by_cpu.copies, job->by_cpu.bytes);
    fr_report_put(out,
                  "  \"cpu_access\": {\n    \"way\": %q,\n"
                  "    \"read\": {\"copies\": %u, \"bytes\": %u},\n"
                  "    \"written\": {\"copies\": %u, \"bytes\": %u}\n  },\n",
                  job->cpu_way, job->cpu_read.copies, job->cpu_read.bytes, job->cpu_written.copies,
                  job->cpu_written.bytes);
}

void fr_report_write_json(struct fr_report_out *out, const struct fr_report_end *end,
                          const struct fr_report_job *job)
{
    write_head(out, end, job);
    write_totals(out, end);
    write_paths(out);
    write_kinds(out);
    write_functions(out, true);
    write_functions(out, false);
    write_sites(out);
    write_sizes(out);
    write_peers(out);
    write_waits(out);
    write_rails(out);
    write_warnings(out);
    fr_report_put(out, "}\n");
}

void fr_report_write_text(const struct fr_report_job *job)
{
    enum { MOST_RANKS = 8 };
    unsigned count;
    const struct fr_report_sum *rows = fr_report_sums(&count);
    struct fr_report_sum all = total_of(FR_NO_PATH + 1);
    if (fr_report_rank() >= MOST_RANKS) // the verdict tells of them
        return;
    if (job->workspace_peak_bytes)
        fr_core_log_write(FR_LOG_INFO, "report: fabric memory %s workspace peak %zu bytes",
                          job->fabric_memory, job->workspace_peak_bytes);
    if (job->by_kernel.copies || job->by_driver.copies || job->by_cpu.copies)
        fr_core_log_write(FR_LOG_INFO,
                          "report: data with gaps by kernels %ju bytes by the driver %ju bytes by "
                          "the CPU %ju bytes",
                          (uintmax_t)job->by_kernel.bytes, (uintmax_t)job->by_driver.bytes,
                          (uintmax_t)job->by_cpu.bytes);
    if (job->cpu_read.copies || job->cpu_written.copies)
        fr_core_log_write(
            FR_LOG_INFO,
            "report: by the CPU itself, with %s: %ju copies of %ju bytes out of device "
            "memory, %ju of %ju bytes into it",
            job->cpu_way, (uintmax_t)job->cpu_read.copies, (uintmax_t)job->cpu_read.bytes,
            (uintmax_t)job->cpu_written.copies, (uintmax_t)job->cpu_written.bytes);
    for (unsigned i = 0; i < count; i++) {
        const struct fr_report_sum *row = &rows[i];
        if (!row->buffers)
            continue;
        fr_core_log_write(FR_LOG_INFO, "report: %s path %s%s%s buffers %ju bytes %ju because %s",
                          fr_abi_rows[row->fn].name, path_name(row->path),
                          row->scheme ? " scheme " : "", row->scheme ? row->scheme : "",
                          (uintmax_t)row->buffers, (uintmax_t)row->bytes, row->reason);
    }
    if (all.buffers)
        fr_core_log_write(
            FR_LOG_INFO,
            "report: time in fabrail %ju us in copies %ju us in the MPI library %ju us",
            (uintmax_t)fr_report_sum_within(&all) / 1000, (uintmax_t)all.copies_ns / 1000,
            (uintmax_t)all.mpi_ns / 1000);
}
