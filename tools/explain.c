// SPDX-License-Identifier: BSD-3-Clause
// fabrail explain: the table for a call, or for a job that has left reports.
#include "config.h"

#include "explain.h"

#include "command.h"
#include "info.h"
#include "json_write.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

enum {
    CODE_AWARE = FR_TOOL_NO_LETTER,
    CODE_FIRST,
    CODE_RAILS,
    CODE_HMEM,
    CODE_TYPE,
    MOST_SIZES = 64
};

const struct fr_tool_option fabrail_explain_options[] = {
    {"function", 'f', "NAME", "MPI_Send MPI_Isend MPI_Recv MPI_Alltoall MPI_Allreduce MPI_Bcast",
     "the MPI function (MPI_Send)"},
    {"bytes", 'b', "LIST", NULL, "sizes, with commas (256,64K,1M,16M,256M)"},
    {"type", CODE_TYPE, "TYPE", "vector: subarray: indexed:",
     "one element of a datatype: vector:COUNT,BLOCK,STRIDE or indexed:COUNT,BLOCK in bytes, or "
     "subarray:PARTS/SIZES/BYTES as 2x3x4/8x8x8/16"},
    {"memory", 'm', "LIST", "host pinned managed malloc pool vmm vmm-fd vmm-fabric",
     "kinds of memory, with commas (all that are on a device)"},
    {"between", 'w', "WHERE", "host gpu apart clique away self",
     "the other rank: on a GPU of this host, on the same gpu, on one that cannot map this one's "
     "memory (apart), on a host of the same NVLink clique, away from all that, or self (host)"},
    {"mpi", 'M', "FAMILY", "openmpi mpich mpiabi", "as if under this MPI"},
    {"gpu-aware", CODE_AWARE, "YES-OR-NO", "yes no", "as if the MPI were, or were not, GPU-aware"},
    {"first", CODE_FIRST, NULL, NULL, "of memory that the other rank has not mapped yet"},
    {"rails", CODE_RAILS, "NUMBER", "1 2 4 8", "NICs that hosts have in common for rails (0)"},
    {"hmem", CODE_HMEM, NULL, NULL, "these NICs reach the memory of GPUs"},
    {"report", 'r', "FILE", FR_TOOL_FILES,
     "explain a job by its reports; further files may follow"},
    {"json", 'j', NULL, NULL, "print JSON"},
    {NULL, 0, NULL, NULL, NULL},
};

struct options {
    const char *function;
    size_t sizes[MOST_SIZES];
    int size_count;
    unsigned kinds; // a bit for each
    enum fr_explain_place place;
    const char *family; // NULL: that of the first MPI on the path
    enum fr_tristate gpu_aware;
    bool first, hmem, json;
    unsigned rails;
    const char *report;
    struct fr_explain_type type; // no text: none is given
};

// Calls `take` with each part of a list with commas. Returns false when it does so once.
static bool for_each(const char *list, bool (*take)(struct options *, const char *part),
                     struct options *options)
{
    char part[64];
    for (;;) {
        size_t length = strcspn(list, ",");
        snprintf(part, sizeof(part), "%.*s", (int)length, list);
        if (length >= sizeof(part) || !take(options, part))
            return false;
        if (list[length] == '\0')
            return true;
        list += length + 1;
    }
}

static bool take_size(struct options *options, const char *part)
{
    if (options->size_count == MOST_SIZES)
        return false;
    size_t *bytes = &options->sizes[options->size_count++];
    return fr_core_bytes_parse(part, bytes) && *bytes <= INT64_MAX;
}

static bool take_kind(struct options *options, const char *part)
{
    for (int kind = 0; kind < FR_KIND_COUNT; kind++) {
        if (strcmp(fr_device_kind_name((enum fr_device_kind)kind), part) == 0) {
            options->kinds |= 1u << kind;
            return true;
        }
    }
    return false;
}

static bool take_place(struct options *options, const char *text)
{
    for (int place = 0; place < FR_PLACE_COUNT; place++) {
        if (strcmp(fr_explain_place_name((enum fr_explain_place)place), text) == 0) {
            options->place = (enum fr_explain_place)place;
            return true;
        }
    }
    return false;
}

static bool take_family(struct options *options, const char *text)
{
    options->family = strcmp(text, "openmpi") == 0  ? "Open MPI"
                      : strcmp(text, "mpich") == 0  ? "MPICH"
                      : strcmp(text, "mpiabi") == 0 ? "MPI ABI"
                                                    : NULL;
    return options->family != NULL;
}

static bool take_aware(struct options *options, const char *text)
{
    options->gpu_aware = strcmp(text, "yes") == 0 ? FR_YES : FR_NO;
    return options->gpu_aware == FR_YES || strcmp(text, "no") == 0;
}

static bool take_rails(struct options *options, const char *text)
{
    size_t digits = strspn(text, "0123456789");
    options->rails = (unsigned)strtoul(text, NULL, 10);
    return digits > 0 && digits <= 2 && text[digits] == '\0' && options->rails <= FR_RAILS_MAX;
}

