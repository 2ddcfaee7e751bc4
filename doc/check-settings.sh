#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# doc/settings.md is what the library's table of settings makes; the documents name no others.
set -u
table=$top_builddir/doc/settings.roff
failed=0

names=$(sed -n 's/^\.B \(FABRAIL_[A-Z_]*\)$/\1/p' "$table")
if [ -z "$names" ]; then
    echo "no setting in $table"
    exit 1
fi
if ! "$top_builddir/doc/settings" --markdown | diff "$top_srcdir/doc/settings.md" -; then
    echo "doc/settings.md is not of this table: doc/settings --markdown >doc/settings.md"
    failed=1
fi
for document in "$top_srcdir"/README.md "$top_srcdir"/doc/*.md "$top_srcdir"/contrib/container/README.md \
    "$top_srcdir/doc/fabrail.7.in" "$top_srcdir/doc/fabrail.1.in"; do
    for name in $(grep -o 'FABRAIL_[A-Z_]*[A-Z]' "$document" | sort -u); do
        if ! echo "$names" | grep -q -x "$name"; then
            echo "$document names $name, which is no setting"
            failed=1
        fi
    done
done
exit $failed
