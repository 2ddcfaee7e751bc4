# SPDX-License-Identifier: BSD-3-Clause
# Tests of the interposition itself: the table, the stubs, and how they live beside other libraries.
fr_interpose_tests = tests/interpose/coverage.test tests/interpose/refusal.test
EXTRA_DIST += $(fr_interpose_tests) tests/interpose/tap.sh tests/interpose/refusal.c

# MPI programs, NAME-FLAVOUR.
fr_interpose_programs = $(MPI_FLAVOURS:%=tests/interpose/refusal-%)
fr_interpose_flags = $(DEFAULT_INCLUDES) $(CPPFLAGS) $(CUDA_CPPFLAGS) -std=gnu11 -Wall -Wextra \
    $(FR_PROGRAM_WERROR) $(CFLAGS)
CLEANFILES += $(fr_interpose_programs)

if !CROSS_COMPILING
TESTS += $(fr_interpose_tests)
check_DATA += $(fr_interpose_programs)
$(MPI_FLAVOURS:%=tests/interpose/refusal-%): tests/interpose/refusal-%: \
    tests/interpose/refusal.c tests/programs/memory.c tests/programs/memory.h
	$(AM_V_CCLD)$(MKDIR_P) $(@D) && $(fr_mpicc_$*) $(fr_interpose_flags) $(LDFLAGS) -o $@ \
	    $(filter %.c,$^) -ldl
endif
