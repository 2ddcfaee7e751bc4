#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The table of doc/guide.md names exactly the settings that the library has, and each default as it is;
# the other documents name no others.
set -u
table=$top_builddir/doc/settings.roff
guide=$top_srcdir/doc/guide.md
failed=0

names=$(sed -n 's/^\.B \(FABRAIL_[A-Z_]*\)$/\1/p' "$table")
if [ -z "$names" ]; then
    echo "no setting in $table"
    exit 1
fi
for name in $names; do
    default=$(sed -n "/^\.B $name\$/,/^Default: /s/^Default: \(.*\)\.\$/\1/p" "$table")
    if ! grep -q "^| \`$name\` | $default |" "$guide"; then
        echo "doc/guide.md lacks a row: | \`$name\` | $default |"
        failed=1
    fi
done
for document in "$guide" "$top_srcdir/README.md" "$top_srcdir/doc/troubleshooting.md" \
    "$top_srcdir/doc/design.md" "$top_srcdir/doc/fabrail.7.in" "$top_srcdir/doc/fabrail.1.in"; do
    for name in $(grep -o 'FABRAIL_[A-Z_]*[A-Z]' "$document" | sort -u); do
        if ! echo "$names" | grep -q -x "$name"; then
            echo "$document names $name, which is no setting"
            failed=1
        fi
    done
done
exit $failed
