// SPDX-License-Identifier: BSD-3-Clause
// The offer of this machine, as `fabrail info` shows it and `fabrail explain` takes it for granted.
// Each part is found out by one function, which never fails: what cannot be had is said in words.
#ifndef FR_TOOLS_INFO_H
#define FR_TOOLS_INFO_H

#include "fabrail/device.h"
#include "launch.h"

#include <stdio.h>

enum {
    FR_INFO_MOST_GPUS = 32,
    FR_INFO_MOST_MPIS = 16,
    FR_INFO_MOST_NICS = 64,
    FR_INFO_MOST_RAILS = 256,
    FR_INFO_WORDS = 240,
};

// Ways to hand memory to another process, and what the driver said when one was tried.
enum fr_info_handle { FR_INFO_IPC, FR_INFO_FD, FR_INFO_FABRIC, FR_INFO_HANDLES };
struct fr_info_try {
    bool works;
    char why_not[FR_INFO_WORDS];
};

struct fr_info_gpu {
    char name[96];
    char uuid[48];
    char pci[32];
    size_t bytes;
    int major, minor;                  // compute capability
    bool rdma, dma_buf;                // NICs can reach its memory
    int nvlinks;                       // active ones, -1 unknown
    bool reaches[FR_INFO_MOST_GPUS];   // can map that GPU's memory
    bool by_nvlink[FR_INFO_MOST_GPUS]; // and does so by NVLink
    struct fr_device_clique clique;
    struct fr_info_try handles[FR_INFO_HANDLES];
};

struct fr_info_gpus {
    char problem[FR_INFO_WORDS]; // why there are none, empty if there are
    char driver[80];
    int cuda_version; // as the driver says, 13000 for 13.0
    bool simulated;
    const char *cpu_way; // by which the CPU reaches memory of the first GPU, NULL for none
    const char *cpu_why_not;
    int count;
    struct fr_info_gpu gpus[FR_INFO_MOST_GPUS];
};

enum fr_info_answer { FR_INFO_NO, FR_INFO_YES, FR_INFO_UNKNOWN };

struct fr_info_mpi {
    struct fr_launcher launcher;
    char library[FR_INFO_WORDS]; // MPI_Get_library_version's first line
    bool started;                // a rank came up and ended
    enum fr_info_answer gpu_aware, served;
    char problem[FR_INFO_WORDS];
};

struct fr_info_mpis {
    int count;
    struct fr_info_mpi mpis[FR_INFO_MOST_MPIS];
};

struct fr_info_nic {
    char name[64];
    char pci[32]; // empty: none that is known
    char link[32];
    int gpu;        // the one that it shares most of its way to the CPU with, -1 for none
    bool by_itself; // it reads and writes memory of programs, as InfiniBand does
};

// A NIC that the library drives for a GPU, or, without one (-1), for host memory.
struct fr_info_rail {
    int gpu;
    char nic[64], provider[32];
};

struct fr_info_rails {
    bool built; // the library has rails
    int rail_count;
    struct fr_info_rail rails[FR_INFO_MOST_RAILS];
    char providers[FR_INFO_WORDS]; // of libfabric, or why there are none
    int count;
    struct fr_info_nic nics[FR_INFO_MOST_NICS];
};

struct fr_info_path {
    const char *name;
    bool used;
    char why[FR_INFO_WORDS];
};

struct fr_info {
    char library[FR_FILE_NAME_BYTES];
    bool library_found;
    struct fr_info_gpus gpus;
    struct fr_info_mpis mpis;
    struct fr_info_rails rails;
};

// Asks the CUDA driver and NVML. With `try_handles` memory is made on each GPU, for which a context
// is needed.
void fr_info_gpus_find(struct fr_info_gpus *gpus, bool try_handles);

// Looks for launchers on the path. With `start`, each starts one rank, which asks its MPI library
// what it is; `library` is preloaded into it.
void fr_info_mpis_find(struct fr_info_mpis *mpis, bool start, const char *library);

// Starts such a rank for one launcher.
void fr_info_mpi_ask(struct fr_info_mpi *mpi, const char *library);

// Does the work of that rank: prints what the first of these libraries that can be loaded says of
// itself. Returns the exit status.
int fr_info_probe_mpi(int count, char **libraries);

// Prints libfabric's providers, in the same way, and the rails of GPUs, each two arguments: its
// index and its PCI bus id.
int fr_info_probe_fabric(int count, char **gpus);

// NICs, and what libfabric has on them.
void fr_info_rails_find(struct fr_info_rails *rails, const struct fr_info_gpus *gpus);

// Writes the paths that messages of device memory take under this MPI (NULL: one that is not
// GPU-aware) with the settings of this process. Returns their number.
enum { FR_INFO_MOST_PATHS = 8 };
int fr_info_paths(const struct fr_info *info, const struct fr_info_mpi *mpi,
                  struct fr_info_path paths[FR_INFO_MOST_PATHS]);

const char *fr_info_handle_name(enum fr_info_handle handle);
void fr_info_clique_text(const struct fr_device_clique *clique, char *text, size_t room);

void fr_info_print_settings(void);
// Prints what costs speed on this machine, and what mends it. Returns how many such things there
// are.
int fr_info_check(const struct fr_info *info);

#endif
