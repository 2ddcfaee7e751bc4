// SPDX-License-Identifier: BSD-3-Clause
// How much of a core this process has. Two hardware threads of one core share its units, so that a
// program beside another one takes up to twice as long, whatever the operating system says of its
// load. Virtual machines mostly do not tell which of their cores are such threads.
#ifndef BENCH_CORE_SHARE_H
#define BENCH_CORE_SHARE_H

// Returns how many additions this core does in one cycle just now, or 0 where that is not known.
// The figure of a core that nothing else uses depends on the core: about 5 on recent ones. Takes 50
// to 100 us.
double core_additions_per_cycle(void);

#endif
