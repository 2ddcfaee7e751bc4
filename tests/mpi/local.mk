# The included programs under each MPI that configure found, and the runner that starts them.
fr_mpi_tests = tests/mpi/programs-openmpi.test tests/mpi/programs-mpich.test \
    tests/mpi/programs-openmpi5.test tests/mpi/programs-mpich5.test tests/mpi/programs-mpiabi.test \
    tests/mpi/layout.test tests/mpi/world.test tests/mpi/random.test tests/mpi/faults.test \
    tests/mpi/fabric.test tests/mpi/pipeline.test tests/mpi/clique.test tests/mpi/kept.test tests/mpi/failed.test \
    tests/mpi/unnoticed.test tests/mpi/mixed.test tests/mpi/alike.test tests/mpi/control.test \
    tests/mpi/report.test tests/mpi/across.test tests/mpi/rail.test tests/mpi/hmem.test tests/mpi/slurm.test \
    tests/mpi/shm.test tests/mpi/far.test tests/mpi/bounds.test tests/mpi/types.test
EXTRA_DIST += $(fr_mpi_tests) tests/mpi/programs tests/mpi/run-program \
    tests/mpi/check-report.py tests/mpi/check-sanitizer.py tests/mpi/check-fabric.py \
    tests/mpi/report-check.py tests/mpi/report_run.c \
    tests/mpi/fault.sh tests/mpi/hosts.sh tests/mpi/odd-rank tests/mpi/private_slurm.sh

# Tests that look into the library and call an MPI: NAME-FLAVOUR, linked with all rooms.
fr_layout_sources = tests/mpi/layout_bytes.c tests/mpi/layout_random.c tests/mpi/layout_test.c \
    tests/mpi/layout_types.c
fr_layout_tests = $(MPI_FLAVOURS:%=tests/mpi/layout_test-%)
EXTRA_DIST += $(fr_layout_sources) tests/mpi/layout_test.h tests/mpi/layout_types.h
fr_world_tests = $(MPI_FLAVOURS:%=tests/mpi/world_test-%)
# With the stubs too, so that its own calls go through them.
fr_names_tests = $(MPI_FLAVOURS:%=tests/mpi/names_test-%)
fr_control_tests = $(MPI_FLAVOURS:%=tests/mpi/control_test-%)
EXTRA_DIST += tests/mpi/world_test.c tests/mpi/names_test.c tests/mpi/control_test.c
CLEANFILES += $(fr_control_tests)
# A program that sees which pointers MPI is given, on the simulated device.
fr_fabric_sources = tests/mpi/fabric.c tests/mpi/fabric_calls.c
fr_fabric_headers = tests/mpi/fabric.h tests/programs/memory.h tests/sim/touch.h
fr_fabric_programs = $(MPI_FLAVOURS:%=tests/mpi/fabric-%)
EXTRA_DIST += $(fr_fabric_sources) tests/mpi/fabric.h
# A program of what an application must not notice.
fr_unnoticed_sources = tests/mpi/unnoticed.c tests/mpi/unnoticed_progress.c \
    tests/mpi/unnoticed_comms.c \
    tests/mpi/unnoticed_requests.c \
    tests/mpi/unnoticed_messages.c \
    tests/mpi/unnoticed_spawn.c \
    tests/mpi/unnoticed_attach.c \
    tests/mpi/unnoticed_threads.c \
    tests/mpi/unnoticed_within.c \
    tests/mpi/unnoticed_held.c
fr_unnoticed_programs = $(MPI_FLAVOURS:%=tests/mpi/unnoticed-%)
EXTRA_DIST += $(fr_unnoticed_sources) tests/mpi/unnoticed.h
# A program whose output is the same with and without the preload.
fr_alike_sources = tests/mpi/alike.c tests/mpi/alike_types.c tests/mpi/alike_messages.c \
    tests/mpi/alike_collectives.c tests/mpi/alike_objects.c tests/mpi/alike_errors.c \
    tests/mpi/alike_refused.c
