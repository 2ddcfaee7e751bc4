#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Runs the fuzz target of the parser for some seconds (FR_FUZZ_SECONDS, 5), beginning with the corpus of
# the tree. By hand and for longer: FR_FUZZ_SECONDS=3600 make check TESTS=tests/rail/fuzz.sh
set -u
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
here=$top_srcdir/tests/rail

compile() # SOURCE...
{
    clang -std=gnu11 -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
        -I"$top_builddir" -I"$top_srcdir/src" -I"$top_srcdir/include" -o "$work/fuzz" "$@" >"$work/log" 2>&1
}

command -v clang >/dev/null || { echo "skipped: no clang"; exit 77; }
echo 'int LLVMFuzzerTestOneInput(const char *data, long size);
int LLVMFuzzerTestOneInput(const char *data, long size) { return data == 0 && size > 0; }' >"$work/probe.c"
compile "$work/probe.c" || { echo "skipped: clang has no libFuzzer here"; exit 77; }

compile "$here/fuzz_wire.c" "$top_srcdir/src/rail/wire.c" || { cat "$work/log"; exit 1; }
mkdir "$work/new"
seconds=${FR_FUZZ_SECONDS:-5}
timeout $((seconds + 120)) "$work/fuzz" -max_total_time="$seconds" -max_len=5000 -print_final_stats=1 \
    -artifact_prefix="$top_builddir/tests/rail/" "$work/new" "$here/corpus" >"$work/log" 2>&1
status=$?
tail -n 12 "$work/log"
[ "$status" = 0 ] || cat "$work/log"
exit "$status"
