// SPDX-License-Identifier: BSD-3-Clause
// Moves data between two hosts of the rig by module rail alone, and says how much each rail moved.
// The processes find each other through files in a folder.
//
//   move serve FOLDER BYTES               owns memory, until it is told to end
//   move read FOLDER BYTES [OPTION...]    reads that memory, checks every byte, and tells it to end
//     --times=N          reads it N times (1), each checked
//     --window=N         as N reads at once (1)
//     --write            writes it in place of reading; the owner checks
//     --at=BYTES,COMMAND runs COMMAND when so much has arrived
//     --cut=RAIL,BYTES,MS  takes the link of a rail down when so much has arrived, up again after
//     MS,
//                          and ends when bytes have come by it again
//     --expect=error     that the last transfer fails is right, that it succeeds is wrong
//
// Prints a line a rail, "rail INDEX NAME bytes BYTES share PERCENT again N errors N", and at the
// end "moved BYTES in SECONDS s: GBYTES GB/s, RATE Gbit/s, CPU SECONDS s".
#include "config.h"

#include "fabrail/rail.h"

#include "../unit/check.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { WINDOW_MAX = 64, PATIENCE_S = 120, NAP_US = 200 };

static const char *folder;
static size_t bytes;
static unsigned char *memory;

static struct {
    unsigned times, window;
    bool write, expect_error;
    size_t at;
    const char *command;
    bool cuts;
    unsigned cut_rail, back_ms;
} options = {.times = 1, .window = 1};

// A rail whose link is cut and comes back, and when that had which effect.
static struct {
    enum { WHOLE, CUT, AGAIN, UP, BACK } state;
    double cut, again, up, back;
    uint64_t bytes; // that the rail had moved when its link came back
} loss;

static double seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static double cpu_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

static void say(const char *name, const void *data, size_t length)
{
    char path[4096], temporary[4096];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    snprintf(temporary, sizeof(temporary), "%s/%s.new", folder, name);
    FILE *file = fopen(temporary, "wb");
    bool good = file != NULL && fwrite(data, 1, length, file) == length;
    good = file != NULL && fclose(file) == 0 && good && rename(temporary, path) == 0;
    CHECK(good, "%s: %s", path, strerror(errno));
}

// Returns the length, 0 while there is nothing.
static size_t hear(const char *name, void *data, size_t room)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return 0;
    size_t length = fread(data, 1, room, file);
    fclose(file);
    return length;
}

static size_t wait_to_hear(struct fr_rails *rails, const char *name, void *data, size_t room)
{
    double until = seconds() + PATIENCE_S;
    size_t length = 0;
    while ((length = hear(name, data, room)) == 0 && seconds() < until) {
        fr_rail_poll(rails);
        usleep(1000);
    }
    CHECK(length > 0, "nothing heard of %s", name);
    return length;
}

static void finish(struct fr_rails *rails, struct fr_rail_region *region)
{
    fr_rail_release(rails, region);
    fr_rail_close(rails);
}

// Ends the process if there are no rails.
static struct fr_rails *open_rails(unsigned rank)
{
    struct fr_rails *rails = NULL;
    struct fr_rail_options wish = fr_rail_options();
    wish.rank = rank;
    enum fr_status status = fr_rail_open(&wish, &rails);
    if (status == FR_OK)
        return rails;
    fprintf(stderr, "skipped: no rails: %s\n", fr_core_status_text(status));
    exit(CHECK_SKIP);
}

static struct fr_rail_region *register_memory(struct fr_rails *rails)
{
    struct fr_rail_region *region = NULL;
    struct fr_rail_memory what = {.address = memory, .bytes = bytes, .id = 1};
    enum fr_status status = fr_rail_register(rails, &what, &region);
    CHECK(status == FR_OK, "%s", fr_core_status_text(status));
    if (status != FR_OK)
        exit(CHECK_FAIL);
    return region;
}

static void meet(struct fr_rails *rails, const char *own, const char *other, unsigned peer)
{
    unsigned char address[FR_RAIL_ADDRESS_MAX];
    say(own, address, fr_rail_address(rails, address));
    size_t length = wait_to_hear(rails, other, address, sizeof(address));
    enum fr_status status = fr_rail_peer_add(rails, peer, address, length);
    CHECK(status == FR_OK, "%s", fr_core_status_text(status));
}

