// SPDX-License-Identifier: BSD-3-Clause
// Control messages between the processes of a host: who gets in and how long the name of the shared
// memory lasts, messages between all of them, through queues that are full or that a process died
// in, areas, room that is claimed when it is needed and not before, and the end.
#include "config.h"

#include "inside/half_sent.h"
#include "job_job.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>

static bool send_number(int to, uint64_t number)
{
    return fr_job_control_send(to, FR_CONTROL_RTS, &number, sizeof(number));
}

// One process: what is refused, memory that the other one never comes to, and memory of its own.
static void run_open(void)
{
    struct fr_job_control_message message;
    CHECK(fr_job_secret_draw(&job_secret) == FR_OK);
    CHECK(fr_job_control_rank() == -1 && !fr_job_control_is_here(0) &&
          fr_job_process_of(0) == NULL);
    CHECK(!fr_job_control_reaches(0) && !send_number(0, 1) && !fr_job_control_take(&message));
    CHECK(!fr_job_control_has_remote() && fr_job_control_area(0) == NULL);
    fr_job_control_poll();

    CHECK(job_open_as(0, 2) && job_has_name());
    CHECK(job_open_as(0, 2), "twice is once");
    CHECK(fr_job_control_rank() == 0 && fr_job_control_is_here(1) && !fr_job_control_reaches(0));
    CHECK(!send_number(0, 1) && !send_number(1, 1) && !fr_job_control_take(&message));
    CHECK(fr_job_control_area(0) == NULL && fr_job_control_area(1) == NULL);
    CHECK(fr_job_process_of(1)->cookie == 101 && fr_job_process_of(2) == NULL);
    CHECK(fr_job_process_of(-1) == NULL && !fr_job_control_is_here(2) &&
          !fr_job_control_is_here(-1));
    fr_job_control_close(job_idle);
    CHECK(!job_has_name(), "closed before all had attached");
    fr_job_control_close(job_idle);

    CHECK(job_open_as(0, 1) && !job_has_name() && fr_job_control_reaches(0), "alone");
    CHECK(!send_number(1, 1) && !send_number(-1, 1));
    CHECK(send_number(0, 5) && fr_job_control_take(&message) && message.from == 0);
    CHECK(message.kind == FR_CONTROL_RTS && message.bytes == 8 && message.data[0] == 5);
    unsigned char *area = fr_job_control_area(0);
    CHECK(area != NULL && area[JOB_AREA_BYTES - 1] == 0);
    area[JOB_AREA_BYTES - 1] = 1;
    fr_job_control_close(job_idle);
    CHECK(fr_job_control_rank() == -1 && !fr_job_control_take(&message));
}

// Processes that take no part, or are on another host, are not reached.
static void run_absent(void)
{
    job_introduce();
    struct fr_job_control_job job = job_as(process_rank, process_count);
    job_processes[1].cookie = 0;
    job_processes[2].host ^= 1;
    bool opened = fr_job_control_open(&job);
    process_meet();
    CHECK(opened == (process_rank % 3 == 0), "alone on its host, or absent");
    CHECK(fr_job_control_rank() == (process_rank == 1 ? -1 : process_rank));
    for (int rank = 0; rank < 4; rank++) {
        bool mine =
            process_rank != 1 && (rank == process_rank || (rank + process_rank) == 3) && rank != 1;
        CHECK(fr_job_control_is_here(rank) == mine && fr_job_control_reaches(rank) == mine, "%d",
              rank);
        CHECK(send_number(rank, 1) == mine && (fr_job_control_area(rank) != NULL) == mine);
        CHECK(fr_job_control_is_alive(rank) == (process_rank != 1 && rank != 1));
    }
    job_close_all();
}

// In any order; the last one to attach takes the name away. A process that comes with other
// numbers, or finds memory of another size, is refused.
static void run_attach(void)
{
    job_introduce();
    for (int turn = 0; turn < process_count; turn++) {
        int rank = (turn + 2) % process_count;
        if (process_rank == rank && turn == 1) {
            struct fr_job_control_job job = job_as(rank, process_count);
            job.area_bytes *= 2;
            CHECK(!fr_job_control_open(&job), "of another size");
            fr_job_control_close(job_idle);
        }
        if (process_rank == rank)
            CHECK(job_open_as(rank, process_count));
        process_meet();
        bool last = turn == process_count - 1;
        CHECK(job_has_name() == !last);
        CHECK(fr_job_control_reaches(process_rank) == last);
        process_meet();
    }
    job_close_all();
}

