// SPDX-License-Identifier: BSD-3-Clause
// Operations by CPUs: one thread plays all ranks and goes on with them in random order, so nothing
// may wait for another rank. Vectors are in host and in device memory, shorter and longer than a
// chunk, and results may be stored over them. Slices of exchanges have any length, and none may be
// longer than its room. A rank that fails is found out by those that come later. Nothing is left in
// /dev/shm, however it ends, and little room there is enough.
#include "config.h"

#include "fabrail/coll/host_exchange.h"
#include "fabrail/coll/host_reduce.h"

#include "ipc_pair.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <time.h>

enum { RANKS = 3, GUARD = 64, CHUNK = 512 * 1024 };

static struct fr_coll_team teams[RANKS];
static struct fr_job_process processes[RANKS];

// A reduction of all ranks.
struct operation {
    enum fr_reduce_row row;
    enum fr_coll_form form;
    size_t elements; // a multiple of RANKS for a scattered result
    bool in_place;
    bool on_device; // rank 1 has device memory
    bool is_short;
    struct fr_coll_reduce reduces[RANKS];
    struct fr_coll_host_reduce hosts[RANKS];
    unsigned char *vectors[RANKS]; // as they were
    struct driver_memory memory[RANKS][2];
};

static void make_teams(void)
{
    static uint64_t number;
    for (int rank = 0; rank < RANKS; rank++) {
        processes[rank] = *fr_ipc_self();
        teams[rank] = (struct fr_coll_team){.rank = rank,
                                            .size = RANKS,
                                            .name = (uint64_t)getpid() << 16 | (number & 0xffff),
                                            .processes = processes};
    }
    number++;
}

static size_t bytes_of(const struct operation *op)
{
    return op->elements * fr_device_reduce_element_bytes(op->row);
}

static bool receives(const struct operation *op, int rank)
{
    return op->form == FR_COLL_TO_ROOT          ? rank == 1
           : op->form == FR_COLL_EXCLUSIVE_SCAN ? rank > 0
                                                : true;
}

static struct fr_device_range range_of(const struct driver_memory *memory)
{
    struct fr_device_range range;
    CHECK(fr_device_query(memory->address, &range) == FR_OK);
    return range;
}

// Small values, so that places and ties matter as well.
static void fill(unsigned char *bytes, size_t count, int rank)
{
    for (size_t i = 0; i < count; i++)
        bytes[i] = (unsigned char)(i % 4 == 0 ? (i * 7 + (size_t)rank * 3) % 5 : 0);
}

static void begin_rank(struct operation *op, int rank, uint64_t number)
{
    enum fr_device_kind kind = op->on_device && rank == 1 ? FR_KIND_MALLOC : FR_KIND_PINNED;
    const size_t bytes = bytes_of(op);
    const bool scattered = op->form == FR_COLL_SCATTERED;
    op->reduces[rank] = (struct fr_coll_reduce){
        .call = "a test",
        .form = op->form,
        .row = op->row,
        .root = op->form == FR_COLL_TO_ROOT,
        .elements = op->elements,
        .own_first = scattered ? op->elements / RANKS * (size_t)rank : 0,
        .own_elements = scattered ? op->elements / RANKS : op->elements,
    };
    op->vectors[rank] = malloc(bytes);
    fill(op->vectors[rank], bytes, rank);
    for (int i = 0; i < 2; i++) {
        CHECK(driver_allocate(kind, 0, bytes + 2 * GUARD, &op->memory[rank][i]));
        CU(cuMemsetD8_v2((CUdeviceptr)(uintptr_t)op->memory[rank][i].address, 0xa5,
                         bytes + 2 * GUARD));
    }
    const struct driver_memory *vector = &op->memory[rank][0];
    const struct driver_memory *result = op->in_place ? vector : &op->memory[rank][1];
    CU(cuMemcpyHtoD_v2((CUdeviceptr)(uintptr_t)vector->address + GUARD, op->vectors[rank], bytes));
    op->hosts[rank] = (struct fr_coll_host_reduce){
        .reduce = &op->reduces[rank],
        .vector = (uintptr_t)vector->address + GUARD,
        .result = (uintptr_t)result->address + GUARD,
        .receives = receives(op, rank),
        .host = {.call = "a test",
                 .number = number,
                 .is_short = op->is_short,
                 .send_range = range_of(vector),
                 .receive_range = range_of(result)},
    };
    fr_coll_host_reduce_prepare(&teams[rank], &op->hosts[rank]);
}

