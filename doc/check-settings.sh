#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# README.md names exactly the settings that the library has, and each default as it is.
set -u
table=$top_builddir/doc/settings.roff
readme=$top_srcdir/README.md
failed=0

names=$(sed -n 's/^\.B \(FABRAIL_[A-Z_]*\)$/\1/p' "$table")
if [ -z "$names" ]; then
    echo "no setting in $table"
    exit 1
fi
for name in $names; do
    default=$(sed -n "/^\.B $name\$/,/^Default: /s/^Default: \(.*\)\.\$/\1/p" "$table")
    if ! grep -q "^| \`$name\` | $default |" "$readme"; then
        echo "README.md lacks a row: | \`$name\` | $default |"
        failed=1
    fi
done
for name in $(grep -o 'FABRAIL_[A-Z_]*' "$readme" | sort -u); do
    if ! echo "$names" | grep -q -x "$name"; then
        echo "README.md names $name, which is no setting"
        failed=1
    fi
done
exit $failed
