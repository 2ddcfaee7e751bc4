# The included MPI programs, built once for every MPI flavour that configure found: NAME-FLAVOUR.
FR_PROGRAM_NAMES = transpose ring matching
FR_PROGRAM_SHARED = harness buffer memory plan
fr_program_includes = tests/programs/harness.h tests/programs/memory.h tests/programs/plan.h
fr_program_files = $(FR_PROGRAM_NAMES:%=tests/programs/%.c) $(FR_PROGRAM_SHARED:%=tests/programs/%.c)
FR_PROGRAM_FLAGS = -std=gnu11 -Wall -Wextra $(FR_PROGRAM_WERROR) $(CUDA_CPPFLAGS) $(CFLAGS)
FR_PROGRAM_LIBS = -ldl -lm -lpthread
fr_programs =
fr_program_objects =

EXTRA_DIST += tests/programs/list $(fr_program_files) $(fr_program_includes)
check_DATA += $(fr_programs)
CLEANFILES += $(fr_programs) $(fr_program_objects)

programs: $(fr_programs)
.PHONY: programs

if HAVE_OPENMPI
FR_PROGRAMS_OPENMPI = $(FR_PROGRAM_NAMES:%=tests/programs/%-openmpi)
FR_PROGRAM_SHARED_OPENMPI = $(FR_PROGRAM_SHARED:%=tests/programs/%-openmpi.o)
FR_PROGRAM_OBJECTS_OPENMPI = $(FR_PROGRAMS_OPENMPI:%=%.o) $(FR_PROGRAM_SHARED_OPENMPI)
fr_programs += $(FR_PROGRAMS_OPENMPI)
fr_program_objects += $(FR_PROGRAM_OBJECTS_OPENMPI)
$(FR_PROGRAM_OBJECTS_OPENMPI): tests/programs/%-openmpi.o: tests/programs/%.c $(fr_program_includes)
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_CC)$(OPENMPI_MPICC) $(FR_PROGRAM_FLAGS) -c -o $@ $<
$(FR_PROGRAMS_OPENMPI): %: %.o $(FR_PROGRAM_SHARED_OPENMPI)
	$(AM_V_CCLD)$(OPENMPI_MPICC) $(CFLAGS) $(LDFLAGS) -o $@ $@.o $(FR_PROGRAM_SHARED_OPENMPI) $(FR_PROGRAM_LIBS)
endif

if HAVE_MPICH
FR_PROGRAMS_MPICH = $(FR_PROGRAM_NAMES:%=tests/programs/%-mpich)
FR_PROGRAM_SHARED_MPICH = $(FR_PROGRAM_SHARED:%=tests/programs/%-mpich.o)
FR_PROGRAM_OBJECTS_MPICH = $(FR_PROGRAMS_MPICH:%=%.o) $(FR_PROGRAM_SHARED_MPICH)
fr_programs += $(FR_PROGRAMS_MPICH)
fr_program_objects += $(FR_PROGRAM_OBJECTS_MPICH)
$(FR_PROGRAM_OBJECTS_MPICH): tests/programs/%-mpich.o: tests/programs/%.c $(fr_program_includes)
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_CC)$(MPICH_MPICC) $(FR_PROGRAM_FLAGS) -c -o $@ $<
$(FR_PROGRAMS_MPICH): %: %.o $(FR_PROGRAM_SHARED_MPICH)
	$(AM_V_CCLD)$(MPICH_MPICC) $(CFLAGS) $(LDFLAGS) -o $@ $@.o $(FR_PROGRAM_SHARED_MPICH) $(FR_PROGRAM_LIBS)
endif

if HAVE_OPENMPI5
FR_PROGRAMS_OPENMPI5 = $(FR_PROGRAM_NAMES:%=tests/programs/%-openmpi5)
FR_PROGRAM_SHARED_OPENMPI5 = $(FR_PROGRAM_SHARED:%=tests/programs/%-openmpi5.o)
FR_PROGRAM_OBJECTS_OPENMPI5 = $(FR_PROGRAMS_OPENMPI5:%=%.o) $(FR_PROGRAM_SHARED_OPENMPI5)
fr_programs += $(FR_PROGRAMS_OPENMPI5)
fr_program_objects += $(FR_PROGRAM_OBJECTS_OPENMPI5)
$(FR_PROGRAM_OBJECTS_OPENMPI5): tests/programs/%-openmpi5.o: tests/programs/%.c $(fr_program_includes)
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_CC)$(OPENMPI5_MPICC) $(FR_PROGRAM_FLAGS) -c -o $@ $<
$(FR_PROGRAMS_OPENMPI5): %: %.o $(FR_PROGRAM_SHARED_OPENMPI5)
	$(AM_V_CCLD)$(OPENMPI5_MPICC) $(CFLAGS) $(LDFLAGS) -o $@ $@.o $(FR_PROGRAM_SHARED_OPENMPI5) $(FR_PROGRAM_LIBS)
endif

if HAVE_MPICH5
FR_PROGRAMS_MPICH5 = $(FR_PROGRAM_NAMES:%=tests/programs/%-mpich5)
FR_PROGRAM_SHARED_MPICH5 = $(FR_PROGRAM_SHARED:%=tests/programs/%-mpich5.o)
FR_PROGRAM_OBJECTS_MPICH5 = $(FR_PROGRAMS_MPICH5:%=%.o) $(FR_PROGRAM_SHARED_MPICH5)
fr_programs += $(FR_PROGRAMS_MPICH5)
fr_program_objects += $(FR_PROGRAM_OBJECTS_MPICH5)
$(FR_PROGRAM_OBJECTS_MPICH5): tests/programs/%-mpich5.o: tests/programs/%.c $(fr_program_includes)
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_CC)$(MPICH5_MPICC) $(FR_PROGRAM_FLAGS) -c -o $@ $<
$(FR_PROGRAMS_MPICH5): %: %.o $(FR_PROGRAM_SHARED_MPICH5)
	$(AM_V_CCLD)$(MPICH5_MPICC) $(CFLAGS) $(LDFLAGS) -o $@ $@.o $(FR_PROGRAM_SHARED_MPICH5) $(FR_PROGRAM_LIBS)
endif

if HAVE_MPIABI
FR_PROGRAMS_MPIABI = $(FR_PROGRAM_NAMES:%=tests/programs/%-mpiabi)
FR_PROGRAM_SHARED_MPIABI = $(FR_PROGRAM_SHARED:%=tests/programs/%-mpiabi.o)
FR_PROGRAM_OBJECTS_MPIABI = $(FR_PROGRAMS_MPIABI:%=%.o) $(FR_PROGRAM_SHARED_MPIABI)
fr_programs += $(FR_PROGRAMS_MPIABI)
fr_program_objects += $(FR_PROGRAM_OBJECTS_MPIABI)
$(FR_PROGRAM_OBJECTS_MPIABI): tests/programs/%-mpiabi.o: tests/programs/%.c $(fr_program_includes)
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_CC)$(MPIABI_MPICC) $(FR_PROGRAM_FLAGS) -c -o $@ $<
$(FR_PROGRAMS_MPIABI): %: %.o $(FR_PROGRAM_SHARED_MPIABI)
	$(AM_V_CCLD)$(MPIABI_MPICC) $(CFLAGS) $(LDFLAGS) -o $@ $@.o $(FR_PROGRAM_SHARED_MPIABI) $(FR_PROGRAM_LIBS)
endif