// Memory of another user, or a link, that stands in its place is not used. Root is left out, since
// it can be anybody.
static void run_foreign(void)
{
    char text[64];
    CHECK(fr_job_secret_draw(&job_secret) == FR_OK);
    struct fr_job_secret name = job_name();
    job_name_text(&name, text);
    CHECK(symlink("/dev/shm/fabrail-test-elsewhere", text) == 0);
    CHECK(!job_open_as(0, 2), "a link");
    fr_job_control_close(job_idle);
    CHECK(access("/dev/shm/fabrail-test-elsewhere", F_OK) != 0);
    unlink(text);
    int file = open(text, O_RDWR | O_CREAT | O_EXCL, 0666);
    struct stat status;
    CHECK(file >= 0);
    if (geteuid() == 0 && fchown(file, 12345, 12345) == 0) {
        CHECK(!job_open_as(0, 2), "another user's");
        fr_job_control_close(job_idle);
        CHECK(fstat(file, &status) == 0 && status.st_size == 0);
    } else {
        printf("not root: another user's file was not tried\n");
    }
    close(file);
    unlink(text);
    CHECK(job_open_as(0, 2) && stat(text, &status) == 0 && (status.st_mode & 0777) == 0600);
    fr_job_control_close(job_idle);
}

struct counts {
    uint64_t next[PROCESSES_MAX]; // number that is expected from each process
    unsigned taken;
};

static void fill(uint64_t number, unsigned char *data, size_t *bytes)
{
    *bytes = sizeof(number) + number * 7 % (FR_CONTROL_BYTES - sizeof(number) + 1);
    check_fill(data, *bytes, number);
    memcpy(data, &number, sizeof(number));
}

static void take_checked(struct counts *counts)
{
    struct fr_job_control_message message;
    unsigned char expected[FR_CONTROL_BYTES];
    size_t bytes;
    uint64_t number;
    if (!fr_job_control_take(&message)) {
        sched_yield();
        return;
    }
    memcpy(&number, message.data, sizeof(number));
    fill(number, expected, &bytes);
    CHECK(message.from >= 0 && message.from < process_count && message.kind == number % 3 + 1);
    CHECK(message.bytes == bytes && memcmp(message.data, expected, bytes) == 0);
    CHECK(counts->next[message.from] == number, "%ju from %d", (uintmax_t)number, message.from);
    counts->next[message.from] = number + 1;
    counts->taken++;
}

// Everybody to everybody, in order, through queues that are full most of the time.
static void run_messages(void)
{
    enum { MESSAGES = 1500 };
    struct counts counts = {.taken = 0};
    unsigned char data[FR_CONTROL_BYTES + 1] = {0};
    job_open_all();
    CHECK(!fr_job_control_send(0, FR_CONTROL_ATS, data, sizeof(data)), "too long");
    for (uint64_t number = 0; number < MESSAGES && check_failures == 0; number++) {
        size_t bytes;
        fill(number, data, &bytes);
        for (int to = 0; to < process_count; to++) {
            while (
                !fr_job_control_send(to, (enum fr_job_control_kind)(number % 3 + 1), data, bytes))
                take_checked(&counts);
        }
    }
    while (counts.taken < (unsigned)process_count * MESSAGES && check_failures == 0)
        take_checked(&counts);
    process_meet();
    struct fr_job_control_message more;
    CHECK(!fr_job_control_take(&more));
    job_close_all();
}

enum { MEETINGS = 20000 };
static atomic_bool is_over;
static atomic_uint times_taken[MEETINGS];

static void *take_all(void *cookie)
{
    struct fr_job_control_message message;
    uint64_t number;
    (void)cookie;
    while (check_failures == 0) {
        bool over = is_over; // before the look that finds nothing
        if (fr_job_control_take(&message)) {
            memcpy(&number, message.data, sizeof(number));
            CHECK(number < MEETINGS && message.kind == FR_CONTROL_RTS);
            times_taken[number % MEETINGS]++;
        } else if (over) {
            return NULL;
        }
    }
    return NULL;
}