static bool is_gap(enum fr_reduce_row row, size_t at)
{
    switch (fr_device_reduce_gap(row)) {
    case FR_REDUCE_GAP_BEHIND:
        return at % 16 >= 12;
    case FR_REDUCE_GAP_WITHIN:
        return at % 8 == 2 || at % 8 == 3;
    default:
        return false;
    }
}

// Checks the bytes of a rank's result, and those around it.
static void check_rank(const struct operation *op, int rank)
{
    const struct fr_coll_reduce *reduce = &op->reduces[rank];
    const size_t each = fr_device_reduce_element_bytes(op->row), all = bytes_of(op);
    const size_t first = reduce->own_first * each, count = reduce->own_elements;
    int from = 0, end = op->form == FR_COLL_SCAN             ? rank + 1
                        : op->form == FR_COLL_EXCLUSIVE_SCAN ? rank
                                                             : RANKS;
    unsigned char *wanted = malloc(all + 2 * GUARD), *found = malloc(all + 2 * GUARD);
    unsigned char *sum = malloc(all);
    memset(wanted, 0xa5, all + 2 * GUARD);
    if (op->in_place)
        memcpy(wanted + GUARD, op->vectors[rank], all);
    if (receives(op, rank)) {
        memcpy(sum, op->vectors[from] + first, count * each);
        for (int other = from + 1; other < end; other++)
            fr_device_reduce_on_host(op->row, sum, op->vectors[other] + first, count);
        for (size_t i = 0; i < count * each; i++) {
            if (!is_gap(op->row, i))
                wanted[GUARD + i] = sum[i];
        }
    }
    CU(cuMemcpyDtoH_v2(found, (CUdeviceptr)(op->hosts[rank].result - GUARD), all + 2 * GUARD));
    CHECK(memcmp(found, wanted, all + 2 * GUARD) == 0,
          "row %d, form %d, %zu elements, in place %d, rank %d", (int)op->row, (int)op->form,
          op->elements, op->in_place, rank);
    free(wanted);
    free(found);
    free(sum);
}

static void end(struct operation *op)
{
    for (int rank = 0; rank < RANKS; rank++) {
        struct fr_job_shm shm;
        const struct fr_job_secret secret = op->hosts[rank].host.secret;
        fr_coll_host_end(&teams[rank], &op->hosts[rank].host);
        CHECK(!op->hosts[rank].host.chunks ||
                  fr_job_shm_map(&secret, false, 4096, &shm) == FR_ERR_NOT_FOUND,
              "a name is left");
        free(op->vectors[rank]);
        driver_free(&op->memory[rank][0]);
        driver_free(&op->memory[rank][1]);
    }
}

// Goes on with the ranks in random order until those that may end have ended. Returns the last
// status that is not FR_OK.
static enum fr_status run(struct operation *op, bool (*ends)(int rank))
{
    static uint64_t random = 1;
    bool over[RANKS] = {false};
    enum fr_status result = FR_OK;
    const time_t began = time(NULL);
    for (int left = RANKS; left > 0 && time(NULL) < began + 60;) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        int rank = (int)(random >> 33) % RANKS;
        if (over[rank] || (ends && !ends(rank)))
            continue;
        enum fr_status status =
            fr_coll_host_progress(&teams[rank], &op->hosts[rank].host, &over[rank]);
        result = status == FR_OK ? result : status;
        left = 0;
        for (int i = 0; i < RANKS; i++)
            left += !over[i] && (!ends || ends(i));
    }
    for (int rank = 0; rank < RANKS; rank++)
        CHECK(over[rank] || (ends && !ends(rank)), "rank %d does not end", rank);
    return result;
}

