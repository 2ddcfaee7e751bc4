#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# A task prolog for Slurm (TaskProlog in slurm.conf, or srun --task-prolog=FILE): preloads Fabrail into
# each task of steps that ask for it, by the variable USE_FABRAIL of the job,
#
#   USE_FABRAIL=1 srun ./program
#
# Slurm puts what is printed as "export NAME=VALUE" into the task's environment. A preload that the task
# has stays, behind Fabrail. LIBFABRAIL may be set here by an administrator.
library=/usr/lib/libfabrail.so
for place in "${LIBFABRAIL:-}" "$(pkg-config --variable=preload fabrail 2>/dev/null)" \
    /usr/local/lib/libfabrail.so "$library"; do
    if [ -n "$place" ] && [ -r "$place" ]; then
        library=$place
        break
    fi
done
if [ "${USE_FABRAIL:-0}" = 1 ] && [ -r "$library" ]; then
    echo "export LD_PRELOAD=$library${LD_PRELOAD:+:$LD_PRELOAD}"
elif [ "${USE_FABRAIL:-0}" = 1 ]; then
    echo "print task prolog: libfabrail.so is not on $(uname -n); the task runs without Fabrail"
fi