// Several threads take: each message comes to one of them.
static void run_takers(void)
{
    pthread_t threads[3];
    job_open_all();
    for (size_t i = 0; i < 3; i++)
        CHECK(pthread_create(&threads[i], NULL, take_all, NULL) == 0);
    for (unsigned i = 0; i < MEETINGS; i++) {
        while (!send_number(0, i) && check_failures == 0)
            sched_yield();
    }
    is_over = true;
    for (size_t i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    for (unsigned i = 0; i < MEETINGS; i++)
        CHECK(times_taken[i] == 1, "message %u taken %u times", i, times_taken[i]);
    job_close_all();
}

// A full queue, and one that a process died in while it sent: nobody waits for it.
static void run_full(void)
{
    struct fr_job_control_message message;
    job_open_all();
    for (unsigned lap = 0; lap < 3; lap++) {
        for (unsigned i = 0; i < FR_CONTROL_CELLS; i++)
            CHECK(send_number(0, i), "message %u", i);
        CHECK(!send_number(0, 1) && !send_number(0, 1));
        for (unsigned i = 0; i < FR_CONTROL_CELLS; i++)
            CHECK(fr_job_control_take(&message) && message.data[0] == i, "message %u", i);
        CHECK(!fr_job_control_take(&message));
    }
    CHECK(send_number(0, 1));
    half_send(0);
    CHECK(send_number(0, 2) && fr_job_control_take(&message) && !fr_job_control_take(&message));
    for (unsigned i = 2; i < FR_CONTROL_CELLS; i++)
        CHECK(send_number(0, i), "message %u", i);
    CHECK(!send_number(0, 1) && !fr_job_control_take(&message));
    job_close_all();
}

// The first place of this process's queue, which stands before its area, with a number in it.
static struct fr_job_control_cell *first_place(void)
{
    unsigned char *area = (unsigned char *)fr_job_control_area(process_rank);
    size_t queue_bytes = FR_CONTROL_CELLS * sizeof(struct fr_job_control_cell);
    struct fr_job_control_cell *first = (struct fr_job_control_cell *)(void *)(area - queue_bytes);
    CHECK(first->message.bytes == 8, "the queue stands before the area");
    return first;
}

// A number that another process made up is no length.
static void run_hostile(void)
{
    struct {
        struct fr_job_control_message message;
        unsigned char guard[64];
    } taken;
    job_open_all();
    CHECK(send_number(0, 1));
    first_place()->message.bytes = UINT32_MAX;
    memset(&taken, 0x5a, sizeof(taken));
    CHECK(fr_job_control_take(&taken.message) && taken.message.bytes == FR_CONTROL_BYTES);
    for (size_t i = 0; i < sizeof(taken.guard); i++)
        CHECK(taken.guard[i] == 0x5a);
    job_close_all();
}

// Messages with a made-up rank are dropped: of no process, of one that takes no part, of one on
// another host. The messages behind them are taken.
static void run_nobody(void)
{
    const int32_t made_up[] = {-1, INT32_MIN, INT32_MAX, 1, 2, 3};
    struct fr_job_control_message message;
    CHECK(fr_job_secret_draw(&job_secret) == FR_OK);
    for (size_t i = 0; i < FR_ARRAY_LENGTH(made_up); i++) {
        struct fr_job_control_job job = job_as(0, 3);
        job_processes[1].cookie = 0;
        job_processes[2].host = job_processes[0].host ^ 1;
        CHECK(!fr_job_control_open(&job) && fr_job_control_reaches(0));
        CHECK(send_number(0, 1) && send_number(0, 2));
        first_place()->message.from = made_up[i];
        CHECK(fr_job_control_take(&message) && message.from == 0 && message.data[0] == 2, "from %d",
              (int)made_up[i]);
        CHECK(!fr_job_control_take(&message));
        fr_job_control_close(job_idle);
    }
}

// A turn that a place never comes to is nothing that a sender waits for.
static void run_turn(void)
{
    enum { HUNG_S = 30 };
    job_open_all();
    CHECK(send_number(0, 1));
    atomic_store(&first_place()[1].turn, UINT64_MAX);
    alarm(HUNG_S);
    CHECK(!send_number(0, 2));
    job_close_all();
}

// The file that is mapped at an address: its inode; 0 for none that can be written to.
static unsigned long mapped_at(const void *address)
{
    char line[512];
    unsigned long found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps != NULL && fgets(line, sizeof(line), maps) != NULL) {
        unsigned long low, high, inode;
        char rights[8];
        if (sscanf(line, "%lx-%lx %7s %*s %*s %lu", &low, &high, rights, &inode) == 4 &&
            (uintptr_t)address >= low && (uintptr_t)address < high && rights[1] == '-')
            found = inode;
    }
    if (maps != NULL)
        fclose(maps);
    return found;
}

