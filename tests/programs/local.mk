# SPDX-License-Identifier: BSD-3-Clause
# The included MPI programs, built once for every MPI flavour that configure found: NAME-FLAVOUR.
fr_prog_names = selfcheck transpose alternate ring matching halo neighbours reductions compositions operations \
    collectives pending persistent partitioned standing onesided updates fileio pack threads wide random corners opened
fr_prog_shared = harness buffer memory plan types completion
fr_prog_headers = tests/programs/harness.h tests/programs/memory.h tests/programs/plan.h \
    tests/programs/types.h tests/programs/completion.h tests/programs/large.h tests/programs/random.h \
    tests/programs/random_blocks.h tests/programs/random_windows.h tests/programs/corners.h
# Files of random besides random.c.
fr_prog_random = random_types random_circles random_buffers random_blocks random_collectives \
    random_reductions random_messages random_shift random_windows random_accesses
# Files of corners besides corners.c.
fr_prog_corners = corners_lane corners_modes corners_probe corners_complete corners_truncation \
    corners_order corners_types corners_groups corners_copies corners_self
# These are built a second time, as NAME_c, with the large-count forms of MPI 4.
fr_prog_large = transpose ring matching halo neighbours reductions collectives persistent \
    standing onesided fileio
fr_prog_flags = -std=gnu11 -Wall -Wextra $(filter -Werror,$(FR_CFLAGS)) $(CUDA_CPPFLAGS) $(CFLAGS)
fr_prog_link = -ldl -lm -lpthread

# Programs of other folders, NAME-FLAVOUR, from all files of C and objects that their rules name.
fr_program_flags = $(DEFAULT_INCLUDES) $(CPPFLAGS) $(CUDA_CPPFLAGS) -std=gnu11 -Wall -Wextra \
    $(FR_PROGRAM_WERROR) $(CFLAGS) $(LDFLAGS)
fr_program_cc = $(AM_V_CCLD)$(MKDIR_P) $(@D) && $(fr_mpicc_$*) $(fr_program_flags) -o $@
fr_program = $(fr_program_cc) $(filter %.c %.o,$^) -ldl -lpthread
# Links a program with all modules, whose headers it includes.
fr_program_with_modules = $(AM_V_CCLD)$(MKDIR_P) $(@D) && $(fr_mpicc_$*) $(DEFS) $(AM_CPPFLAGS) $(fr_program_flags) \
    -o $@ $(filter %.c %.S %.o,$^) .libs/libmodules.a -ldl -lpthread

# A Fortran program is its source and the C side of it, compiled once for each of the three
# interfaces: NAME_mpifh, NAME_mpi and NAME_f08. -std=legacy lets mpif.h take any type of buffer.
fr_prog_fortran = transpose halo reductions
fr_prog_fortran_names = $(fr_prog_fortran:%=%_mpifh) $(fr_prog_fortran:%=%_mpi) \
    $(fr_prog_fortran:%=%_f08)
fr_prog_fortran_files = $(fr_prog_fortran:%=tests/programs/fortran/%.F90) \
    tests/programs/fortran/interface.inc tests/programs/fortran/init.inc
fr_prog_fcflags = -g -O2 -w -std=legacy -ffree-line-length-none $(filter -fsanitize=%,$(CFLAGS)) \
    -I$(srcdir)/tests/programs/fortran
fr_mpifc_openmpi = $(OPENMPI_MPIFC)
fr_mpifc_openmpi5 = $(OPENMPI5_MPIFC)
fr_mpifc_mpich = $(MPICH_MPIFC)
fr_mpifc_mpich5 = $(MPICH5_MPIFC)
fr_mpifc_mpiabi = $(MPIABI_MPIFC)

# Files are tests/programs/NAME-FLAVOUR, with .o for an object: of one flavour, and of all of them.
fr_prog_of = $(patsubst %,tests/programs/%-$(1),$(2))
fr_prog_all = $(foreach flavour,$(MPI_FLAVOURS),$(call fr_prog_of,$(flavour),$(1)))
fr_prog_plain = $(call fr_prog_all,$(fr_prog_names))
fr_prog_plain_objects = $(patsubst %,%.o,$(call fr_prog_all,$(fr_prog_names) $(fr_prog_shared) \
    $(fr_prog_random) $(fr_prog_corners)))
fr_prog_large_forms = $(call fr_prog_all,$(fr_prog_large:%=%_c))
fr_prog_large_objects = $(patsubst %,%.o,$(call fr_prog_all,$(patsubst %,%_c,$(fr_prog_large) \
    $(fr_prog_shared))))
fr_prog_fortrans = $(foreach flavour,$(MPI_FLAVOURS),$(if $(fr_mpifc_$(flavour)),$(call \
    fr_prog_of,$(flavour),$(fr_prog_fortran_names))))
