# SPDX-License-Identifier: BSD-3-Clause
# The included MPI programs, built once for every MPI flavour that configure found: NAME-FLAVOUR.
fr_prog_names = transpose ring matching reductions halo neighbours collectives persistent \
    onesided pack partitioned fileio threads
fr_prog_shared = harness buffer memory plan types completion
fr_prog_headers = tests/programs/harness.h tests/programs/memory.h tests/programs/plan.h \
    tests/programs/types.h tests/programs/completion.h
fr_prog_flags = -std=gnu11 -Wall -Wextra $(filter -Werror,$(FR_CFLAGS)) $(CUDA_CPPFLAGS) $(CFLAGS)
fr_prog_link = -ldl -lm -lpthread
fr_prog_built =
fr_prog_objects =

EXTRA_DIST += tests/programs/list $(fr_prog_headers) $(fr_prog_names:%=tests/programs/%.c) \
    $(fr_prog_shared:%=tests/programs/%.c)
check_DATA += $(fr_prog_built)
CLEANFILES += $(fr_prog_built) $(fr_prog_objects)

programs: $(fr_prog_built)
.PHONY: programs

if HAVE_OPENMPI
fr_prog_openmpi = $(fr_prog_names:%=tests/programs/%-openmpi)
fr_prog_shared_openmpi = $(fr_prog_shared:%=tests/programs/%-openmpi.o)
fr_prog_objects_openmpi = $(fr_prog_openmpi:%=%.o) $(fr_prog_shared_openmpi)
fr_prog_built += $(fr_prog_openmpi)
fr_prog_objects += $(fr_prog_objects_openmpi)
$(fr_prog_objects_openmpi): tests/programs/%-openmpi.o: tests/programs/%.c $(fr_prog_headers)
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_CC)$(OPENMPI_MPICC) $(fr_prog_flags) -c -o $@ $<
$(fr_prog_openmpi): %: %.o $(fr_prog_shared_openmpi)
	$(AM_V_CCLD)$(OPENMPI_MPICC) $(CFLAGS) $(LDFLAGS) -o $@ $@.o $(fr_prog_shared_openmpi) $(fr_prog_link)
endif

if HAVE_MPICH
fr_prog_mpich = $(fr_prog_names:%=tests/programs/%-mpich)
fr_prog_shared_mpich = $(fr_prog_shared:%=tests/programs/%-mpich.o)
fr_prog_objects_mpich = $(fr_prog_mpich:%=%.o) $(fr_prog_shared_mpich)
fr_prog_built += $(fr_prog_mpich)
fr_prog_objects += $(fr_prog_objects_mpich)
$(fr_prog_objects_mpich): tests/programs/%-mpich.o: tests/programs/%.c $(fr_prog_headers)
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_CC)$(MPICH_MPICC) $(fr_prog_flags) -c -o $@ $<
$(fr_prog_mpich): %: %.o $(fr_prog_shared_mpich)
	$(AM_V_CCLD)$(MPICH_MPICC) $(CFLAGS) $(LDFLAGS) -o $@ $@.o $(fr_prog_shared_mpich) $(fr_prog_link)
endif

if HAVE_OPENMPI5
fr_prog_openmpi5 = $(fr_prog_names:%=tests/programs/%-openmpi5)
fr_prog_shared_openmpi5 = $(fr_prog_shared:%=tests/programs/%-openmpi5.o)
fr_prog_objects_openmpi5 = $(fr_prog_openmpi5:%=%.o) $(fr_prog_shared_openmpi5)
fr_prog_built += $(fr_prog_openmpi5)
fr_prog_objects += $(fr_prog_objects_openmpi5)
$(fr_prog_objects_openmpi5): tests/programs/%-openmpi5.o: tests/programs/%.c $(fr_prog_headers)
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_CC)$(OPENMPI5_MPICC) $(fr_prog_flags) -c -o $@ $<
$(fr_prog_openmpi5): %: %.o $(fr_prog_shared_openmpi5)
	$(AM_V_CCLD)$(OPENMPI5_MPICC) $(CFLAGS) $(LDFLAGS) -o $@ $@.o $(fr_prog_shared_openmpi5) $(fr_prog_link)
endif

if HAVE_MPICH5
fr_prog_mpich5 = $(fr_prog_names:%=tests/programs/%-mpich5)
fr_prog_shared_mpich5 = $(fr_prog_shared:%=tests/programs/%-mpich5.o)
fr_prog_objects_mpich5 = $(fr_prog_mpich5:%=%.o) $(fr_prog_shared_mpich5)
fr_prog_built += $(fr_prog_mpich5)
fr_prog_objects += $(fr_prog_objects_mpich5)
$(fr_prog_objects_mpich5): tests/programs/%-mpich5.o: tests/programs/%.c $(fr_prog_headers)
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_CC)$(MPICH5_MPICC) $(fr_prog_flags) -c -o $@ $<
$(fr_prog_mpich5): %: %.o $(fr_prog_shared_mpich5)
	$(AM_V_CCLD)$(MPICH5_MPICC) $(CFLAGS) $(LDFLAGS) -o $@ $@.o $(fr_prog_shared_mpich5) $(fr_prog_link)
endif

if HAVE_MPIABI
fr_prog_mpiabi = $(fr_prog_names:%=tests/programs/%-mpiabi)
fr_prog_shared_mpiabi = $(fr_prog_shared:%=tests/programs/%-mpiabi.o)
fr_prog_objects_mpiabi = $(fr_prog_mpiabi:%=%.o) $(fr_prog_shared_mpiabi)
fr_prog_built += $(fr_prog_mpiabi)
fr_prog_objects += $(fr_prog_objects_mpiabi)
$(fr_prog_objects_mpiabi): tests/programs/%-mpiabi.o: tests/programs/%.c $(fr_prog_headers)
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_CC)$(MPIABI_MPICC) $(fr_prog_flags) -c -o $@ $<
$(fr_prog_mpiabi): %: %.o $(fr_prog_shared_mpiabi)
	$(AM_V_CCLD)$(MPIABI_MPICC) $(CFLAGS) $(LDFLAGS) -o $@ $@.o $(fr_prog_shared_mpiabi) $(fr_prog_link)
endif