// The reader's last word says with what the memory is to be filled.
static int serve(void)
{
    unsigned char key[FR_RAIL_KEY_MAX];
    uint64_t seed = 0;
    struct fr_rails *rails = open_rails(1);
    check_fill(memory, bytes, 1);
    struct fr_rail_region *region = register_memory(rails);
    meet(rails, "owner", "reader", 0);
    say("key", key, fr_rail_describe(region, 0, bytes, key));
    double until = seconds() + PATIENCE_S;
    // The room need not be polled where the NIC answers by itself; here that is a thread at most.
    for (unsigned n = 0; n % 64 != 0 || hear("end", &seed, sizeof(seed)) == 0; n++) {
        if (!fr_rail_poll(rails))
            usleep(NAP_US);
        if (seconds() > until)
            break;
    }
    CHECK(seed != 0, "the reader has not ended");
    CHECK(check_first_difference(memory, bytes, seed) == bytes, "what was written");
    finish(rails, region);
    return check_result();
}

static uint64_t moved_bytes(const struct fr_rails *rails)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < fr_rail_count(rails); i++) {
        struct fr_rail_counters counters;
        fr_rail_counters(rails, i, &counters);
        sum += counters.read_bytes + counters.written_bytes;
    }
    return sum;
}

static void run_command(const struct fr_rails *rails)
{
    if (options.command == NULL || moved_bytes(rails) < options.at)
        return;
    CHECK(system(options.command) == 0, "%s", options.command);
    options.command = NULL;
}

// Sets the link of a rail of this host up or down, at once.
static void set_link(const char *name, bool up)
{
    struct ifreq request = {.ifr_flags = 0};
    int handle = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    strncpy(request.ifr_name, name, sizeof(request.ifr_name) - 1);
    bool good = ioctl(handle, SIOCGIFFLAGS, &request) == 0;
    request.ifr_flags = (short)(up ? request.ifr_flags | IFF_UP : request.ifr_flags & ~IFF_UP);
    good = good && ioctl(handle, SIOCSIFFLAGS, &request) == 0;
    CHECK(good, "%s: %s", name, strerror(errno));
    close(handle);
}

static uint64_t again_bytes(const struct fr_rails *rails)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < fr_rail_count(rails); i++) {
        struct fr_rail_counters counters;
        fr_rail_counters(rails, i, &counters);
        sum += counters.again_bytes;
    }
    return sum;
}

// Cuts the link of the rail when so much has been moved, and looks what becomes of it.
static void watch_loss(const struct fr_rails *rails)
{
    struct fr_rail_counters own;
    if (!options.cuts || loss.state == BACK)
        return;
    fr_rail_counters(rails, options.cut_rail, &own);
    uint64_t moved = own.read_bytes + own.written_bytes;
    if (loss.state == WHOLE && moved_bytes(rails) >= options.at) {
        set_link(own.name, false);
        loss.cut = seconds();
        loss.state = CUT;
    } else if (loss.state == CUT && again_bytes(rails) > 0) {
        loss.again = seconds();
        loss.state = AGAIN;
    } else if (loss.state == AGAIN && seconds() - loss.cut > options.back_ms * 1e-3) {
        set_link(own.name, true);
        loss.up = seconds();
        loss.bytes = moved;
        loss.state = UP;
    } else if (loss.state == UP && moved > loss.bytes) {
        loss.back = seconds();
        loss.state = BACK;
    }
}

static enum fr_status wait_for(struct fr_rails *rails, struct fr_rail_transfer *transfer)
{
    enum fr_status status = FR_OK;
    double until = seconds() + PATIENCE_S;
    while (!fr_rail_test(transfer, &status)) {
        if (!fr_rail_poll(rails)) // rates are low, and other tests want the cores
            usleep(NAP_US);
        run_command(rails);
        watch_loss(rails);
        if (seconds() > until) {
            CHECK(false, "no end within %d s", PATIENCE_S);
            _exit(CHECK_FAIL);
        }
    }
    fr_rail_finish(transfer);
    return status;
}

static enum fr_status move_once(struct fr_rails *rails, struct fr_rail_region *region,
                                const unsigned char *key, size_t key_bytes)
{
    struct fr_rail_transfer *transfers[WINDOW_MAX];
    enum fr_status worst = FR_OK;
    for (unsigned i = 0; i < options.window; i++) {
        size_t from = bytes / options.window * i;
        size_t to = i + 1 < options.window ? bytes / options.window * (i + 1) : bytes;
        enum fr_status status = options.write
                                    ? fr_rail_write(rails, 1, key, key_bytes, from, region, from,
                                                    to - from, &transfers[i])
                                    : fr_rail_read(rails, 1, key, key_bytes, from, region, from,
                                                   to - from, &transfers[i]);
        CHECK(status == FR_OK, "%s", fr_core_status_text(status));
        if (status != FR_OK)
            exit(CHECK_FAIL);
    }
    for (unsigned i = 0; i < options.window; i++) {
        enum fr_status status = wait_for(rails, transfers[i]);
        worst = status != FR_OK ? status : worst;
    }
    return worst;
}