static void reduce(struct operation op)
{
    static uint64_t number;
    for (int rank = 0; rank < RANKS; rank++)
        begin_rank(&op, rank, number);
    number++;
    enum fr_status status = run(&op, NULL);
    CHECK(status == FR_OK, "%s", fr_core_status_text(status));
    size_t combined = 0;
    for (int rank = 0; rank < RANKS; rank++) {
        check_rank(&op, rank);
        combined += op.hosts[rank].combined;
    }
    CHECK(op.is_short || combined == op.elements * (RANKS - 1), "%zu pairs of %zu elements",
          combined, op.elements);
    end(&op);
}

static void run_forms(void)
{
    static const enum fr_reduce_row rows[] = {FR_REDUCE_I32_MAX, FR_REDUCE_U8_SUM,
                                              FR_REDUCE_F64_I32_MAXLOC, FR_REDUCE_I16_I32_MINLOC,
                                              FR_REDUCE_C64_PROD};
    pair_begin(0);
    make_teams();
    for (size_t i = 0; i < FR_ARRAY_LENGTH(rows); i++) {
        const size_t chunk = CHUNK / fr_device_reduce_element_bytes(rows[i]);
        const size_t counts[] = {3, 1002, chunk - chunk % 3, chunk / 3 * 3 + 3, chunk / 3 * 12 + 6};
        for (size_t j = 0; j < 40; j += i == 0 ? 1 : 3) {
            reduce((struct operation){.row = rows[i],
                                      .form = (enum fr_coll_form)(j % 5),
                                      .elements = counts[j / 2 % FR_ARRAY_LENGTH(counts)],
                                      .in_place = j % 2,
                                      .on_device = j / 5 % 2,
                                      .is_short = j % 10 < 2});
        }
    }
    pair_end();
}

static bool is_others(int rank)
{
    return rank != 1;
}

static bool is_zero(int rank)
{
    return rank == 0;
}

static bool is_one(int rank)
{
    return rank == 1;
}

static bool is_later(int rank)
{
    return rank != 0;
}

static void begin_all(struct operation *op)
{
    make_teams();
    *op = (struct operation){
        .row = FR_REDUCE_I32_MAX, .form = FR_COLL_TO_ALL, .elements = CHUNK, .on_device = true};
    for (int rank = 0; rank < RANKS; rank++)
        begin_rank(op, rank, 0);
}

// A rank is gone: the others' operations end at once, whether a call waits for them or not.
static void test_gone(bool comes_first)
{
    struct operation op;
    bool over = false;
    begin_all(&op);
    if (comes_first)
        CHECK(fr_coll_host_progress(&teams[1], &op.hosts[1].host, &over) == FR_OK && !over);
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    CHECK(child > 0 && waitpid(child, NULL, 0) == child);
    processes[1].pid = (uint32_t)child;
    processes[1].cookie++;
    CHECK(run(&op, is_others) == FR_ERR_MPI);
    CHECK(teams[0].broken && teams[2].broken);
    end(&op);
}

// A rank does not come. FABRAIL_TIMEOUT runs only while a call waits.
static void test_late(void)
{
    struct operation op;
    bool over = false;
    begin_all(&op);
    for (time_t began = time(NULL); time(NULL) < began + 3; usleep(1000))
        CHECK(fr_coll_host_progress(&teams[0], &op.hosts[0].host, &over) == FR_OK && !over);
    teams[0].nonblocking_awaited = 1;
    CHECK(run(&op, is_zero) == FR_ERR_MPI && teams[0].broken);
    end(&op);
}

// A rank cannot open the memory that another has opened. Both end, and the team is broken.
static void test_shut_out(void)
{
    struct operation op;
    struct rlimit files, none;
    bool over = false;
    begin_all(&op);
    CHECK(fr_coll_host_progress(&teams[0], &op.hosts[0].host, &over) == FR_OK && !over);
    CHECK(getrlimit(RLIMIT_NOFILE, &files) == 0);
    none = (struct rlimit){.rlim_cur = 1, .rlim_max = files.rlim_max};
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    teams[1].nonblocking_awaited = 1;
    CHECK(run(&op, is_one) == FR_ERR_MPI && teams[1].broken);
    CHECK(setrlimit(RLIMIT_NOFILE, &files) == 0);
    CHECK(run(&op, is_zero) == FR_ERR_MPI && teams[0].broken);
    end(&op);
}