enum { COMMON_BYTES = 300007 };

// All are open on return.
static void open_with_common(void)
{
    job_introduce();
    struct fr_job_control_job job = job_as(process_rank, process_count);
    job.common_bytes = COMMON_BYTES;
    CHECK(fr_job_control_open(&job));
    process_meet();
}

static const void *share(unsigned char own[COMMON_BYTES])
{
    open_with_common();
    check_fill(own, COMMON_BYTES, 7);
    return fr_job_control_share(own);
}

// Facts that all processes know are there once, and stay when all else is closed.
static void run_common(void)
{
    static unsigned char own[COMMON_BYTES];
    unsigned long first = 0;
    const void *common = share(own);
    unsigned long inode = common != NULL ? mapped_at(common) : 0;
    CHECK(common != NULL && inode != 0 && memcmp(common, own, sizeof(own)) == 0);
    if (process_rank == 0)
        for (int rank = 1; rank < process_count; rank++)
            process_say(rank, &inode, sizeof(inode));
    else
        process_hear(0, &first, sizeof(first));
    CHECK(process_rank == 0 || inode == first, "another file");
    unsigned char *area = fr_job_control_area(process_rank);
    CHECK(area != NULL && area[JOB_AREA_BYTES - 1] == 0, "not in an area");
    job_close_all();
    CHECK(common == NULL || memcmp(common, own, sizeof(own)) == 0);
    CHECK(common == NULL || munmap((void *)(uintptr_t)common, sizeof(own)) == 0);
}

// A process that knows other facts keeps its own.
static void run_common_other(void)
{
    static unsigned char own[COMMON_BYTES];
    open_with_common();
    check_fill(own, sizeof(own), 7);
    own[sizeof(own) - 1] ^= process_rank == 1;
    const void *common = process_rank == 1 ? NULL : fr_job_control_share(own);
    process_meet();
    common = process_rank == 1 ? fr_job_control_share(own) : common;
    CHECK((common == NULL) == (process_rank == 1));
    job_close_all();
}

// Where no room can be had for it, each keeps its own.
static void run_common_refused(void)
{
    static unsigned char own[COMMON_BYTES];
    open_with_common();
    for (int file = 3; file < 256; file++) {
        if (file != process_socket(1 - process_rank))
            close(file);
    }
    CHECK(fr_job_control_share(own) == NULL);
    job_close_all();
}

// Each writes into the areas of all, which nobody had touched.
static void run_areas(void)
{
    job_open_all();
    for (int rank = 0; rank < process_count; rank++)
        CHECK(fr_job_control_area_in_use(rank) == NULL, "%d", rank);
    process_meet();
    for (int rank = 0; rank < process_count; rank++) {
        unsigned char *area = fr_job_control_area(rank);
        CHECK(area != NULL && (uintptr_t)area % 64 == 0 &&
              area == fr_job_control_area_in_use(rank));
        if (area == NULL)
            continue;
        CHECK(area[process_rank] == 0 && area[JOB_AREA_BYTES - 1 - process_rank] == 0);
        area[process_rank] = (unsigned char)(rank * 16 + process_rank + 1);
        area[JOB_AREA_BYTES - 1 - process_rank] = area[process_rank];
    }
    process_meet();
    for (int from = 0; from < process_count; from++) {
        unsigned char *area = fr_job_control_area(process_rank);
        CHECK(area[from] == process_rank * 16 + from + 1, "of %d", from);
        CHECK(area[JOB_AREA_BYTES - 1 - from] == area[from], "of %d", from);
    }
    job_close_all();
}

static bool open_shm(struct fr_job_secret *secret, char text[64], struct fr_job_shm *shm)
{
    bool opened = fr_job_secret_draw(secret) == FR_OK &&
                  fr_job_shm_open(secret, 8192, 4096, true, shm) == FR_OK;
    job_name_text(secret, text);
    return opened && access(text, F_OK) == 0;
}

// Returns whether a name goes within a minute. Other programs on this host take away what was left
// behind, too, and the one that has just locked the file does so in a moment.
static bool goes(const char *name)
{
    time_t until = time(NULL) + 60;
    while (access(name, F_OK) == 0 && time(NULL) < until)
        usleep(1000);
    return access(name, F_OK) != 0;
}

