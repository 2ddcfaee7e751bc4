#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Files, functions, types, members and enumerators that the documents for developers name exist. A word in capitals
# stands for any, as in src/rndv/NAME.c.
set -u
cd "$top_srcdir" || exit 99
failed=0
complain()
{
    echo "$1"
    failed=1
}

for document in HACKING.md doc/design.md tests/README.md; do
    code=$(grep -o '`[^`]*`' "$document" | tr -d '`' | sort -u)
    for path in $(echo "$code" | grep -o -E '\b(src|include|tests|tools|doc|contrib)/[A-Za-z0-9_./*-]+' | sort -u); do
        # shellcheck disable=SC2086 # it may be a pattern
        case $path in
        *[A-Z][A-Z]*) ;;
        *) ls -d ${path%.} >/dev/null 2>&1 || complain "$document names $path, which is not there" ;;
        esac
    done
    for name in $(echo "$code" | grep -o -E '\b(fr|FR)_[A-Za-z0-9_]+|^[a-z]+_[a-z_]+$' | sort -u); do
        case $name in
        *_ | *MODULE*) ;;
        *) grep -r -q -w --exclude='*.md' "$name" src include tests tools || complain "$document names $name, which is not there" ;;
        esac
    done
    # A name that is said to be in a file, as in `check_link` in `src/rail/fault.c`.
    while read -r name _ path; do
        [ -z "$name" ] || grep -q -w "$name" "$path" || complain "$document names $name, which is not in $path"
    done <<END
$(grep -o -E '`[a-z_]+` (in|of) `(src|tools)/[a-z_/]+\.[a-z]+`' "$document" | tr -d '`' | sort -u)
END
done
exit $failed