fr_alike_programs = $(MPI_FLAVOURS:%=tests/mpi/alike-%)
EXTRA_DIST += $(fr_alike_sources) tests/mpi/alike.h
CLEANFILES += $(fr_alike_programs)
CLEANFILES += $(fr_layout_tests) $(fr_world_tests) $(fr_fabric_programs) $(fr_unnoticed_programs) \
    $(fr_names_tests)
# A program of collectives between hosts, and what counts the messages that they take.
fr_across_programs = $(MPI_FLAVOURS:%=tests/mpi/across-%)
EXTRA_DIST += tests/mpi/across.c tests/mpi/count.c
CLEANFILES += $(fr_across_programs) tests/mpi/libfrcount.so \
    tests/mpi/libfrshm.so $(MPI_FLAVOURS:%=tests/bench/job-%)
# A program that measures what waiting messages take.
fr_bounds_programs = $(MPI_FLAVOURS:%=tests/mpi/bounds-%)
EXTRA_DIST += tests/mpi/bounds.c
CLEANFILES += $(fr_bounds_programs)
fr_report_programs = $(MPI_FLAVOURS:%=tests/mpi/report_run-%)
CLEANFILES += $(fr_report_programs)
# What run-program preloads into the ranks of an MPICH.
EXTRA_DIST += tests/mpi/yield.c
CLEANFILES += tests/mpi/libfryield.so
# What has Fabrail's shared memory in another folder.
EXTRA_DIST += tests/mpi/shm.c
CLEANFILES += tests/mpi/libfrshm.so
# A tool for the ranges of NVTX.
EXTRA_DIST += tests/mpi/nvtx.c
CLEANFILES += tests/mpi/libfrnvtx.so
fr_mpicc_openmpi = $(OPENMPI_MPICC)
fr_mpicc_openmpi5 = $(OPENMPI5_MPICC)
fr_mpicc_mpich = $(MPICH_MPICC)
fr_mpicc_mpich5 = $(MPICH5_MPICC)
fr_mpicc_mpiabi = $(MPIABI_MPICC)

if !CROSS_COMPILING
TESTS += $(fr_mpi_tests)
check_DATA += $(fr_layout_tests) $(fr_world_tests) $(fr_control_tests) $(fr_fabric_programs) \
    $(fr_unnoticed_programs) $(fr_alike_programs) $(fr_names_tests) $(fr_report_programs) \
    tests/mpi/libfryield.so $(fr_bounds_programs) $(fr_across_programs) tests/mpi/libfrcount.so \
    tests/mpi/libfrshm.so $(MPI_FLAVOURS:%=tests/bench/job-%)
fr_compile_with_rooms = $(MKDIR_P) $(@D) && $(fr_mpicc_$*) $(DEFS) $(DEFAULT_INCLUDES) \
    $(AM_CPPFLAGS) $(CPPFLAGS) -std=gnu11 -Wall -Wextra $(FR_PROGRAM_WERROR) $(CFLAGS) $(LDFLAGS) \
    -o $@ $(filter %.c %.S,$^) .libs/librooms.a -ldl -lpthread
$(fr_layout_tests): tests/mpi/layout_test-%: $(fr_layout_sources) tests/mpi/layout_test.h \
    tests/mpi/layout_types.h \
    tests/unit/check.h src/layout/layout.h src/real/real.h librooms.la
	$(AM_V_CCLD)$(fr_compile_with_rooms)
$(fr_world_tests): tests/mpi/world_test-%: tests/mpi/world_test.c tests/unit/check.h \
    src/world/world.h src/real/real.h src/device/device.h librooms.la
	$(AM_V_CCLD)$(fr_compile_with_rooms)
$(fr_names_tests): tests/mpi/names_test-%: tests/mpi/names_test.c src/real/stubs.S \
    tests/unit/check.h src/world/world.h src/real/real.h src/real/functions.def librooms.la
	$(AM_V_CCLD)$(fr_compile_with_rooms)
$(fr_control_tests): tests/mpi/control_test-%: tests/mpi/control_test.c tests/unit/check.h \
    src/control/control.h src/world/world.h src/real/real.h librooms.la
	$(AM_V_CCLD)$(fr_compile_with_rooms)
