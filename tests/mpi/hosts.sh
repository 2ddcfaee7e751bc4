# SPDX-License-Identifier: BSD-3-Clause
# For the scripts of this folder that run programs on simulated hosts and look into the reports.
# They need $here, and a folder $work; the output of a launch is in $work/out.

# Flavours mpich5 and mpiabi are one library by two kinds of handles, which tests/mpi/programs-mpich5.test looks at.
[[ "${flavours-} " != *" mpiabi "* ]] || flavours=${flavours/ mpich5/}

number=0
device=sim     # of what is launched,
before=()      # by way of this
run_options=() # with these of run-program

result() # STATUS TEXT
{
    number=$((number + 1))
    if [ "$1" = 0 ]; then
        echo "ok $number - $2"
        return
    fi
    echo "not ok $number - $2"
    grep -v '^ok ' "$work/out" | tail -n 60 | sed 's/^/# /'
}

launch() # FLAVOUR HOSTS RANKS PROGRAM OPTION... -- ENVIRONMENT...
{
    local flavour=$1 hosts=$2 ranks=$3 program=$4 options=() variable
    local run=("$here/run-program" "--device=$device" "--hosts=$hosts" "--env=FABRAIL_REPORT=$work/%r.json"
        "--timeout=${time_limit:-120}" "${run_options[@]}") # seconds
    shift 4
    while [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    shift
    case " $* " in
    *' FABRAIL_RAIL='*) ;;
    *) run+=(--env=FABRAIL_RAIL=off) ;; # whatever NICs the machine has
    esac
    for variable; do
        run+=("--env=$variable")
    done
    rm -f "$work"/*.json
    "${run[@]}" "$flavour" "$ranks" "${before[@]}" "$top_builddir/tests/programs/$program-$flavour" \
        "${options[@]}" >"$work/out" 2>&1
}

# Whether some report gives a path and the beginning of a reason, for each of these functions or any.
reported() # PATH REASON [FUNCTION...]
{
    local path=$1 reason=$2 name
    shift 2
    grep -q "\"path\": \"$path\", .*\"reason\": \"$reason" "$work"/*.json || return 1
    for name; do
        grep -q "\"name\": \"$name\", \"path\": \"$path\", .*\"reason\": \"$reason" "$work"/*.json ||
            { echo "$name was nowhere on path $path since $reason" >>"$work/out" && return 1; }
    done
}

# Makes driver calls of either side fail, so many of them evenly over a launch of two ranks, or all where
# the scope is whole.
each_fault() # FLAVOUR MOST LAUNCH... -- ENVIRONMENT...
{
    local flavour=$1 most=$2 step nth calls fault which bad=0 one=() variables
    shift 2
    while [ "$1" != -- ]; do
        one+=("$1")
        shift
    done
    shift
    variables=("$@" FRSIM_FAIL_SCOPE=fabrail)
    rm -f "$work"/count.*
    launch "$flavour" "${one[@]}" -- "${variables[@]}" "FRSIM_COUNT_FILE=$work/count.%p"
    calls=$(cat "$work"/count.* | sort -n | tail -n 1)
    step=$((${calls:-0} / most + 1))
    [ "${scope:-full}" != whole ] || step=1
    for ((nth = 1; nth <= ${calls:-0} && bad < 3; nth += step)); do
        for which in "0,$nth" "$nth,0"; do
            take_answer
            launch "$flavour" "${one[@]}" -- "${variables[@]}" "FRSIM_FAIL_NTH=$which" "FRSIM_FAIL_CODE=$answer"
            fault=$(fault_of $? "$work/out")
            [ -n "$fault" ] || continue
            bad=$((bad + 1))
            echo "# with calls $which failing with $answer it $fault"
        done
    done
    [ "$bad" = 0 ] && [ "${calls:-0}" -gt 0 ]
    result $? "$flavour: each $step. of ${calls:-0} driver calls failing on either side"
}
