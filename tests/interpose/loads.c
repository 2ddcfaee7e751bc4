// SPDX-License-Identifier: BSD-3-Clause
// A program that gets the driver late, after calls of mapped host memory: loads PLUGIN HOW opens
// the plugin, which opens the driver, in another thread, which then makes no MPI call (HOW is
// thread), or preferring its own libraries' symbols (deep). Exits 1 when the device memory that it
// then sends to itself does not arrive, 77 when there is none. Before that it prints how many
// addresses were looked for among the symbols of the process, a tenth of a millisecond each, and
// whether such calls wait for the loader after a thread that loaded something has ended.
#define _GNU_SOURCE
#include "../programs/memory.h"

#include <dlfcn.h>
#include <link.h>
#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CALLS = 1000, BYTES = 1000 };

static _Atomic unsigned searches;
static const char *plugin_path;

static struct {
    __typeof__(memory_start) *start;
    __typeof__(memory_missing) *missing;
    __typeof__(memory_thread_attach) *attach;
    __typeof__(memory_new) *new;
    __typeof__(memory_write) *write;
    __typeof__(memory_read) *read;
} plugin;
static struct memory sent, received;
static const char *missing;

int dladdr(const void *address, Dl_info *info)
{
    static __typeof__(dladdr) *next;
    next = next ? next : (__typeof__(dladdr) *)dlsym(RTLD_NEXT, "dladdr");
    searches++;
    return next(address, info);
}

static bool open_plugin(int flags)
{
    void *handle = dlopen(plugin_path, RTLD_NOW | RTLD_LOCAL | flags);
    if (!handle) {
        missing = dlerror();
        return false;
    }
    plugin.start = (__typeof__(memory_start) *)dlsym(handle, "memory_start");
    plugin.missing = (__typeof__(memory_missing) *)dlsym(handle, "memory_missing");
    plugin.attach = (__typeof__(memory_thread_attach) *)dlsym(handle, "memory_thread_attach");
    plugin.new = (__typeof__(memory_new) *)dlsym(handle, "memory_new");
    plugin.write = (__typeof__(memory_write) *)dlsym(handle, "memory_write");
    plugin.read = (__typeof__(memory_read) *)dlsym(handle, "memory_read");
    return true;
}

static void get_memory(void)
{
    plugin.start(0);
    missing = plugin.missing(MEMORY_DEVICE);
    if (!missing) {
        sent = plugin.new(MEMORY_DEVICE, BYTES);
        received = plugin.new(MEMORY_DEVICE, BYTES);
    }
}

static void *get_and_stay(void *done)
{
    if (open_plugin(0))
        get_memory();
    atomic_store((atomic_bool *)done, true);
    for (;;)
        pthread_testcancel();
    return NULL;
}

static atomic_bool is_held, have_called, have_waited;

static void *load_and_end(void *unused)
{
    return dlopen("libm.so.6", RTLD_NOW) ? unused : NULL;
}

static int hold_loader(struct dl_phdr_info *info, size_t size, void *unused)
{
    enum { LONG_MS = 3000 };
    (void)info;
    (void)size;
    (void)unused;
    atomic_store(&is_held, true);
    for (int ms = 0; ms < LONG_MS && !atomic_load(&have_called); ms++)
        usleep(1000);
    atomic_store(&have_waited, !atomic_load(&have_called));
    return 1;
}

static void *hold(void *unused)
{
    dl_iterate_phdr(hold_loader, NULL);
    return unused;
}

static void send_host(char *host)
{
    for (int i = 0; i < CALLS; i++)
        MPI_Send(host, 1, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_WORLD);
}

// The calls come to an end while another thread holds the lock of the loader's list.
static void send_beside_loader(char *host)
{
    pthread_t thread;
    pthread_create(&thread, NULL, load_and_end, NULL);
    pthread_join(thread, NULL);
    send_host(host);
    pthread_create(&thread, NULL, hold, NULL);
    while (!atomic_load(&is_held))
        usleep(1000);
    send_host(host);
    atomic_store(&have_called, true);
    pthread_join(thread, NULL);
    printf("host calls %s for the loader\n", atomic_load(&have_waited) ? "wait" : "do not wait");
}

static int send_device(void)
{
    unsigned char data[BYTES], came[BYTES];
    int rank = 0;
    for (size_t i = 0; i < BYTES; i++)
        data[i] = (unsigned char)(i * 7 + 1);
    plugin.attach();
    plugin.write(&sent, 0, data, BYTES);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Sendrecv(sent.address, BYTES, MPI_BYTE, rank, 0, received.address, BYTES, MPI_BYTE, rank, 0,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    plugin.read(&received, 0, came, BYTES);
    return memcmp(data, came, BYTES) != 0;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    atomic_bool done = false;
    if (argc < 3)
        return 2;
    plugin_path = argv[1];
    MPI_Init(&argc, &argv);
    printf("%u searches at the start\n", searches);
    char *host = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    send_beside_loader(host);
    if (strcmp(argv[2], "thread") == 0) {
        pthread_create(&thread, NULL, get_and_stay, &done);
        while (!done)
            send_host(host);
    } else {
        if (open_plugin(RTLD_DEEPBIND)) {
            send_host(host);
            get_memory();
        }
    }
    int status = missing ? 77 : send_device();
    if (missing)
        printf("%s\n", missing);
    MPI_Finalize();
    fflush(stdout);
    _Exit(status);
}
