# SPDX-License-Identifier: BSD-3-Clause
# For the scripts of this folder that make driver calls fail.

# The answers of calls that fail, which serve in turn: UNKNOWN, NOT_SUPPORTED and NOT_PERMITTED.
answers=(${FR_TEST_ANSWERS:-999 801 800})
answered=0

# Takes the next answer for $answer.
take_answer()
{
    answer=${answers[$((answered++ % ${#answers[@]}))]}
}

# Says what is wrong with a run whose output is in OUT and that had a failing call; nothing if it ended
# with the right bytes or with a clear MPI error.
fault_of() # STATUS OUT
{
    if [ "$1" = 124 ] || [ "$1" = 137 ]; then
        echo "hangs"
    elif grep -q -i -e 'segmentation fault' -e 'bus error' -e 'signal:\? 11' -e 'signal:\? 6' \
        -e 'stack smashing' "$2"; then # MPICH calls exit status 1 a hangup, signal 1
        echo "crashes"
    elif grep -q '^not ok' "$2"; then
        echo "gives wrong bytes or statuses"
    elif [ "$1" != 0 ] && ! grep -q '^fabrail.* error: ' "$2"; then
        echo "fails with exit status $1 and no message of Fabrail's"
    elif [ "$1" != 0 ] && ! grep -q -e 'MPI_ERR' -e 'MPI_ABORT' -e 'Fatal error in' -e 'Abort(' \
        -e 'ORTE_ERROR_LOG: .*show_help' "$2"; then # Open MPI 4 may lose its own message
        echo "fails with exit status $1 and no MPI error"
    fi
}
