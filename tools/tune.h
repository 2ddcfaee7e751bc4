// SPDX-License-Identifier: BSD-3-Clause
// fabrail tune: measures on this machine at which sizes one way of moving bytes overtakes another,
// and keeps it in the tuning file.
#ifndef FR_TOOLS_TUNE_H
#define FR_TOOLS_TUNE_H

#include "fabrail/device.h"
#include "fabrail/policy/tuning.h"
#include "launch.h"

enum { FR_TUNE_MAX_GPUS = 32, FR_TUNE_MAX_ROUNDS = 201, FR_TUNE_WAYS = 2 };

#define FR_TUNE_SMALLEST ((size_t)256) // transfer that is measured

// The GPUs of this host that can all reach each other, and what kind of machine it is.
struct fr_tune_gpus {
    bool is_simulated;
    int visible; // to a process
    int count;   // of them here
    int devices[FR_TUNE_MAX_GPUS];
    char machine[FR_DEVICE_MACHINE_BYTES];
};

// Looks for them, in a process of its own: one that has used the driver could not fork. Returns
// false after a line on stderr where there are not two that can reach each other.
FR_MUST_CHECK bool fr_tune_gpus_find(struct fr_tune_gpus *gpus);

// Memory of a GPU as the process of another one has it mapped, a piece for each GPU in either
// buffer.
struct fr_tune_memory {
    uintptr_t send, receive;
};

// The means of one process, of one for each GPU, as there are ranks in a job.
struct fr_tune_rig {
    const struct fr_tune_gpus *gpus;
    struct fr_tune_board *board;
    int own, count; // its GPU, by its place among them
    bool is_simulated;
    bool has_kernels, can_reduce, can_pack; // all of them
    size_t piece_bytes;
    struct fr_tune_memory memory[FR_TUNE_MAX_GPUS];
    struct fr_device_range send_range, receive_range; // of its own
};

// Has a process for each GPU allocate, fill and share buffers with pieces of `piece_bytes`, and
// measure all sizes in transfers of up to that; the first one prints them. A size that cannot be
// measured is FR_BYTES_AUTO in `tuning`. Returns false after a line on stderr.
FR_MUST_CHECK bool fr_tune_gpus_measure(const struct fr_tune_gpus *gpus, size_t piece_bytes,
                                        struct fr_policy_tuning *tuning, bool *has_kernels);

// The part of each process in that: returns with the same sizes in all of them.
FR_MUST_CHECK bool fr_tune_table_measure(const struct fr_tune_rig *rig,
                                         struct fr_policy_tuning *tuning);

// Returns whether a size can be measured with these GPUs.
bool fr_tune_measures(const struct fr_tune_rig *rig, enum fr_policy_size size);
// Measures what it takes, with all GPUs that have a part, to move `bytes` in the two ways between
// which a size decides, the one for smaller ones first: median of the slowest GPU's time. All
// processes call it and get the same. `tuning` has the sizes of engines, by which the steps of a
// broadcast go. All bytes that arrive are verified. `bytes` is a multiple of 4.
FR_MUST_CHECK bool fr_tune_measure(const struct fr_tune_rig *rig, enum fr_policy_size size,
                                   size_t bytes, const struct fr_policy_tuning *tuning,
                                   double us[FR_TUNE_WAYS]);

// Measures rails between two hosts: `words` are a launcher's, which starts two ranks. Writes
// what is to be kept for each kind of machine of the ranks.
enum { FR_TUNE_RANKS = 2 };
struct fr_tune_rails {
    const char *programs;         // their folder, NULL to look for it
    enum fr_launch_family family; // of the program, where the launcher does not tell
    int timeout_s;
    size_t largest_bytes;
    bool is_simulated;
    size_t min_bytes; // from which on rails are faster
    char machines[FR_TUNE_RANKS][FR_DEVICE_MACHINE_BYTES];
};
FR_MUST_CHECK bool fr_tune_rails_measure(struct fr_tune_rails *rails, int count,
                                         char *const *words);

// The way that serves below and from each of `count` sizes on: how many of them are best served by
// the first way, so that least is lost against the faster one at each size and one odd figure does
// not decide.
size_t fr_tune_find_cut(double us[][FR_TUNE_WAYS], size_t count);

// The results of a measurement for a section. A size that it has not is left as it was.
struct fr_tune_section {
    const char *machine;
    bool of_rails;
    char comment[160]; // of whence it comes
    struct fr_policy_tuning tuning;
};
// Returns whether the file is one that can be written: none yet, or one without faults.
FR_MUST_CHECK bool fr_tune_file_check(const char *path, const char *machine);
// Puts what was measured into this machine's section, or appends one; all else in the file stays as
// it is, also when others write to it meanwhile.
FR_MUST_CHECK bool fr_tune_file_write(const char *path, const struct fr_tune_section *section);
// Prints the section that it would be then.
FR_MUST_CHECK bool fr_tune_file_show(const char *path, const struct fr_tune_section *section);
// Makes the folders that a file is in.
FR_MUST_CHECK bool fr_tune_file_make_folders(const char *path);

#endif
