# SPDX-License-Identifier: BSD-3-Clause
# Sourced by what starts jobs on the rig. Debian's MPICH hangs in MPI_Finalize over the tcp of UCX now and
# then, without Fabrail too. By then Fabrail has written its reports, a file a rank, and the program its
# results.

ended_but_for_mpi() # FLAVOUR RANKS REPORTS OUTPUT
{
    [[ $1 = mpich* ]] && [ "$(ls "$3"/[0-9]*.json 2>/dev/null | wc -l)" = "$2" ] &&
        grep -q '^ok ' "$4" && ! grep -q '^not ok' "$4"
}

# Waits for a job, and ends it if MPI has hung for 5 s.
wait_for() # JOB FLAVOUR RANKS REPORTS OUTPUT
{
    local tenths=0
    while [[ $2 = mpich* ]] && [ $tenths -lt 50 ] && kill -0 "$1" 2>/dev/null; do
        sleep 0.1
        ! ended_but_for_mpi "${@:2}" || tenths=$((tenths + 1))
    done
    [ $tenths -lt 50 ] || kill "$1"
    wait "$1"
}