static enum fr_status fail_to_load(const struct fr_coll_team *team, const struct fr_coll_host *host,
                                   uint64_t chunk, void *to)
{
    (void)team;
    (void)host;
    (void)chunk;
    (void)to;
    return FR_ERR_DEVICE;
}

static int count_files(void)
{
    DIR *list = opendir("/proc/self/fd");
    int count = 0;
    while (list && readdir(list))
        count++;
    if (list)
        closedir(list);
    return count;
}

// Rank 0 fails and ends before the others come. They fail at once as well, though none waits. The
// file that it leaves to them is closed once they have come.
static void test_failed_first(bool loads)
{
    const int files = count_files();
    const struct fr_coll_host_ops ops = {.load = fail_to_load};
    struct operation op;
    begin_all(&op);
    struct fr_coll_host *host = &op.hosts[0].host;
    if (loads) {
        host->ops = &ops;
    } else {
        host->failure = FR_ERR_LIMIT;
    }
    CHECK(run(&op, is_zero) == (loads ? FR_ERR_DEVICE : FR_ERR_LIMIT));
    unsigned char page;
    void *memory = host->shm.memory;
    fr_coll_host_end(&teams[0], &op.hosts[0].host);
    CHECK((mincore(memory, 1, &page) == 0) == loads, "%s a copy that failed may use",
          loads ? "memory is given up that" : "memory is kept that not even");
    usleep(100 * 1000);
    CHECK(run(&op, is_later) == FR_ERR_DEVICE);
    for (int rank = 0; rank < RANKS; rank++)
        CHECK(!teams[rank].broken);
    op.hosts[0].host.chunks = 0; // the others tell of the name
    end(&op);
    begin_all(&op);
    CHECK(run(&op, NULL) == FR_OK);
    end(&op);
    CHECK(count_files() == files, "%d files are open, before there were %d", count_files(), files);
}

// Rank 0 cannot begin. The others fail, whether one is there first or not.
static void test_not_begun(bool comes_first)
{
    struct operation op;
    bool over = false;
    begin_all(&op);
    if (comes_first)
        CHECK(fr_coll_host_progress(&teams[1], &op.hosts[1].host, &over) == FR_OK && !over);
    fr_coll_host_fail(&teams[0], "a test", 0, op.hosts[0].host.likely_bytes, 0);
    CHECK(run(&op, is_later) == FR_ERR_DEVICE);
    for (int rank = 0; rank < RANKS; rank++)
        CHECK(!teams[rank].broken);
    op.hosts[0].host.chunks = 0; // the others tell of the name
    end(&op);
}

// An exchange of all ranks. Rank 1 has device memory.
struct swap {
    size_t bytes[RANKS][RANKS]; // that the first sends to the second
    bool spreads;               // a rank sends all others the same, and itself nothing
    int cut;                    // a rank with less room than is sent to it, or -1
    size_t likely_bytes;
    struct fr_coll_host_exchange parts[RANKS];
    struct fr_coll_slot slots[RANKS][2][RANKS];
    struct driver_memory memory[RANKS][2];
};

static unsigned char byte_of(int from, int to, size_t at)
{
    return (unsigned char)(at * 13 + at / 251 + (size_t)from * 5 + (size_t)to * 3 + 1);
}

// Lays the slices of one side out, with gaps. Returns the bytes that this takes.
static size_t lay_out(const struct swap *swap, int rank, bool sends, struct fr_coll_slot *slots)
{
    size_t end = GUARD;
    const bool as_one = sends && swap->spreads;
    for (int other = 0; other < RANKS; other++) {
        size_t bytes = sends ? swap->bytes[rank][other] : swap->bytes[other][rank];
        bool is_cut = !sends && rank == swap->cut && other == 0;
        slots[other] = (struct fr_coll_slot){.address = end, .bytes = bytes - is_cut};
        end += as_one ? 0 : bytes + GUARD;
    }
    return as_one ? end + swap->bytes[rank][(rank + 1) % RANKS] + GUARD : end;
}

