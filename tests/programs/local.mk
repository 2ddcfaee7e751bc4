# SPDX-License-Identifier: BSD-3-Clause
# The included MPI programs, built once for every MPI flavour that configure found: NAME-FLAVOUR.
fr_prog_names = selfcheck transpose alternate ring matching halo neighbours reductions operations collectives \
    persistent partitioned standing onesided fileio pack threads wide random corners
fr_prog_shared = harness buffer memory plan types completion
fr_prog_headers = tests/programs/harness.h tests/programs/memory.h tests/programs/plan.h \
    tests/programs/types.h tests/programs/completion.h tests/programs/large.h tests/programs/random.h \
    tests/programs/random_blocks.h tests/programs/corners.h
# What random consists of besides random.c.
fr_prog_random = random_types random_circles random_buffers random_blocks random_collectives \
    random_reductions random_messages random_shift
# What corners consists of besides corners.c.
fr_prog_corners = corners_lane corners_modes corners_probe corners_complete corners_truncation \
    corners_order corners_types corners_groups corners_copies corners_self
# These are built a second time, as NAME_c, with the large-count forms of MPI 4.
fr_prog_large = transpose ring matching halo neighbours reductions collectives persistent \
    standing onesided fileio
fr_prog_flags = -std=gnu11 -Wall -Wextra $(filter -Werror,$(FR_CFLAGS)) $(CUDA_CPPFLAGS) $(CFLAGS)
fr_prog_link = -ldl -lm -lpthread
fr_prog_built =
fr_prog_objects =

# A Fortran program is its source and the C side of it, compiled once for each of the three
# interfaces: NAME_mpifh, NAME_mpi and NAME_f08. -std=legacy lets mpif.h take any type of buffer.
fr_prog_fortran = transpose halo reductions
fr_prog_fortran_names = $(fr_prog_fortran:%=%_mpifh) $(fr_prog_fortran:%=%_mpi) \
    $(fr_prog_fortran:%=%_f08)
fr_prog_fortran_files = $(fr_prog_fortran:%=tests/programs/fortran/%.F90) \
    tests/programs/fortran/interface.inc tests/programs/fortran/init.inc
fr_prog_source = $(srcdir)/tests/programs/fortran/$(firstword $(subst _, ,$*)).F90
fr_prog_interface = -DFORTRAN_$(lastword $(subst _, ,$*))
fr_prog_fcflags = -g -O2 -w -std=legacy -ffree-line-length-none $(filter -fsanitize=%,$(CFLAGS)) \
    -I$(srcdir)/tests/programs/fortran

EXTRA_DIST += tests/programs/list tests/programs/README.md $(fr_prog_headers) $(fr_prog_names:%=tests/programs/%.c) \
    $(fr_prog_shared:%=tests/programs/%.c) $(fr_prog_random:%=tests/programs/%.c) \
    $(fr_prog_corners:%=tests/programs/%.c) \
    tests/programs/fortran/main.c $(fr_prog_fortran_files) \
    tests/programs/python/driver.py tests/programs/python/harness.py \
    tests/programs/python/exchange.py tests/programs/python/collective.py
check_DATA += $(fr_prog_built)
CLEANFILES += $(fr_prog_built) $(fr_prog_objects)

programs: $(fr_prog_built)
.PHONY: programs

if HAVE_OPENMPI
fr_prog_openmpi = $(fr_prog_names:%=tests/programs/%-openmpi)
fr_prog_large_openmpi = $(fr_prog_large:%=tests/programs/%_c-openmpi)
fr_prog_shared_openmpi = $(fr_prog_shared:%=tests/programs/%-openmpi.o)
fr_prog_shared_large_openmpi = $(fr_prog_shared:%=tests/programs/%_c-openmpi.o)
fr_prog_random_openmpi = $(fr_prog_random:%=tests/programs/%-openmpi.o)
fr_prog_corners_openmpi = $(fr_prog_corners:%=tests/programs/%-openmpi.o)
fr_prog_objects_openmpi = $(fr_prog_openmpi:%=%.o) $(fr_prog_shared_openmpi) $(fr_prog_random_openmpi) \
    $(fr_prog_corners_openmpi)
