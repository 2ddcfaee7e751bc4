// SPDX-License-Identifier: BSD-3-Clause
// The rails of a position: opening, polling, waiting, counters, closing.
#include "config.h"

#include "fabrail/rail.h"

#include "fabrail/core/time.h"
#include "rail/steps_int.h"

#include <dirent.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PAUSE_NS = 50000000 }; // a longer pause between two polls is time in which nobody waited

// Returns the time after which a silent link is lost. When half of the time-out is over, silence no
// longer counts as that of a busy peer.
static uint64_t stall_of(const struct fr_rail_options *options)
{
    uint64_t quarter = options->timeout_ns / 4;
    return quarter > 0 && quarter < options->stall_ns ? quarter : options->stall_ns;
}

static bool make_stripes(struct fr_rails *rails)
{
    size_t count = 2 * (size_t)FR_RAIL_DEPTH * rails->count;
    rails->stripes = calloc(count, sizeof(*rails->stripes));
    for (size_t i = 0; rails->stripes != NULL && i < count; i++)
        fr_list_push_back(&rails->spare, &rails->stripes[i].entry);
    return rails->stripes != NULL;
}

static struct fr_rails *make_rails(const struct fr_rail_options *options)
{
    struct fr_rails *rails = calloc(1, sizeof(*rails));
    if (rails == NULL)
        return NULL;
    rails->options = *options;
    rails->options.stall_ns = stall_of(options);
    rails->lock = (struct fr_lock)FR_LOCK_INIT;
    struct fr_list *lists[] = {&rails->regions, &rails->submitted, &rails->unused, &rails->active,
                               &rails->waiting, &rails->flushing,  &rails->spare};
    for (size_t i = 0; i < FR_ARRAY_LENGTH(lists); i++)
        fr_list_init(lists[i]);
    atomic_flag_clear(&rails->polling);
    rails->turn = options->rank;
    return rails;
}

// Opens a rail on each NIC. A NIC that cannot be opened is left out.
static void open_each(struct fr_rails *rails, struct fi_info *infos[], unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        struct fr_rail *rail = &rails->rails[rails->count];
        *rail = (struct fr_rail){.rails = rails, .index = rails->count};
        if (fr_rail_endpoint_open(rail, infos[i]) == FR_OK)
            rails->count++;
        else
            *rail = (struct fr_rail){0};
    }
    rails->address.count = rails->count;
}

enum fr_status fr_rail_open(const struct fr_rail_options *options, struct fr_rails **opened)
{
    struct fi_info *infos[FR_RAILS_MAX];
    unsigned count = 0;
    const struct fr_rail_library *library = fr_rail_library();
    if (library == NULL)
        return FR_ERR_NOT_FOUND;
    struct fr_rails *rails = make_rails(options);
    if (rails == NULL)
        return FR_ERR_NO_MEMORY;
    rails->library = library;
    enum fr_status status = fr_rail_discover(library, options, infos, &count);
    open_each(rails, infos, count);
    if (status == FR_OK && rails->count == 0)
        status = FR_ERR_NOT_FOUND;
    if (status == FR_OK && !make_stripes(rails))
        status = FR_ERR_NO_MEMORY;
    if (status != FR_OK) {
        fr_rail_close(rails);
        return status;
    }
    fr_rail_flush_open(rails);
    rails->options.nics = rails->options.provider = NULL; // they stay the caller's
    fr_info("%u rails of %s for %s%s%s", rails->count, rails->address.rails[0].provider,
            options->gpu != NULL ? "GPU " : "host memory", options->gpu != NULL ? options->gpu : "",
            fr_rail_takes(rails, FR_RAIL_CUDA) ? ", whose memory they reach" : "");
    *opened = rails;
    return FR_OK;
}