// Returns whether the option's argument is one that it takes; `what` then says what it takes.
static bool take(struct options *options, int code, const char **what)
{
    switch (code) {
    case 'f':
        *what = "the name of an MPI function that Fabrail serves";
        options->function = optarg;
        return fr_explain_function(optarg) < FR_FN_COUNT;
    case 'b':
        *what = "sizes with commas";
        return for_each(optarg, take_size, options);
    case 'm':
        *what =
            "kinds of host, pinned, managed, malloc, pool, vmm, vmm-fd and vmm-fabric, with commas";
        return for_each(optarg, take_kind, options);
    case 'w':
        *what = "host, gpu, apart, clique, away or self";
        return take_place(options, optarg);
    case 'M':
        *what = "openmpi, mpich or mpiabi";
        return take_family(options, optarg);
    case CODE_AWARE:
        *what = "yes or no";
        return take_aware(options, optarg);
    case CODE_TYPE:
        *what = "vector:COUNT,BLOCK,STRIDE, indexed:COUNT,BLOCK or subarray:PARTS/SIZES/BYTES";
        return fr_explain_type_read(optarg, &options->type);
    case CODE_FIRST:
        options->first = true;
        return true;
    case CODE_HMEM:
        options->hmem = true;
        return true;
    case CODE_RAILS:
        *what = "a number of NICs up to 16";
        return take_rails(options, optarg);
    case 'r':
        *what = "one file, and further ones without it";
        if (options->report != NULL)
            return false;
        options->report = optarg;
        return true;
    default:
        options->json = true;
        return true;
    }
}

static void set_defaults(struct options *options)
{
    static const size_t sizes[] = {256, 64 << 10, 1 << 20, 16 << 20, 256 << 20};
    if (options->type.text != NULL) {
        options->sizes[0] = options->type.bytes;
        options->size_count = 1;
    }
    if (options->size_count == 0) {
        memcpy(options->sizes, sizes, sizeof(sizes));
        options->size_count = (int)FR_ARRAY_LENGTH(sizes);
    }
    for (int kind = 0; kind < FR_KIND_COUNT && options->kinds == 0; kind++) {
        if (!(fr_device_kind_caps((enum fr_device_kind)kind) & FR_DEVICE_OWNED))
            continue;
        for (int k = kind; k < FR_KIND_COUNT; k++)
            options->kinds |= 1u << k;
    }
    if (options->place == FR_PLACE_COUNT)
        options->place = FR_PLACE_HOST;
}

// Finds facts that the command line leaves open. Asks the first MPI on the path, or of the family
// named, whether it is GPU-aware, and the driver for fabric memory.
static void find_facts(const struct options *options, struct fr_explain_facts *facts,
                       const char **source)
{
    static struct fr_info info;
    const struct fr_info_mpi *mpi = NULL;
    facts->family = options->family != NULL ? options->family : "Open MPI";
    facts->gpu_aware = options->gpu_aware == FR_YES;
    facts->place = options->place;
    facts->first = options->first;
    facts->rails = options->rails;
    facts->hmem = options->hmem;
    facts->has_gaps = options->type.has_gaps;
    facts->wasted_bytes = options->type.wasted_bytes;
    *source = "as given";
    fr_info_gpus_find(&info.gpus, true);
    facts->fabric_memory = info.gpus.count == 0 || info.gpus.gpus[0].handles[FR_INFO_FABRIC].works;
    if (options->gpu_aware != FR_AUTO && options->family != NULL)
        return;
    (void)fr_launch_find_library(info.library);
    fr_info_mpis_find(&info.mpis, options->gpu_aware == FR_AUTO, info.library);
    for (int i = 0; i < info.mpis.count && mpi == NULL; i++) {
        bool is_openmpi = info.mpis.mpis[i].launcher.family == FR_LAUNCH_OPENMPI;
        bool is_mpich = info.mpis.mpis[i].launcher.family == FR_LAUNCH_MPICH;
        bool wanted = options->family == NULL ||
                      strcmp(options->family, is_openmpi ? "Open MPI" : "MPICH") == 0;
        if ((is_openmpi || is_mpich) && wanted)
            mpi = &info.mpis.mpis[i];
    }
    *source = mpi != NULL ? mpi->launcher.version : "no MPI on the path, taken for not GPU-aware";
    if (mpi != NULL && options->family == NULL)
        facts->family = mpi->launcher.family == FR_LAUNCH_OPENMPI ? "Open MPI" : "MPICH";
    if (mpi != NULL && options->gpu_aware == FR_AUTO)
        facts->gpu_aware = mpi->gpu_aware == FR_INFO_YES;
}

static void print_type(const struct fr_explain_type *type)
{
    struct fr_policy_packing packing = fr_explain_type(type);
    if (type->text == NULL)
        return;
    printf("%s: %zu bytes, %s because %s\n", type->text, type->bytes,
           !type->has_gaps     ? "not packed,"
           : packing.by_kernel ? "packed by one kernel,"
                               : "packed by copies of the driver,",
           packing.reason);
}