fr_prog_objects_large_openmpi = $(fr_prog_large_openmpi:%=%.o) $(fr_prog_shared_large_openmpi)
fr_prog_built += $(fr_prog_openmpi) $(fr_prog_large_openmpi)
fr_prog_objects += $(fr_prog_objects_openmpi) $(fr_prog_objects_large_openmpi)
$(fr_prog_objects_openmpi): tests/programs/%-openmpi.o: tests/programs/%.c $(fr_prog_headers)
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_CC)$(OPENMPI_MPICC) $(fr_prog_flags) -c -o $@ $<
$(fr_prog_objects_large_openmpi): tests/programs/%_c-openmpi.o: tests/programs/%.c $(fr_prog_headers)
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_CC)$(OPENMPI_MPICC) $(fr_prog_flags) -DLARGE_COUNTS -c -o $@ $<
$(fr_prog_large_openmpi): %: %.o $(fr_prog_shared_large_openmpi)
	$(AM_V_CCLD)$(OPENMPI_MPICC) $(CFLAGS) $(LDFLAGS) -o $@ $@.o $(fr_prog_shared_large_openmpi) $(fr_prog_link)
$(fr_prog_openmpi): %: %.o $(fr_prog_shared_openmpi)
	$(AM_V_CCLD)$(OPENMPI_MPICC) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(fr_prog_link)
tests/programs/random-openmpi: $(fr_prog_random_openmpi)
tests/programs/corners-openmpi: $(fr_prog_corners_openmpi)
if HAVE_OPENMPI_FORTRAN
fr_prog_fortran_openmpi = $(fr_prog_fortran_names:%=tests/programs/%-openmpi)
fr_prog_built += $(fr_prog_fortran_openmpi)
fr_prog_objects += $(fr_prog_fortran_openmpi:%=%.o) $(fr_prog_fortran_openmpi:%=%-main.o)
$(fr_prog_fortran_openmpi:%=%-main.o): tests/programs/%-openmpi-main.o: tests/programs/fortran/main.c \
    $(fr_prog_headers)
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_CC)$(OPENMPI_MPICC) $(fr_prog_flags) -DFORTRAN_PROGRAM='"$*"' -c -o $@ $<
$(fr_prog_fortran_openmpi:%=%.o): tests/programs/%-openmpi.o: $(fr_prog_fortran_files)
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_GEN)$(OPENMPI_MPIFC) $(fr_prog_fcflags) $(fr_prog_interface) -c -o $@ $(fr_prog_source)
$(fr_prog_fortran_openmpi): %: %.o %-main.o $(fr_prog_shared_openmpi)
	$(AM_V_CCLD)$(OPENMPI_MPIFC) $(fr_prog_fcflags) $(LDFLAGS) -o $@ $@.o $@-main.o \
	    $(fr_prog_shared_openmpi) $(fr_prog_link)
endif
endif

if HAVE_MPICH
fr_prog_mpich = $(fr_prog_names:%=tests/programs/%-mpich)
fr_prog_large_mpich = $(fr_prog_large:%=tests/programs/%_c-mpich)
fr_prog_shared_mpich = $(fr_prog_shared:%=tests/programs/%-mpich.o)
fr_prog_shared_large_mpich = $(fr_prog_shared:%=tests/programs/%_c-mpich.o)
fr_prog_random_mpich = $(fr_prog_random:%=tests/programs/%-mpich.o)
fr_prog_corners_mpich = $(fr_prog_corners:%=tests/programs/%-mpich.o)
fr_prog_objects_mpich = $(fr_prog_mpich:%=%.o) $(fr_prog_shared_mpich) $(fr_prog_random_mpich) \
    $(fr_prog_corners_mpich)
fr_prog_objects_large_mpich = $(fr_prog_large_mpich:%=%.o) $(fr_prog_shared_large_mpich)
fr_prog_built += $(fr_prog_mpich) $(fr_prog_large_mpich)
fr_prog_objects += $(fr_prog_objects_mpich) $(fr_prog_objects_large_mpich)
$(fr_prog_objects_mpich): tests/programs/%-mpich.o: tests/programs/%.c $(fr_prog_headers)
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_CC)$(MPICH_MPICC) $(fr_prog_flags) -c -o $@ $<
$(fr_prog_objects_large_mpich): tests/programs/%_c-mpich.o: tests/programs/%.c $(fr_prog_headers)
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_CC)$(MPICH_MPICC) $(fr_prog_flags) -DLARGE_COUNTS -c -o $@ $<
$(fr_prog_large_mpich): %: %.o $(fr_prog_shared_large_mpich)
	$(AM_V_CCLD)$(MPICH_MPICC) $(CFLAGS) $(LDFLAGS) -o $@ $@.o $(fr_prog_shared_large_mpich) $(fr_prog_link)
