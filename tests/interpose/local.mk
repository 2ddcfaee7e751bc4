# SPDX-License-Identifier: BSD-3-Clause
# Tests of the interposition itself: the table, the stubs, and how they live beside other libraries.
fr_interpose_tests = tests/interpose/coverage.test
EXTRA_DIST += $(fr_interpose_tests)
if !CROSS_COMPILING
TESTS += $(fr_interpose_tests)
endif