// The next process that makes a name removes what a killed process has left behind, and nothing
// that a living one has.
static void run_abandoned(void)
{
    struct fr_job_secret others, own, late;
    char others_text[64], own_text[64], late_text[64];
    struct fr_job_shm shm, own_shm, late_shm;
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        bool opened = open_shm(&others, others_text, &shm);
        (void)!write(ends[1], others_text, opened ? sizeof(others_text) : 1);
        for (;;)
            pause();
    }
    CHECK(read(ends[0], others_text, sizeof(others_text)) == (ssize_t)sizeof(others_text));
    CHECK(open_shm(&own, own_text, &own_shm));
    CHECK(access(others_text, F_OK) == 0, "of a process that lives");
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
    CHECK(open_shm(&late, late_text, &late_shm));
    CHECK(goes(others_text), "of a process that was killed");
    CHECK(access(own_text, F_OK) == 0);
    fr_job_shm_remove(&own);
    fr_job_shm_remove(&late);
    fr_job_shm_close(&own_shm);
    fr_job_shm_close(&late_shm);
    close(ends[0]);
    close(ends[1]);
}

// Blocks of the file that all have mapped, of 512 bytes; from /proc, since its name is gone.
static long blocks(void)
{
    char path[64];
    struct stat status;
    long found = -1;
    for (int file = 3; file < 256; file++) {
        char link[128] = "";
        snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
        if (readlink(path, link, sizeof(link) - 1) > 0 && strstr(link, "/dev/shm/fabrail-") &&
            fstat(file, &status) == 0)
            found = (long)status.st_blocks;
    }
    return found;
}

// Nothing is claimed but what is used.
static void run_room(void)
{
    enum { HEAD_BLOCKS = 4096 / 512 };
    struct fr_job_control_message message;
    job_open_all();
    CHECK(!fr_job_control_take(&message) && fr_job_control_area_in_use(0) == NULL);
    CHECK(blocks() == HEAD_BLOCKS, "%ld blocks before anything is used", blocks());
    process_meet();
    if (process_rank == 1)
        CHECK(send_number(2, 7));
    process_meet();
    long queue = FR_CONTROL_CELLS * (long)sizeof(struct fr_job_control_cell) / 512;
    CHECK(blocks() == HEAD_BLOCKS + queue, "%ld blocks with a queue", blocks());
    process_meet();
    if (process_rank == 2)
        CHECK(fr_job_control_take(&message) && message.from == 1 && fr_job_control_area(2) != NULL);
    process_meet();
    long area = (JOB_AREA_BYTES + 4095) / 4096 * 4096 / 512;
    CHECK(blocks() == HEAD_BLOCKS + queue + area, "%ld blocks with an area", blocks());
    job_close_all();
}

// The application closes descriptors that are not its own, and opens others.
static void run_closed(void)
{
    struct stat status;
    char path[] = "/tmp/control_host.XXXXXX";
    job_open_all();
    for (int file = 3; file < 256; file++) {
        if (file != process_socket(1 - process_rank))
            close(file);
    }
    int file = mkstemp(path);
    unlink(path);
    for (int i = 0; i < 16; i++)
        (void)!dup(file);
    CHECK(!send_number(0, 1) && fr_job_control_area(1) == NULL && fr_job_control_area(0) == NULL);
    CHECK(fstat(file, &status) == 0 && status.st_size == 0,
          "a file of the application's has grown");
    job_close_all();
    CHECK(fcntl(file, F_GETFD) >= 0);
}

// A file system that has room for the head and two queues, and for no area.
enum { TIGHT_KIB = 4 + 2 * 32 + 4 };

static void run_tight(void)
{
    struct statvfs room;
    struct fr_job_control_message message;
    CHECK(statvfs("/dev/shm", &room) == 0);
    if (room.f_blocks * room.f_frsize > TIGHT_KIB * 1024) {
        printf("skipped: no small file system could be mounted on /dev/shm\n");
        exit(CHECK_SKIP);
    }
    job_open_all();
    CHECK(fr_job_control_area(0) == NULL && fr_job_control_area_in_use(0) == NULL);
    process_meet();
    if (process_rank == 0) {
        sleep(2); // a refusal is believed for a while
        CHECK(send_number(1, 1) && send_number(0, 1) && !send_number(2, 1));
        CHECK(fr_job_control_take(&message) && fr_job_control_area(1) == NULL);
    }
    process_meet();
    CHECK(fr_job_control_take(&message) == (process_rank == 1));
    job_close_all();
}