$(fr_prog_mpich): %: %.o $(fr_prog_shared_mpich)
	$(AM_V_CCLD)$(MPICH_MPICC) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(fr_prog_link)
tests/programs/random-mpich: $(fr_prog_random_mpich)
tests/programs/corners-mpich: $(fr_prog_corners_mpich)
if HAVE_MPICH_FORTRAN
fr_prog_fortran_mpich = $(fr_prog_fortran_names:%=tests/programs/%-mpich)
fr_prog_built += $(fr_prog_fortran_mpich)
fr_prog_objects += $(fr_prog_fortran_mpich:%=%.o) $(fr_prog_fortran_mpich:%=%-main.o)
$(fr_prog_fortran_mpich:%=%-main.o): tests/programs/%-mpich-main.o: tests/programs/fortran/main.c \
    $(fr_prog_headers)
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_CC)$(MPICH_MPICC) $(fr_prog_flags) -DFORTRAN_PROGRAM='"$*"' -c -o $@ $<
$(fr_prog_fortran_mpich:%=%.o): tests/programs/%-mpich.o: $(fr_prog_fortran_files)
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_GEN)$(MPICH_MPIFC) $(fr_prog_fcflags) $(fr_prog_interface) -c -o $@ $(fr_prog_source)
$(fr_prog_fortran_mpich): %: %.o %-main.o $(fr_prog_shared_mpich)
	$(AM_V_CCLD)$(MPICH_MPIFC) $(fr_prog_fcflags) $(LDFLAGS) -o $@ $@.o $@-main.o \
	    $(fr_prog_shared_mpich) $(fr_prog_link)
endif
endif

if HAVE_OPENMPI5
fr_prog_openmpi5 = $(fr_prog_names:%=tests/programs/%-openmpi5)
fr_prog_large_openmpi5 = $(fr_prog_large:%=tests/programs/%_c-openmpi5)
fr_prog_shared_openmpi5 = $(fr_prog_shared:%=tests/programs/%-openmpi5.o)
fr_prog_shared_large_openmpi5 = $(fr_prog_shared:%=tests/programs/%_c-openmpi5.o)
fr_prog_random_openmpi5 = $(fr_prog_random:%=tests/programs/%-openmpi5.o)
fr_prog_corners_openmpi5 = $(fr_prog_corners:%=tests/programs/%-openmpi5.o)
fr_prog_objects_openmpi5 = $(fr_prog_openmpi5:%=%.o) $(fr_prog_shared_openmpi5) $(fr_prog_random_openmpi5) \
    $(fr_prog_corners_openmpi5)
fr_prog_objects_large_openmpi5 = $(fr_prog_large_openmpi5:%=%.o) $(fr_prog_shared_large_openmpi5)
fr_prog_built += $(fr_prog_openmpi5) $(fr_prog_large_openmpi5)
fr_prog_objects += $(fr_prog_objects_openmpi5) $(fr_prog_objects_large_openmpi5)
$(fr_prog_objects_openmpi5): tests/programs/%-openmpi5.o: tests/programs/%.c $(fr_prog_headers)
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_CC)$(OPENMPI5_MPICC) $(fr_prog_flags) -c -o $@ $<
$(fr_prog_objects_large_openmpi5): tests/programs/%_c-openmpi5.o: tests/programs/%.c $(fr_prog_headers)
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_CC)$(OPENMPI5_MPICC) $(fr_prog_flags) -DLARGE_COUNTS -c -o $@ $<
$(fr_prog_large_openmpi5): %: %.o $(fr_prog_shared_large_openmpi5)
	$(AM_V_CCLD)$(OPENMPI5_MPICC) $(CFLAGS) $(LDFLAGS) -o $@ $@.o $(fr_prog_shared_large_openmpi5) $(fr_prog_link)
$(fr_prog_openmpi5): %: %.o $(fr_prog_shared_openmpi5)
	$(AM_V_CCLD)$(OPENMPI5_MPICC) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(fr_prog_link)
