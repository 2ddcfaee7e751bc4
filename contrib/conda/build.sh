#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Called by conda-build in the sources, with its compilers and PREFIX in the environment.
set -eu
[ ! -e Makefile ] || make -s distclean # objects of a build in the sources
autoreconf -i
./configure --prefix="$PREFIX" --with-cuda="$PREFIX" --with-nvcc="$BUILD_PREFIX/bin/nvcc" \
    --with-json-c="$PREFIX" --with-libfabric="$PREFIX" --with-hwloc="$PREFIX" \
    --with-openmpi=no --with-mpich=no --with-mpiabi=no
make -j"${CPU_COUNT:-2}"
make install
rm -f "$PREFIX/lib/libfabrail.la"