fr_prog_built = $(fr_prog_plain) $(fr_prog_large_forms) $(fr_prog_fortrans)

# Name, flavour and compiler of the file that is made.
fr_prog_name = $(firstword $(subst -, ,$(@F)))
fr_prog_flavour = $(word 2,$(subst -, ,$(basename $(@F))))
fr_prog_mpicc = $(fr_mpicc_$(fr_prog_flavour))
fr_prog_mpifc = $(fr_mpifc_$(fr_prog_flavour))
fr_prog_source = $(srcdir)/tests/programs/fortran/$(firstword $(subst _, ,$(fr_prog_name))).F90
fr_prog_interface = -DFORTRAN_$(lastword $(subst _, ,$(fr_prog_name)))

EXTRA_DIST += tests/programs/list tests/programs/README.md $(fr_prog_headers) $(fr_prog_names:%=tests/programs/%.c) \
    $(fr_prog_shared:%=tests/programs/%.c) $(fr_prog_random:%=tests/programs/%.c) \
    $(fr_prog_corners:%=tests/programs/%.c) \
    tests/programs/fortran/main.c $(fr_prog_fortran_files) \
    tests/programs/python/driver.py tests/programs/python/harness.py \
    tests/programs/python/exchange.py tests/programs/python/collective.py
check_DATA += $(fr_prog_built)
CLEANFILES += $(fr_prog_built) $(fr_prog_plain_objects) $(fr_prog_large_objects) \
    $(fr_prog_fortrans:%=%.o) $(fr_prog_fortrans:%=%-main.o)

programs: $(fr_prog_built)
.PHONY: programs

# Prerequisites of each program, a flavour at a time. The commands follow.
fr_prog_needs = $(foreach flavour,$(MPI_FLAVOURS),$(eval $(call $(1),$(flavour))))
fr_prog_plain_from = $(filter %-$(1).o,$(fr_prog_plain_objects)): %-$(1).o: %.c
fr_prog_large_from = $(filter %-$(1).o,$(fr_prog_large_objects)): %_c-$(1).o: %.c
fr_prog_plain_with = $(filter %-$(1),$(fr_prog_plain) $(fr_prog_fortrans)): %: %.o \
    $(patsubst %,%.o,$(call fr_prog_of,$(1),$(fr_prog_shared)))
fr_prog_large_with = $(filter %-$(1),$(fr_prog_large_forms)): %: %.o \
    $(patsubst %,%.o,$(call fr_prog_of,$(1),$(fr_prog_shared:%=%_c)))
fr_prog_random_with = $(call fr_prog_of,$(1),random): $(patsubst %,%.o,$(call \
    fr_prog_of,$(1),$(fr_prog_random)))
fr_prog_corners_with = $(call fr_prog_of,$(1),corners): $(patsubst %,%.o,$(call \
    fr_prog_of,$(1),$(fr_prog_corners)))
$(call fr_prog_needs,fr_prog_plain_from)
$(call fr_prog_needs,fr_prog_large_from)
$(call fr_prog_needs,fr_prog_plain_with)
$(call fr_prog_needs,fr_prog_large_with)
$(call fr_prog_needs,fr_prog_random_with)
$(call fr_prog_needs,fr_prog_corners_with)

$(fr_prog_plain_objects): $(fr_prog_headers)
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_CC)$(fr_prog_mpicc) $(fr_prog_flags) -c -o $@ $(filter %.c,$^)
$(fr_prog_large_objects): $(fr_prog_headers)
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_CC)$(fr_prog_mpicc) $(fr_prog_flags) -DLARGE_COUNTS -c -o $@ $(filter %.c,$^)
$(fr_prog_plain) $(fr_prog_large_forms):
	$(AM_V_CCLD)$(fr_prog_mpicc) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(fr_prog_link)
$(fr_prog_fortrans:%=%.o): $(fr_prog_fortran_files)
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_GEN)$(fr_prog_mpifc) $(fr_prog_fcflags) $(fr_prog_interface) -c -o $@ $(fr_prog_source)
$(fr_prog_fortrans:%=%-main.o): tests/programs/fortran/main.c $(fr_prog_headers)
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_CC)$(fr_prog_mpicc) $(fr_prog_flags) -DFORTRAN_PROGRAM='"$(fr_prog_name)"' -c -o $@ $<
$(fr_prog_fortrans): %: %-main.o
	$(AM_V_CCLD)$(fr_prog_mpifc) $(fr_prog_fcflags) $(LDFLAGS) -o $@ $(filter %.o,$^) $(fr_prog_link)
# A race on purpose, to be run by hand on real GPUs.
EXTRA_DIST += tests/programs/python/race.py