tests/programs/random-openmpi5: $(fr_prog_random_openmpi5)
tests/programs/corners-openmpi5: $(fr_prog_corners_openmpi5)
if HAVE_OPENMPI5_FORTRAN
fr_prog_fortran_openmpi5 = $(fr_prog_fortran_names:%=tests/programs/%-openmpi5)
fr_prog_built += $(fr_prog_fortran_openmpi5)
fr_prog_objects += $(fr_prog_fortran_openmpi5:%=%.o) $(fr_prog_fortran_openmpi5:%=%-main.o)
$(fr_prog_fortran_openmpi5:%=%-main.o): tests/programs/%-openmpi5-main.o: tests/programs/fortran/main.c \
    $(fr_prog_headers)
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_CC)$(OPENMPI5_MPICC) $(fr_prog_flags) -DFORTRAN_PROGRAM='"$*"' -c -o $@ $<
$(fr_prog_fortran_openmpi5:%=%.o): tests/programs/%-openmpi5.o: $(fr_prog_fortran_files)
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_GEN)$(OPENMPI5_MPIFC) $(fr_prog_fcflags) $(fr_prog_interface) -c -o $@ $(fr_prog_source)
$(fr_prog_fortran_openmpi5): %: %.o %-main.o $(fr_prog_shared_openmpi5)
	$(AM_V_CCLD)$(OPENMPI5_MPIFC) $(fr_prog_fcflags) $(LDFLAGS) -o $@ $@.o $@-main.o \
	    $(fr_prog_shared_openmpi5) $(fr_prog_link)
endif
endif

if HAVE_MPICH5
fr_prog_mpich5 = $(fr_prog_names:%=tests/programs/%-mpich5)
fr_prog_large_mpich5 = $(fr_prog_large:%=tests/programs/%_c-mpich5)
fr_prog_shared_mpich5 = $(fr_prog_shared:%=tests/programs/%-mpich5.o)
fr_prog_shared_large_mpich5 = $(fr_prog_shared:%=tests/programs/%_c-mpich5.o)
fr_prog_random_mpich5 = $(fr_prog_random:%=tests/programs/%-mpich5.o)
fr_prog_corners_mpich5 = $(fr_prog_corners:%=tests/programs/%-mpich5.o)
fr_prog_objects_mpich5 = $(fr_prog_mpich5:%=%.o) $(fr_prog_shared_mpich5) $(fr_prog_random_mpich5) \
    $(fr_prog_corners_mpich5)
fr_prog_objects_large_mpich5 = $(fr_prog_large_mpich5:%=%.o) $(fr_prog_shared_large_mpich5)
fr_prog_built += $(fr_prog_mpich5) $(fr_prog_large_mpich5)
fr_prog_objects += $(fr_prog_objects_mpich5) $(fr_prog_objects_large_mpich5)
$(fr_prog_objects_mpich5): tests/programs/%-mpich5.o: tests/programs/%.c $(fr_prog_headers)
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_CC)$(MPICH5_MPICC) $(fr_prog_flags) -c -o $@ $<
$(fr_prog_objects_large_mpich5): tests/programs/%_c-mpich5.o: tests/programs/%.c $(fr_prog_headers)
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_CC)$(MPICH5_MPICC) $(fr_prog_flags) -DLARGE_COUNTS -c -o $@ $<
$(fr_prog_large_mpich5): %: %.o $(fr_prog_shared_large_mpich5)
	$(AM_V_CCLD)$(MPICH5_MPICC) $(CFLAGS) $(LDFLAGS) -o $@ $@.o $(fr_prog_shared_large_mpich5) $(fr_prog_link)
$(fr_prog_mpich5): %: %.o $(fr_prog_shared_mpich5)
	$(AM_V_CCLD)$(MPICH5_MPICC) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(fr_prog_link)
tests/programs/random-mpich5: $(fr_prog_random_mpich5)
tests/programs/corners-mpich5: $(fr_prog_corners_mpich5)
if HAVE_MPICH5_FORTRAN
fr_prog_fortran_mpich5 = $(fr_prog_fortran_names:%=tests/programs/%-mpich5)
fr_prog_built += $(fr_prog_fortran_mpich5)
fr_prog_objects += $(fr_prog_fortran_mpich5:%=%.o) $(fr_prog_fortran_mpich5:%=%-main.o)
$(fr_prog_fortran_mpich5:%=%-main.o): tests/programs/%-mpich5-main.o: tests/programs/fortran/main.c \
    $(fr_prog_headers)
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_CC)$(MPICH5_MPICC) $(fr_prog_flags) -DFORTRAN_PROGRAM='"$*"' -c -o $@ $<
$(fr_prog_fortran_mpich5:%=%.o): tests/programs/%-mpich5.o: $(fr_prog_fortran_files)
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_GEN)$(MPICH5_MPIFC) $(fr_prog_fcflags) $(fr_prog_interface) -c -o $@ $(fr_prog_source)
$(fr_prog_fortran_mpich5): %: %.o %-main.o $(fr_prog_shared_mpich5)
	$(AM_V_CCLD)$(MPICH5_MPIFC) $(fr_prog_fcflags) $(LDFLAGS) -o $@ $@.o $@-main.o \
	    $(fr_prog_shared_mpich5) $(fr_prog_link)
