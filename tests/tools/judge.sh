# SPDX-License-Identifier: BSD-3-Clause
# For the tests of the command: a result for each condition, and a way to run the command in bounded
# time with its output in $work/out and its exit status in $status.
. "$top_srcdir/tests/interpose/tap.sh"
fabrail=$(cd "$top_builddir" && pwd)/tools/fabrail
status=

judge() # TEXT CONDITION...
{
    local text=$1
    shift
    if "$@"; then
        result ok "$text"
    else
        result not-ok "$text"
        tail -n 20 "$work/out" | sed 's/^/# /'
    fi
}

fabrail() # ARGUMENT...
{
    timeout 120 "$fabrail" "$@" >"$work/out" 2>&1 </dev/null
    status=$?
}

ends() # STATUS PATTERN
{
    [ "$status" = "$1" ] && grep -q -e "$2" "$work/out"
}

# One line of complaint, and no more than where to read on behind it.
refuses() # STATUS PATTERN
{
    ends "$1" "$2" && [ "$(grep -c -v '^Try fabrail ' "$work/out")" = 1 ]
}

shows() # PATTERN...
{
    local pattern
    for pattern; do
        grep -q -e "$pattern" "$work/out" || return 1
    done
}

not()
{
    ! "$@"
}

# More ranks than cores, as root, in a container: what Open MPI wants to be told.
allow_openmpi()
{
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
    export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
    export PRTE_MCA_hwloc_default_binding_policy=none
    export OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_plm_rsh_agent=/bin/false
    if grep -q '^Seccomp:[[:space:]]*2' /proc/self/status; then
        export OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_smsc='^cma,xpmem,knem'
    fi
    export PMIX_MCA_gds=hash
    export TMPDIR=$work # Open MPI 5 refuses to start beside what a killed launcher of its own number has left
}

# MPIs to start jobs with by the command itself. A library with a sanitizer inside wants the sanitizer's
# runtime before it, which tests/mpi/run-program sees to, and the command does not.
job_flavours=$flavours
if [ -n "$sanitizer_runtime" ]; then
    job_flavours=
    # Programs that end by exec or at once free nothing, and the library is preloaded into shells here.
    export ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0
    result ok "jobs started by the command # SKIP this build has a sanitizer in the library"
fi
