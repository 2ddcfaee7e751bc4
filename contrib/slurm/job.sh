#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A job script for Slurm, in three ways that come to the same. Each rank has a GPU, and Fabrail with the
# same settings.
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-task=1
#SBATCH --time=00:10:00
#
# srun has to start ranks by the PMI that their MPI speaks. Where that is not the cluster's default,
# MPICH and Intel MPI want this variable to be pmi2, Open MPI wants pmix:
#      export SLURM_MPI_TYPE=pmi2
set -eu
program=${1:-./program}

# 1. The command does it all. --export of your own goes behind srun and gets the names added.
fabrail run --report="report-%r.json" -- srun "$program"

# 2. By hand. ALL hands on the environment, in which settings may stand that hold commas.
export FABRAIL_PATHS=pass,host,fabric,peer
library=$(pkg-config --variable=preload fabrail) # without it the script ends here
srun --export=ALL,LD_PRELOAD="$library" "$program"

# 3. With the module, or the task prolog of the site (task-prolog.sh), nothing but srun.
#      module load fabrail-preload
#      srun ./program