endif
endif

if HAVE_MPIABI
fr_prog_mpiabi = $(fr_prog_names:%=tests/programs/%-mpiabi)
fr_prog_large_mpiabi = $(fr_prog_large:%=tests/programs/%_c-mpiabi)
fr_prog_shared_mpiabi = $(fr_prog_shared:%=tests/programs/%-mpiabi.o)
fr_prog_shared_large_mpiabi = $(fr_prog_shared:%=tests/programs/%_c-mpiabi.o)
fr_prog_random_mpiabi = $(fr_prog_random:%=tests/programs/%-mpiabi.o)
fr_prog_corners_mpiabi = $(fr_prog_corners:%=tests/programs/%-mpiabi.o)
fr_prog_objects_mpiabi = $(fr_prog_mpiabi:%=%.o) $(fr_prog_shared_mpiabi) $(fr_prog_random_mpiabi) \
    $(fr_prog_corners_mpiabi)
fr_prog_objects_large_mpiabi = $(fr_prog_large_mpiabi:%=%.o) $(fr_prog_shared_large_mpiabi)
fr_prog_built += $(fr_prog_mpiabi) $(fr_prog_large_mpiabi)
fr_prog_objects += $(fr_prog_objects_mpiabi) $(fr_prog_objects_large_mpiabi)
$(fr_prog_objects_mpiabi): tests/programs/%-mpiabi.o: tests/programs/%.c $(fr_prog_headers)
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_CC)$(MPIABI_MPICC) $(fr_prog_flags) -c -o $@ $<
$(fr_prog_objects_large_mpiabi): tests/programs/%_c-mpiabi.o: tests/programs/%.c $(fr_prog_headers)
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_CC)$(MPIABI_MPICC) $(fr_prog_flags) -DLARGE_COUNTS -c -o $@ $<
$(fr_prog_large_mpiabi): %: %.o $(fr_prog_shared_large_mpiabi)
	$(AM_V_CCLD)$(MPIABI_MPICC) $(CFLAGS) $(LDFLAGS) -o $@ $@.o $(fr_prog_shared_large_mpiabi) $(fr_prog_link)
$(fr_prog_mpiabi): %: %.o $(fr_prog_shared_mpiabi)
	$(AM_V_CCLD)$(MPIABI_MPICC) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(fr_prog_link)
tests/programs/random-mpiabi: $(fr_prog_random_mpiabi)
tests/programs/corners-mpiabi: $(fr_prog_corners_mpiabi)
if HAVE_MPIABI_FORTRAN
fr_prog_fortran_mpiabi = $(fr_prog_fortran_names:%=tests/programs/%-mpiabi)
fr_prog_built += $(fr_prog_fortran_mpiabi)
fr_prog_objects += $(fr_prog_fortran_mpiabi:%=%.o) $(fr_prog_fortran_mpiabi:%=%-main.o)
$(fr_prog_fortran_mpiabi:%=%-main.o): tests/programs/%-mpiabi-main.o: tests/programs/fortran/main.c \
    $(fr_prog_headers)
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_CC)$(MPIABI_MPICC) $(fr_prog_flags) -DFORTRAN_PROGRAM='"$*"' -c -o $@ $<
$(fr_prog_fortran_mpiabi:%=%.o): tests/programs/%-mpiabi.o: $(fr_prog_fortran_files)
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_GEN)$(MPIABI_MPIFC) $(fr_prog_fcflags) $(fr_prog_interface) -c -o $@ $(fr_prog_source)
$(fr_prog_fortran_mpiabi): %: %.o %-main.o $(fr_prog_shared_mpiabi)
	$(AM_V_CCLD)$(MPIABI_MPIFC) $(fr_prog_fcflags) $(LDFLAGS) -o $@ $@.o $@-main.o \
	    $(fr_prog_shared_mpiabi) $(fr_prog_link)
endif
endif