static void begin_swap(struct swap *swap, int rank, uint64_t number)
{
    for (int side = 0; side < 2; side++) {
        struct driver_memory *memory = &swap->memory[rank][side];
        struct fr_coll_slot *slots = swap->slots[rank][side];
        size_t bytes = lay_out(swap, rank, side == 0, slots);
        CHECK(driver_allocate(rank == 1 ? FR_KIND_MALLOC : FR_KIND_PINNED, 0, bytes, memory));
        unsigned char *data = malloc(bytes);
        memset(data, 0xa5, bytes);
        for (int other = 0; other < RANKS && side == 0; other++) {
            for (size_t i = 0; i < slots[other].bytes; i++)
                data[slots[other].address + i] = byte_of(rank, swap->spreads ? 0 : other, i);
        }
        CU(cuMemcpyHtoD_v2((CUdeviceptr)(uintptr_t)memory->address, data, bytes));
        free(data);
        for (int other = 0; other < RANKS; other++)
            slots[other].address += (uintptr_t)memory->address;
    }
    swap->parts[rank] = (struct fr_coll_host_exchange){
        .host = {.call = "a test",
                 .number = number,
                 .send_range = range_of(&swap->memory[rank][0]),
                 .receive_range = range_of(&swap->memory[rank][1]),
                 .likely_bytes = swap->likely_bytes},
        .sends = swap->slots[rank][0],
        .receives = swap->slots[rank][1],
    };
    fr_coll_host_exchange_prepare(&teams[rank], &swap->parts[rank]);
}

static void check_swap(const struct swap *swap, int rank)
{
    struct fr_coll_slot slots[RANKS];
    size_t bytes = lay_out(swap, rank, false, slots);
    unsigned char *wanted = malloc(bytes), *found = malloc(bytes);
    memset(wanted, 0xa5, bytes);
    for (int other = 0; other < RANKS; other++) {
        for (size_t i = 0; i < slots[other].bytes; i++)
            wanted[slots[other].address + i] = byte_of(other, swap->spreads ? 0 : rank, i);
    }
    CU(cuMemcpyDtoH_v2(found, (CUdeviceptr)(uintptr_t)swap->memory[rank][1].address, bytes));
    CHECK(memcmp(found, wanted, bytes) == 0, "rank %d, spreads %d", rank, swap->spreads);
    free(wanted);
    free(found);
}

static void swap(struct swap swap, uint64_t number)
{
    bool over[RANKS] = {false};
    int failed = -1;
    const time_t began = time(NULL);
    for (int rank = 0; rank < RANKS; rank++)
        begin_swap(&swap, rank, number);
    for (unsigned step = 0; !(over[0] && over[1] && over[2]) && time(NULL) < began + 60; step++) {
        int rank = (int)((step * 2654435761u >> 20) % RANKS);
        if (over[rank])
            continue;
        enum fr_status status =
            fr_coll_host_progress(&teams[rank], &swap.parts[rank].host, &over[rank]);
        CHECK(status == FR_OK || (over[rank] && status == FR_ERR_TRUNCATE));
        failed = status == FR_OK ? failed : rank;
    }
    CHECK(failed == swap.cut && over[0] && over[1] && over[2]);
    for (int rank = 0; rank < RANKS; rank++) {
        check_swap(&swap, rank);
        CHECK(!swap.spreads ||
                  swap.parts[rank].host.elements == swap.bytes[rank][(rank + 1) % RANKS],
              "rank %d publishes its data more than once", rank);
        fr_coll_host_end(&teams[rank], &swap.parts[rank].host);
        driver_free(&swap.memory[rank][0]);
        driver_free(&swap.memory[rank][1]);
    }
}

