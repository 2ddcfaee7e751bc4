# SPDX-License-Identifier: BSD-3-Clause
# For the scripts of this folder: TAP results, and programs of the folder that print their own.
. "$top_builddir/tests/mpi/launchers" || exit 99
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
number=0

result() # ok|not-ok TEXT
{
    number=$((number + 1))
    echo "${1/-/ } $number - $2"
}

tap_end()
{
    if [ "$number" = 0 ]; then
        echo "1..0 # SKIP configure found no MPI"
    else
        echo "1..$number"
    fi
}

# Runs PROGRAM-FLAVOUR; its results become this script's, each under the flavour and TITLE. A program
# that ends without its plan, or badly with no failed result, is a failed result itself.
launch_tap() # FLAVOUR TITLE PROGRAM RANKS [OPTION-OF-RUN-PROGRAM...] -- [ARGUMENT...]
{
    local flavour=$1 title=$2 program=$3 ranks=$4 options=() status line bad=0
    shift 4
    while [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    shift
    "$top_srcdir/tests/mpi/run-program" ${options[@]+"${options[@]}"} "$flavour" "$ranks" \
        "$top_builddir/tests/interpose/$program-$flavour" "$@" >"$work/out" 2>"$work/err"
    status=$?
    while IFS= read -r line; do
        case $line in
        "ok "*) result ok "$flavour $title: ${line#* - }" ;;
        "not ok "*)
            result not-ok "$flavour $title: ${line#* - }"
            bad=1
            ;;
        "1..0 # SKIP "*) result ok "$flavour $title # ${line#*\# }" ;;
        "#"*) echo "$line" ;;
        esac
    done <"$work/out"
    if ! grep -q '^1\.\.' "$work/out" || { [ "$status" != 0 ] && [ "$bad" = 0 ]; }; then
        result not-ok "$flavour $title: exit status $status"
        tail -n 30 "$work/out" "$work/err" | sed 's/^/# /'
    fi
}