// Runs that case in a mount namespace of its own, where that is allowed.
static int run_in_tight_room(void)
{
    char options[32];
    int status = 0;
    snprintf(options, sizeof(options), "size=%dk", TIGHT_KIB);
    pid_t child = fork();
    if (child == 0) {
        if ((unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) ||
            mount("none", "/", "none", MS_REC | MS_PRIVATE, NULL) != 0 ||
            mount("tmpfs", "/dev/shm", "tmpfs", 0, options) != 0)
            fprintf(stderr, "no small /dev/shm: %s\n", strerror(errno));
        if (process_find_program())
            execl(process_program, process_program, "tight", (char *)NULL);
        _exit(CHECK_FAIL);
    }
    return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status)
                                                                    : CHECK_FAIL;
}

static unsigned looks;

static bool busy_for_a_while(void)
{
    struct fr_job_control_message message;
    (void)fr_job_control_take(&message);
    return ++looks < 1000;
}

// A process that looks for messages after the end touches no memory of the job's. It finds those of
// the next job, whose memory lies elsewhere.
static void run_again(void)
{
    enum { HOLE_BYTES = 16 << 20 };
    for (int lap = 0; lap < 3; lap++) {
        struct fr_job_control_message message;
        job_open_all();
        CHECK(!fr_job_control_any());
        process_meet();
        for (int i = 0; i <= lap; i++)
            CHECK(send_number(1 - process_rank, (uint64_t)i));
        process_meet();
        for (int i = 0; i <= lap; i++)
            CHECK(fr_job_control_any() && fr_job_control_take(&message) && message.data[0] == i);
        CHECK(!fr_job_control_any() && !fr_job_control_take(&message));
        job_close_all();
        CHECK(!fr_job_control_any());
        CHECK(mmap(NULL, HOLE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
    }
}

// The end waits for who is alive, and not for who is not.
static void run_end(void)
{
    job_open_all();
    if (process_rank == 2)
        _exit(CHECK_PASS);
    if (process_rank == 0)
        CHECK(send_number(1, 1));
    fr_job_control_close(process_rank == 0 ? busy_for_a_while : job_idle);
    CHECK(process_rank != 0 || looks >= 1000);
}

static void run_dead(void)
{
    char word;
    job_open_all();
    if (process_rank == 1) { // lives until it has been looked at
        (void)recv(process_socket(0), &word, 1, 0);
        _exit(CHECK_PASS);
    }
    CHECK(fr_job_control_is_alive(0) && fr_job_control_is_alive(1));
    CHECK(send(process_socket(1), "x", 1, 0) == 1);
    CHECK(recv(process_socket(1), &word, 1, 0) == 0);
    while (fr_job_control_is_alive(1)) // until its parent has seen it
        sched_yield();
    fr_job_control_close(job_idle);
}

int main(int count, char **arguments)
{
    static const struct process_case cases[] = {
        {.name = "open", .count = 1, .run = run_open},
        {.name = "absent", .count = 4, .run = run_absent},
        {.name = "attach", .count = 4, .run = run_attach},
        {.name = "foreign", .count = 1, .run = run_foreign},
        {.name = "abandoned", .count = 1, .run = run_abandoned},
        {.name = "messages", .count = 3, .run = run_messages},
        {.name = "takers", .count = 1, .run = run_takers},
        {.name = "full", .count = 1, .run = run_full},
        {.name = "hostile", .count = 1, .run = run_hostile},
        {.name = "nobody", .count = 1, .run = run_nobody},
        {.name = "turn", .count = 1, .run = run_turn},
        {.name = "common", .count = 3, .run = run_common},
        {.name = "common-other", .count = 3, .run = run_common_other},
        {.name = "common-refused", .count = 2, .run = run_common_refused},
        {.name = "areas", .count = 3, .run = run_areas},
        {.name = "room", .count = 3, .run = run_room},
        {.name = "closed", .count = 2, .run = run_closed},
        {.name = "tight", .count = 3, .run = run_tight},
        {.name = "again", .count = 2, .run = run_again},
        {.name = "end", .count = 3, .run = run_end},
        {.name = "dead", .count = 2, .run = run_dead},
        {.name = NULL},
    };
    int tight = count == 1 ? run_in_tight_room() : CHECK_SKIP;
    int others = process_main(cases, count, arguments);
    return tight == CHECK_FAIL ? CHECK_FAIL : others;
}