// Rank 0 fails, and the others are to get nothing from it as far as they know. They fail as well.
static void test_failed_swap(bool begins)
{
    struct swap swap = {.likely_bytes = 4096, .cut = -1};
    bool over[RANKS] = {true};
    enum fr_status status = FR_OK;
    const time_t began = time(NULL);
    make_teams();
    for (unsigned at = RANKS; at < RANKS * RANKS; at++)
        swap.bytes[at / RANKS][at % RANKS] = 64;
    for (int rank = 0; rank < RANKS; rank++)
        begin_swap(&swap, rank, 0);
    swap.parts[0].host.failure = FR_ERR_LIMIT;
    if (begins)
        CHECK(fr_coll_host_progress(&teams[0], &swap.parts[0].host, &over[0]) == FR_ERR_LIMIT);
    else
        fr_coll_host_fail(&teams[0], "a test", 0, swap.likely_bytes, FR_COLL_EXCHANGE_WORDS);
    for (int rank = 1; rank < RANKS && time(NULL) < began + 60; rank += over[rank])
        status = fr_coll_host_progress(&teams[rank], &swap.parts[rank].host, &over[rank]);
    CHECK(over[1] && over[2] && status == FR_ERR_DEVICE, "%d", (int)status);
    for (int rank = 0; rank < RANKS; rank++) {
        fr_coll_host_end(&teams[rank], &swap.parts[rank].host);
        driver_free(&swap.memory[rank][0]);
        driver_free(&swap.memory[rank][1]);
    }
}

static void run_exchanges(void)
{
    static const size_t lengths[] = {0, 1, 4095, 4096, CHUNK, CHUNK + 1, 3 * CHUNK + 7, 64};
    const unsigned by = check_step() > 1 ? 3 : 1; // which has all of what i decides
    pair_begin(0);
    make_teams();
    for (unsigned i = 0; i < 40; i += by) {
        struct swap next = {.spreads = i % 4 == 3,
                            .likely_bytes = i % 2 ? 4 * CHUNK : 4096,
                            .cut = i % 5 == 4 ? (int)i % RANKS : -1};
        for (unsigned from = 0; from < RANKS; from++) {
            for (unsigned to = 0; to < RANKS; to++)
                next.bytes[from][to] = lengths[(i * 5 + from * 3 + (next.spreads ? 0 : to)) %
                                               FR_ARRAY_LENGTH(lengths)];
            if (next.spreads)
                next.bytes[from][from] = 0;
        }
        if (next.cut >= 0 && next.bytes[0][next.cut] == 0)
            next.cut = -1;
        swap(next, i);
    }
    pair_end();
}

static void run_failures(void)
{
    pair_begin(0);
    if (!driver_is_simulated()) // the process of a rank that is gone leaves the driver's memory
        pair_skip("lets processes end within the driver, as the simulated one allows");
    test_gone(false);
    test_gone(true);
    test_failed_first(false);
    test_failed_first(true);
    test_not_begun(false);
    test_not_begun(true);
    test_failed_swap(false);
    test_failed_swap(true);
    test_late();
    test_shut_out();
    pair_end();
}

static bool write_text(const char *path, const char *text)
{
    int file = open(path, O_WRONLY);
    bool written = file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text);
    close(file);
    return written;
}

// Gives this process a /dev/shm of its own, of 16 MiB. Returns false where that is not permitted.
static bool shrink_shm(void)
{
    char users[32], groups[32];
    snprintf(users, sizeof(users), "0 %d 1", (int)geteuid());
    snprintf(groups, sizeof(groups), "0 %d 1", (int)getegid());
    return unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0 &&
           write_text("/proc/self/setgroups", "deny") && write_text("/proc/self/uid_map", users) &&
           write_text("/proc/self/gid_map", groups) &&
           mount("none", "/dev/shm", "tmpfs", 0, "size=16m") == 0;
}

// Fills /dev/shm but for some bytes. The room comes back when the returned file is closed.
static int fill_shm(off_t spare)
{
    struct statvfs status;
    char name[] = "/dev/shm/filler-XXXXXX";
    int file = mkstemp(name);
    CHECK(file >= 0 && unlink(name) == 0 && fstatvfs(file, &status) == 0);
    CHECK(fallocate(file, 0, 0, (off_t)(status.f_bavail * status.f_frsize) - spare) == 0);
    return file;
}