static void print_rails(const struct fr_rails *rails)
{
    uint64_t all = moved_bytes(rails);
    for (unsigned i = 0; i < fr_rail_count(rails); i++) {
        struct fr_rail_counters counters;
        fr_rail_counters(rails, i, &counters);
        uint64_t own = counters.read_bytes + counters.written_bytes;
        printf("rail %u %s bytes %llu share %.1f again %llu errors %llu busy %.3f s\n", i,
               counters.name, (unsigned long long)own,
               all > 0 ? (double)own * 100 / (double)all : 0, (unsigned long long)counters.again,
               (unsigned long long)counters.errors, (double)counters.busy_ns * 1e-9);
    }
}

static int move(void)
{
    unsigned char key[FR_RAIL_KEY_MAX];
    uint64_t seed = options.write ? 2 : 1;
    double took = 0, cpu = 0;
    enum fr_status status = FR_OK;
    struct fr_rails *rails = open_rails(0);
    struct fr_rail_region *region = register_memory(rails);
    meet(rails, "reader", "owner", 1);
    size_t key_bytes = wait_to_hear(rails, "key", key, sizeof(key));
    for (unsigned i = 0; status == FR_OK && i < options.times && loss.state != BACK; i++) {
        if (options.write)
            check_fill(memory, bytes, seed);
        else
            memset(memory, 0, bytes);
        double began = seconds(), cpu_began = cpu_seconds();
        status = move_once(rails, region, key, key_bytes);
        took += seconds() - began;
        cpu += cpu_seconds() - cpu_began;
        CHECK(status != FR_OK || check_first_difference(memory, bytes, seed) == bytes,
              "what was read is not what is there");
    }
    CHECK((status == FR_OK) != options.expect_error, "%s", fr_core_status_text(status));
    print_rails(rails);
    if (loss.state == BACK)
        printf("cut of rail %u: sent again after %.1f ms, %llu bytes, back after %.1f ms\n",
               options.cut_rail, (loss.again - loss.cut) * 1e3,
               (unsigned long long)again_bytes(rails), (loss.back - loss.up) * 1e3);
    CHECK(!options.cuts || loss.state == BACK, "the rail has not come back");
    double all = (double)moved_bytes(rails);
    printf("moved %.0f in %.3f s: %.3f GB/s, %.3f Gbit/s, CPU %.3f s\n", all, took,
           all / took * 1e-9, all * 8 / took * 1e-9, cpu);
    say("end", &seed, sizeof(seed));
    finish(rails, region);
    return check_result();
}

static bool take_option(const char *argument)
{
    size_t at = 0;
    char number[32];
    if (sscanf(argument, "--times=%u", &options.times) == 1)
        return options.times > 0;
    if (sscanf(argument, "--window=%u", &options.window) == 1)
        return options.window > 0 && options.window <= WINDOW_MAX;
    if (strcmp(argument, "--write") == 0)
        return options.write = true;
    if (strcmp(argument, "--expect=error") == 0)
        return options.expect_error = true;
    if (sscanf(argument, "--cut=%u,%31[^,],%u", &options.cut_rail, number, &options.back_ms) == 3) {
        options.cuts = fr_core_bytes_parse(number, &at);
        options.at = at;
        return options.cuts;
    }
    if (sscanf(argument, "--at=%31[^,],", number) != 1 || !fr_core_bytes_parse(number, &at))
        return false;
    options.at = at;
    options.command = strchr(argument, ',');
    return options.command != NULL && *++options.command != '\0';
}

int main(int count, char **arguments)
{
    bool good = count >= 4 && fr_core_bytes_parse(arguments[3], &bytes) && bytes > 0;
    for (int i = 4; good && i < count; i++)
        good = take_option(arguments[i]);
    if (!good) {
        fprintf(stderr, "usage: %s serve|read FOLDER BYTES [OPTION...]; see its source\n",
                arguments[0]);
        return 2;
    }
    folder = arguments[2];
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE,
                  -1, 0);
    if (memory == MAP_FAILED) {
        perror("mmap");
        return CHECK_FAIL;
    }
    return strcmp(arguments[1], "serve") == 0 ? serve() : move();
}