$(fr_fabric_programs): tests/mpi/fabric-%: $(fr_fabric_sources) tests/programs/memory.c \
    $(fr_fabric_headers)
	$(AM_V_CCLD)$(MKDIR_P) $(@D) && $(fr_mpicc_$*) $(DEFAULT_INCLUDES) $(CPPFLAGS) $(CUDA_CPPFLAGS) \
	    -std=gnu11 -Wall -Wextra $(FR_PROGRAM_WERROR) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.c,$^) -ldl
$(fr_unnoticed_programs): tests/mpi/unnoticed-%: $(fr_unnoticed_sources) tests/programs/memory.c \
    tests/mpi/unnoticed.h tests/programs/memory.h
	$(AM_V_CCLD)$(MKDIR_P) $(@D) && $(fr_mpicc_$*) $(DEFAULT_INCLUDES) $(CPPFLAGS) $(CUDA_CPPFLAGS) \
	    -std=gnu11 -Wall -Wextra $(FR_PROGRAM_WERROR) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.c,$^) -ldl \
	    -lpthread
$(fr_alike_programs): tests/mpi/alike-%: $(fr_alike_sources) tests/programs/memory.c \
    tests/mpi/alike.h tests/programs/memory.h
	$(AM_V_CCLD)$(MKDIR_P) $(@D) && $(fr_mpicc_$*) $(DEFAULT_INCLUDES) $(CPPFLAGS) $(CUDA_CPPFLAGS) \
	    -std=gnu11 -Wall -Wextra $(FR_PROGRAM_WERROR) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.c,$^) -ldl
$(fr_across_programs): tests/mpi/across-%: tests/mpi/across.c tests/programs/memory.c \
    tests/programs/memory.h
	$(AM_V_CCLD)$(MKDIR_P) $(@D) && $(fr_mpicc_$*) $(DEFAULT_INCLUDES) $(CPPFLAGS) $(CUDA_CPPFLAGS) \
	    -std=gnu11 -Wall -Wextra $(FR_PROGRAM_WERROR) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.c,$^) -ldl
$(fr_bounds_programs): tests/mpi/bounds-%: tests/mpi/bounds.c tests/programs/memory.c \
    tests/programs/memory.h tests/sim/pins.h
	$(AM_V_CCLD)$(MKDIR_P) $(@D) && $(fr_mpicc_$*) $(DEFAULT_INCLUDES) $(CPPFLAGS) $(CUDA_CPPFLAGS) \
	    -std=gnu11 -Wall -Wextra $(FR_PROGRAM_WERROR) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.c,$^) -ldl
$(fr_report_programs): tests/mpi/report_run-%: tests/mpi/report_run.c tests/programs/memory.c \
    tests/programs/memory.h
	$(AM_V_CCLD)$(MKDIR_P) $(@D) && $(fr_mpicc_$*) $(DEFAULT_INCLUDES) $(CPPFLAGS) $(CUDA_CPPFLAGS) \
	    -std=gnu11 -Wall -Wextra $(FR_PROGRAM_WERROR) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.c,$^) -ldl
if HAVE_NVTX
check_DATA += tests/mpi/libfrnvtx.so
tests/mpi/libfrnvtx.so: tests/mpi/nvtx.c
	$(AM_V_CCLD)$(MKDIR_P) $(@D) && $(sim_compile) -o $@ $(srcdir)/tests/mpi/nvtx.c -ldl
endif
tests/mpi/libfrcount.so: tests/mpi/count.c
	$(AM_V_CCLD)$(MKDIR_P) $(@D) && $(sim_compile) -o $@ $(srcdir)/tests/mpi/count.c -ldl
tests/mpi/libfrshm.so: tests/mpi/shm.c
	$(AM_V_CCLD)$(MKDIR_P) $(@D) && $(sim_compile) -o $@ $(srcdir)/tests/mpi/shm.c -ldl
tests/mpi/libfryield.so: tests/mpi/yield.c
	$(AM_V_CCLD)$(MKDIR_P) $(@D) && $(sim_compile) -o $@ $(srcdir)/tests/mpi/yield.c -ldl
endif