static void write_type(struct fr_json_out *out, const struct fr_explain_type *type)
{
    struct fr_policy_packing packing = fr_explain_type(type);
    if (type->text == NULL)
        return;
    fr_json_open(out, "type", '{');
    fr_json_text(out, "text", type->text);
    fr_json_number(out, "bytes", (int64_t)type->bytes);
    fr_json_text(out, "packed_by",
                 !type->has_gaps     ? NULL
                 : packing.by_kernel ? "kernel"
                                     : "driver");
    fr_json_text(out, "reason", packing.reason);
    fr_json_close(out, '}');
}

static void print_answers(const struct options *options, const struct fr_explain_facts *facts,
                          const char *source, enum fr_fn fn)
{
    printf("%s between %s\n%s, %sGPU-aware (%s)%s\n", options->function,
           fr_explain_place_text(facts->place), facts->family, facts->gpu_aware ? "" : "not ",
           source, facts->first ? "; memory that the other rank has not mapped yet" : "");
    print_type(&options->type);
    printf("\n%10s  %-11s %-7s %-13s %s\n", "bytes", "memory", "path", "by", "because");
    for (int kind = 0; kind < FR_KIND_COUNT; kind++) {
        for (int i = 0; i < options->size_count && (options->kinds >> kind & 1); i++) {
            char size[FR_BYTES_TEXT];
            struct fr_explain_answer one =
                fr_explain(facts, fn, (enum fr_device_kind)kind, options->sizes[i]);
            printf("%10s  %-11s %-7s %-13s %s\n", fr_core_bytes_text(options->sizes[i], size),
                   fr_device_kind_name((enum fr_device_kind)kind), one.path, one.how, one.reason);
        }
    }
}

static void write_answers(const struct options *options, const struct fr_explain_facts *facts,
                          enum fr_fn fn)
{
    struct fr_json_out out = {.file = stdout};
    fr_json_open(&out, NULL, '{');
    fr_json_text(&out, "function", options->function);
    fr_json_text(&out, "between", fr_explain_place_name(facts->place));
    fr_json_text(&out, "mpi", facts->family);
    fr_json_truth(&out, "mpi_gpu_aware", facts->gpu_aware);
    fr_json_truth(&out, "first", facts->first);
    write_type(&out, &options->type);
    fr_json_open(&out, "choices", '[');
    for (int kind = 0; kind < FR_KIND_COUNT; kind++) {
        for (int i = 0; i < options->size_count && (options->kinds >> kind & 1); i++) {
            struct fr_explain_answer one =
                fr_explain(facts, fn, (enum fr_device_kind)kind, options->sizes[i]);
            fr_json_open(&out, NULL, '{');
            fr_json_number(&out, "bytes", (int64_t)options->sizes[i]);
            fr_json_text(&out, "memory", fr_device_kind_name((enum fr_device_kind)kind));
            fr_json_text(&out, "path", one.path);
            fr_json_text(&out, "by", *one.how ? one.how : NULL);
            fr_json_text(&out, "reason", one.reason);
            fr_json_close(&out, '}');
        }
    }
    fr_json_close(&out, ']');
    fr_json_close(&out, '}');
}

static int explain_reports(const struct options *options, int argc, char **argv)
{
    argv[--optind] = (char *)(uintptr_t)options->report; // the place of an option that was read
    return fr_explain_reports(argc - optind, argv + optind, options->place) ? EXIT_SUCCESS
                                                                            : EXIT_FAILURE;
}

int fabrail_explain(int argc, char **argv)
{
    struct options options = {
        .function = "MPI_Send", .place = FR_PLACE_COUNT, .gpu_aware = FR_AUTO};
    struct fr_explain_facts facts;
    const char *source;
    fr_abi_rows_fill();
    for (int code = 0; (code = fr_tool_next(argc, argv)) != FR_TOOL_END;) {
        const char *what = "";
        if (code == FR_TOOL_HELP || code == FR_TOOL_BAD)
            return fr_tool_status(code);
        if (!take(&options, code, &what))
            return fr_tool_refuse_value(code, what);
    }
    if (options.report != NULL && options.json)
        return fr_tool_misuse("--json is for answers: the files of --report are JSON already");
    if (options.report != NULL)
        return explain_reports(&options, argc, argv);
    if (options.type.text != NULL && options.size_count > 0)
        return fr_tool_misuse("--type says how many bytes there are, so --bytes cannot");
    if (optind < argc)
        return fr_tool_misuse("\"%s\" is one argument too many", argv[optind]);
    set_defaults(&options);
    find_facts(&options, &facts, &source);
    enum fr_fn fn = fr_explain_function(options.function);
    if (options.json)
        write_answers(&options, &facts, fn);
    else
        print_answers(&options, &facts, source, fn);
    return EXIT_SUCCESS;
}