// Many operations at once. Rank 0 begins all, the last one first; each other rank begins the next
// one when its last is over.
static void test_many(void)
{
    enum { OPERATIONS = 12 };
    static struct operation ops[OPERATIONS];
    bool over[OPERATIONS][RANKS] = {{false}};
    int done[RANKS] = {0};
    const time_t began = time(NULL);
    make_teams();
    for (int i = 0; i < OPERATIONS; i++) {
        ops[i] = (struct operation){
            .row = FR_REDUCE_I32_MAX, .form = FR_COLL_TO_ALL, .elements = CHUNK / 2};
        for (int rank = 0; rank < RANKS; rank++)
            begin_rank(&ops[i], rank, (uint64_t)i);
    }
    for (int i = OPERATIONS; i-- > 0;)
        CHECK(fr_coll_host_progress(&teams[0], &ops[i].hosts[0].host, &over[i][0]) == FR_OK);
    for (int left = OPERATIONS * RANKS; left > 0 && time(NULL) < began + 60;) {
        for (int step = 0; step < OPERATIONS * RANKS; step++) {
            int rank = step % RANKS;
            int i = rank == 0 ? OPERATIONS - 1 - step / RANKS : done[rank];
            if (i == OPERATIONS || over[i][rank])
                continue;
            CHECK(fr_coll_host_progress(&teams[rank], &ops[i].hosts[rank].host, &over[i][rank]) ==
                  FR_OK);
            if (!over[i][rank])
                continue;
            check_rank(&ops[i], rank);
            fr_coll_host_end(&teams[rank], &ops[i].hosts[rank].host);
            done[rank]++;
            left--;
        }
    }
    for (int rank = 0; rank < RANKS; rank++)
        CHECK(done[rank] == OPERATIONS, "rank %d has done %d", rank, done[rank]);
    for (int i = 0; i < OPERATIONS; i++)
        end(&ops[i]);
}

// There is no room at first.
static void test_full(void)
{
    struct operation op;
    bool over = false;
    begin_all(&op);
    int filler = fill_shm(0);
    for (int i = 0; i < 20; i++) {
        CHECK(fr_coll_host_progress(&teams[i % RANKS], &op.hosts[i % RANKS].host, &over) == FR_OK &&
              !over);
        usleep(1000);
    }
    close(filler);
    filler = fill_shm((off_t)256 * 1024); // for short chunks alone
    CHECK(run(&op, NULL) == FR_OK);
    for (int rank = 0; rank < RANKS; rank++)
        check_rank(&op, rank);
    end(&op);
    close(filler);
}

// A process that fails to claim room leaves the name to one that has opened the memory.
static void test_name(void)
{
    struct fr_job_secret secret;
    struct fr_job_shm first, second;
    CHECK(fr_job_secret_draw(&secret) == FR_OK);
    CHECK(fr_job_shm_open(&secret, 65536, 4096, false, &first) == FR_OK);
    int filler = fill_shm(0);
    CHECK(fr_job_shm_open(&secret, 65536, 65536, false, &second) == FR_ERR_NO_MEMORY);
    CHECK(fr_job_shm_is_named(&first));
    fr_job_shm_close(&first);
    CHECK(fr_job_shm_open(&secret, 65536, 65536, false, &second) == FR_ERR_NO_MEMORY);
    CHECK(fr_job_shm_map(&secret, false, 65536, &second) == FR_ERR_NOT_FOUND, "a name is left");
    close(filler);
}

static void run_room(void)
{
    if (!shrink_shm())
        pair_skip("no /dev/shm of its own is permitted");
    pair_begin(0);
    test_name();
    test_full();
    test_many();
    pair_end();
}

static const struct process_case cases[] = {
    {.name = "forms", .count = 1, .run = run_forms},
    {.name = "exchanges", .count = 1, .run = run_exchanges},
    {.name = "failures", .count = 1, .run = run_failures, .common = {"FABRAIL_TIMEOUT=1"}},
    {.name = "room", .count = 1, .run = run_room},
    {.name = NULL},
};

int main(int count, char **arguments)
{
    return process_main(cases, count, arguments);
}