// The initiators are closed first, so that nothing on its way outlives the registration of its
// memory.
void fr_rail_close(struct fr_rails *rails)
{
    if (rails == NULL)
        return;
    if (!fr_list_is_empty(&rails->active) || !fr_list_is_empty(&rails->waiting) ||
        !fr_list_is_empty(&rails->flushing))
        fr_error("rails are closed while transfers are under way");
    for (unsigned i = 0; i < rails->count; i++)
        fr_rail_endpoint_stop(&rails->rails[i]);
    fr_rail_regions_free(rails);
    for (unsigned i = 0; i < rails->count; i++)
        fr_rail_flush_close(&rails->rails[i]);
    for (unsigned i = rails->count; i > 0; i--)
        fr_rail_endpoint_close(&rails->rails[i - 1]);
    fr_rail_peers_free(rails);
    fr_rail_transfer_free_all(rails);
    free(rails->stripes);
    free(rails);
}

unsigned fr_rail_count(const struct fr_rails *rails)
{
    return rails->count;
}

bool fr_rail_writes(const struct fr_rails *rails)
{
    for (unsigned i = 0; i < rails->count; i++) {
        if (!rails->rails[i].writes)
            return false;
    }
    return true;
}

bool fr_rail_emulates_reads(const struct fr_rails *rails)
{
    for (unsigned i = 0; i < rails->count; i++) {
        if (rails->rails[i].emulates_reads)
            return true;
    }
    return false;
}

bool fr_rail_emulates_writes(const struct fr_rails *rails)
{
    for (unsigned i = 0; i < rails->count; i++) {
        if (rails->rails[i].emulates_writes)
            return true;
    }
    return false;
}

bool fr_rail_needs_polls(const struct fr_rails *rails)
{
    for (unsigned i = 0; i < rails->count; i++) {
        if (rails->rails[i].manual)
            return true;
    }
    return false;
}

static bool has_entries(const char *folder)
{
    unsigned count = 0;
    DIR *open = opendir(folder);
    const struct dirent *entry;
    while (open != NULL && (entry = readdir(open)) != NULL)
        count += entry->d_name[0] != '.';
    if (open != NULL)
        closedir(open);
    return count > 0;
}

// Providers over sockets know nothing of the hardware, so Linux is asked.
bool fr_rail_has_better(const struct fr_rails *rails)
{
    for (unsigned i = 0; i < rails->count; i++) {
        if (rails->rails[i].info->nic != NULL)
            return false;
    }
    return has_entries("/sys/class/infiniband") || has_entries("/sys/class/cxi");
}

size_t fr_rail_address(const struct fr_rails *rails, unsigned char address[FR_RAIL_ADDRESS_MAX])
{
    return fr_rail_wire_write_address(&rails->address, address);
}

// Sets the clock. A pause between two polls counts up to a bound, since nobody waited then.
static void tick(struct fr_rails *rails)
{
    uint64_t real = fr_time_ns();
    uint64_t passed = rails->real_ns == 0 ? 0 : real - rails->real_ns;
    rails->real_ns = real;
    rails->now_ns += passed < PAUSE_NS ? passed : PAUSE_NS;
    for (unsigned i = 0; i < rails->count; i++)
        fr_rail_load_unseen(&rails->rails[i].load, passed, rails->now_ns);
}

bool fr_rail_poll(struct fr_rails *rails)
{
    bool any = false;
    if (atomic_flag_test_and_set_explicit(&rails->polling, memory_order_acquire))
        return false;
    tick(rails);
    for (unsigned i = 0; i < rails->count; i++)
        any = fr_rail_drain(&rails->rails[i]) || any;
    any = fr_rail_transfer_admit(rails) || any;
    fr_rail_check_links(rails);
    any = fr_rail_post(rails) || any;
    any = fr_rail_flush_post(rails) || any;
    atomic_flag_clear_explicit(&rails->polling, memory_order_release);
    return any;
}

