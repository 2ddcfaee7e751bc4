// SPDX-License-Identifier: BSD-3-Clause
// Records by PMI, which Hydra and Slurm speak with the MPI library on a socket that each process
// gets from them: a question and its answer, in lines (version 1) or with lengths (version 2).
// Nobody may ask there while the MPI library waits for an answer.
#ifndef FR_WORLD_PMI_H
#define FR_WORLD_PMI_H

#include "world/census.h"

enum { FR_WORLD_PMI_BYTES = 2048 }; // no line and no answer is longer

// The socket that the launcher gave this process, -1 where there is none, where the job has a
// single process, and where it is not a program of this name that has the other end.
int fr_world_pmi_find(const char *program);

// Reads one line, byte for byte, so that nothing is read that is for the MPI library.
bool fr_world_pmi_read_line(int file, char line[FR_WORLD_PMI_BYTES]);
bool fr_world_pmi_write(int file, const char *text, size_t length);

// Leaves the record of this process, and keeps socket and version for those that follow. The
// version is the one of the answer to the greeting, false where that is a refusal. The second says
// under which other descriptor the socket is to be had from now on.
bool fr_world_pmi_put(int file, const char *greeted, const char *record);
void fr_world_pmi_move(int file);

// As in a registry.
bool fr_world_pmi_get(int rank, char record[FR_WORLD_RECORD_BYTES]);
bool fr_world_pmi_get_host(int rank, char host[FR_WORLD_HOST_BYTES]);

#endif
