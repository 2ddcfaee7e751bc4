// SPDX-License-Identifier: BSD-3-Clause
// What the manuals of the MPI families say of GPU-aware functions, for who is not in an MPI
// process.
#ifndef FR_MPI_AWARE_H
#define FR_MPI_AWARE_H

#include "real/real.h"

// Whether a GPU-aware MPI of this family ("Open MPI", "MPICH", "MPI ABI") takes device pointers in
// this function.
bool fr_mpi_family_is_gpu_safe(const char *family, enum fr_fn fn);

#endif