// Lists the descriptors that tell. Returns whether one of them has something to do already.
static bool list_waits(struct fr_rails *rails, struct pollfd *fds, nfds_t *count)
{
    bool any = false;
    *count = 0;
    for (unsigned i = 0; i < rails->count; i++) {
        struct fr_rail *rail = &rails->rails[i];
        if (rail->wait_fd < 0 || rail->target_cq == NULL)
            continue;
        struct fid *fid = &rail->target_cq->fid;
        any = fi_trywait(rail->fabric, &fid, 1) == -FI_EAGAIN || any;
        fds[(*count)++] = (struct pollfd){.fd = rail->wait_fd, .events = POLLIN};
    }
    return any;
}

bool fr_rail_wait(struct fr_rails *rails, long most_ns)
{
    enum { A_POLL_NS = 20000 };
    struct pollfd fds[FR_RAILS_MAX];
    struct timespec most = {.tv_sec = most_ns / 1000000000, .tv_nsec = most_ns % 1000000000};
    nfds_t count = 0;
    if (atomic_flag_test_and_set_explicit(&rails->polling, memory_order_acquire)) {
        most = (struct timespec){.tv_nsec = A_POLL_NS}; // another thread is polling
        return ppoll(NULL, 0, &most, NULL) == 0;
    }
    bool any = list_waits(rails, fds, &count);
    atomic_flag_clear_explicit(&rails->polling, memory_order_release);
    if (!any)
        (void)ppoll(fds, count, &most, NULL);
    return count > 0;
}

// Returns how long nobody need look at the rails. It is a part of the time that they need for what
// is on its way, so that the rest keeps them full. It is also no longer than it takes to fill a
// part of a socket. Otherwise a sleep would slow down a fast link, and then seem right for a slow
// one. Returns 0 where a NIC would have to wait for a CPU.
static uint64_t rest_ns(const struct fr_rails *rails)
{
    enum { PART = 16, SOCKET_PART = 32 << 10, MOST_NS = 250000 };
    uint64_t least = 0;
    for (unsigned i = 0; i < rails->count; i++) {
        const struct fr_rail *rail = &rails->rails[i];
        if (rail->load.posted == 0)
            continue;
        if (rail->info->nic != NULL)
            return 0;
        uint64_t ahead = fr_rail_load_finish_ns(&rail->load, 0) / PART;
        uint64_t filled = (uint64_t)SOCKET_PART * 1000000000 / rail->load.bytes_per_s;
        uint64_t ns = ahead < filled ? ahead : filled;
        least = least == 0 || ns < least ? ns : least;
    }
    return least < MOST_NS ? least : MOST_NS;
}

bool fr_rail_rest(struct fr_rails *rails)
{
    enum { LEAST_NS = 50000 };
    if (atomic_flag_test_and_set_explicit(&rails->polling, memory_order_acquire))
        return false;
    uint64_t ns = rest_ns(rails);
    atomic_flag_clear_explicit(&rails->polling, memory_order_release);
    if (ns < LEAST_NS)
        return false;
    fr_time_sleep((int64_t)ns);
    return true;
}

void fr_rail_counters(const struct fr_rails *rails, unsigned index,
                      struct fr_rail_counters *counters)
{
    const struct fr_rail *rail = &rails->rails[index];
    *counters = (struct fr_rail_counters){
        .read_bytes = rail->read_bytes,
        .written_bytes = rail->written_bytes,
        .device_bytes = rail->device_bytes,
        .stripes = rail->stripes_sent,
        .again = rail->again,
        .again_bytes = rail->again_bytes,
        .errors = rail->errors,
        .busy_ns = rail->load.busy_ns,
        .bytes_per_s = rail->load.bytes_per_s,
        .registered_bytes = rail->registered_bytes,
        .out = rail->out,
    };
    strncpy(counters->name, rail->name, sizeof(counters->name) - 1);
    strncpy(counters->provider, rails->address.rails[index].provider,
            sizeof(counters->provider) - 1);
}
