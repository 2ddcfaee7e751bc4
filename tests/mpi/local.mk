# The included programs under each MPI that configure found, and the runner that starts them.
fr_mpi_tests = tests/mpi/programs-openmpi.test tests/mpi/programs-mpich.test \
    tests/mpi/programs-openmpi5.test tests/mpi/programs-mpich5.test tests/mpi/programs-mpiabi.test \
    tests/mpi/datatype.test tests/mpi/job.test tests/mpi/random.test tests/mpi/faults.test \
    tests/mpi/fabric.test tests/mpi/pipeline.test tests/mpi/clique.test tests/mpi/mapping_reuse.test tests/mpi/failed.test \
    tests/mpi/transparency.test tests/mpi/partial_preload.test tests/mpi/with_without_preload.test tests/mpi/job_control.test \
    tests/mpi/report.test tests/mpi/coll_multihost.test tests/mpi/rail.test tests/mpi/hmem.test tests/mpi/slurm.test \
    tests/mpi/shm.test tests/mpi/far.test tests/mpi/bounds.test tests/mpi/types.test tests/mpi/self.test tests/mpi/pending.test \
    tests/mpi/windows.test tests/mpi/aperture.test tests/mpi/standby.test
EXTRA_DIST += $(fr_mpi_tests) tests/mpi/programs tests/mpi/run-program \
    tests/mpi/check-report.py tests/mpi/check-sanitizer.py tests/mpi/check-fabric.py \
    tests/mpi/report-check.py tests/mpi/report_run.c \
    tests/mpi/fault.sh tests/mpi/hosts.sh tests/mpi/odd-rank tests/mpi/private_slurm.sh

# Tests that look into the library and call an MPI: NAME-FLAVOUR, linked with all modules.
fr_datatype_sources = tests/mpi/datatype_bytes.c tests/mpi/datatype_random.c tests/mpi/datatype_test.c \
    tests/mpi/datatype_types.c
fr_datatype_tests = $(MPI_FLAVOURS:%=tests/mpi/datatype_test-%)
EXTRA_DIST += $(fr_datatype_sources) tests/mpi/datatype_test.h tests/mpi/datatype_types.h
fr_job_tests = $(MPI_FLAVOURS:%=tests/mpi/job_test-%)
# With the stubs too, so that its own calls go through them.
fr_names_tests = $(MPI_FLAVOURS:%=tests/mpi/names_test-%)
fr_job_control_tests = $(MPI_FLAVOURS:%=tests/mpi/job_control_test-%)
EXTRA_DIST += tests/mpi/job_test.c tests/mpi/names_test.c tests/mpi/job_control_test.c
CLEANFILES += $(fr_job_control_tests)
# A program that sees which pointers MPI is given, on the simulated device.
fr_fabric_sources = tests/mpi/fabric.c tests/mpi/fabric_calls.c
fr_fabric_headers = tests/mpi/fabric.h tests/programs/memory.h tests/sim/touch.h
fr_fabric_programs = $(MPI_FLAVOURS:%=tests/mpi/fabric-%)
EXTRA_DIST += $(fr_fabric_sources) tests/mpi/fabric.h
# A program of what an application must not notice.
fr_transparency_sources = tests/mpi/transparency.c tests/mpi/transparency_progress.c \
    tests/mpi/transparency_comms.c \
    tests/mpi/transparency_requests.c \
    tests/mpi/transparency_messages.c \
    tests/mpi/transparency_spawn.c \
    tests/mpi/transparency_attach.c \
    tests/mpi/transparency_threads.c \
    tests/mpi/transparency_within.c \
    tests/mpi/transparency_held.c
fr_transparency_programs = $(MPI_FLAVOURS:%=tests/mpi/transparency-%)
EXTRA_DIST += $(fr_transparency_sources) tests/mpi/transparency.h
# A program of messages between any two datatypes. Like some others, it is run with the first release of a family
# alone.
fr_families = $(filter openmpi mpich,$(MPI_FLAVOURS))
fr_typed_sources = tests/mpi/typed.c tests/mpi/datatype_types.c tests/mpi/datatype_random.c
fr_typed_programs = $(fr_families:%=tests/mpi/typed-%)
EXTRA_DIST += tests/mpi/typed.c
CLEANFILES += $(fr_typed_programs)
# A program that packs in the format external32.
fr_external_programs = $(fr_families:%=tests/mpi/external-%)
fr_external_sources = tests/mpi/external.c tests/mpi/datatype_types.c tests/mpi/datatype_random.c
EXTRA_DIST += tests/mpi/external.c
CLEANFILES += $(fr_external_programs)
# A program of datatypes whose blocks are gigabytes apart.
fr_typed_far_programs = $(fr_families:%=tests/mpi/typed_far-%)
EXTRA_DIST += tests/mpi/typed_far.c
CLEANFILES += $(fr_typed_far_programs)
# A program that sends one message of more than 2^31 bytes.
fr_typed_huge_programs = $(fr_families:%=tests/mpi/typed_huge-%)
EXTRA_DIST += tests/mpi/typed_huge.c
CLEANFILES += $(fr_typed_huge_programs)
# A program that counts the driver's calls.
fr_typed_calls_programs = $(fr_families:%=tests/mpi/typed_calls-%)
EXTRA_DIST += tests/mpi/typed_calls.c
CLEANFILES += $(fr_typed_calls_programs)
# A program that loses a rank, for MPIs that go on then.
fr_killed_programs = $(filter tests/mpi/killed-openmpi5,$(MPI_FLAVOURS:%=tests/mpi/killed-%))
EXTRA_DIST += tests/mpi/killed.c
CLEANFILES += $(fr_killed_programs)
# A program whose allocations fail.
fr_scarce_programs = $(MPI_FLAVOURS:%=tests/mpi/scarce-%)
EXTRA_DIST += tests/mpi/scarce.c
CLEANFILES += $(fr_scarce_programs)
# A program of ranks that leave the device with data that have gaps.
fr_typed_leave_programs = $(fr_families:%=tests/mpi/typed_leave-%)
EXTRA_DIST += tests/mpi/typed_leave.c
CLEANFILES += $(fr_typed_leave_programs)
# A program that makes and frees very many datatypes.
fr_many_types_programs = $(fr_families:%=tests/mpi/many_types-%)
EXTRA_DIST += tests/mpi/many_types.c
CLEANFILES += $(fr_many_types_programs)
# A program whose output is the same with and without the preload.
fr_with_without_preload_sources = tests/mpi/with_without_preload.c tests/mpi/with_without_preload_types.c tests/mpi/with_without_preload_messages.c \
    tests/mpi/with_without_preload_collectives.c tests/mpi/with_without_preload_objects.c tests/mpi/with_without_preload_errors.c \
    tests/mpi/with_without_preload_refused.c
fr_with_without_preload_programs = $(MPI_FLAVOURS:%=tests/mpi/with_without_preload-%)
EXTRA_DIST += $(fr_with_without_preload_sources) tests/mpi/with_without_preload.h
CLEANFILES += $(fr_with_without_preload_programs)
CLEANFILES += $(fr_datatype_tests) $(fr_job_tests) $(fr_fabric_programs) $(fr_transparency_programs) \
    $(fr_names_tests)
# A program of collectives between hosts, and what counts the messages that they take.
fr_coll_multihost_programs = $(MPI_FLAVOURS:%=tests/mpi/coll_multihost-%)
EXTRA_DIST += tests/mpi/coll_multihost.c tests/mpi/count.c
CLEANFILES += $(fr_coll_multihost_programs) tests/mpi/libfrcount.so \
    tests/mpi/libfrshm.so $(MPI_FLAVOURS:%=tests/bench/job-%)
# A program that measures what waiting messages take.
fr_bounds_programs = $(fr_families:%=tests/mpi/bounds-%)
EXTRA_DIST += tests/mpi/bounds.c
CLEANFILES += $(fr_bounds_programs)
# A program of short messages for which kernels stand by.
fr_standby_programs = $(fr_families:%=tests/mpi/standby-%)
EXTRA_DIST += tests/mpi/standby.c
CLEANFILES += $(fr_standby_programs)
# A program of short messages that the CPU copies itself.
fr_aperture_programs = $(MPI_FLAVOURS:%=tests/mpi/aperture-%)
EXTRA_DIST += tests/mpi/aperture.c tests/mpi/counted.h
CLEANFILES += $(fr_aperture_programs)
fr_report_programs = $(MPI_FLAVOURS:%=tests/mpi/report_run-%)
CLEANFILES += $(fr_report_programs)
# A library that run-program preloads into the ranks of an MPICH.
EXTRA_DIST += tests/mpi/yield.c
CLEANFILES += tests/mpi/libfryield.so
# The machine as hwloc finds it. Where hwloc cannot be linked the file is empty.
EXTRA_DIST += tests/mpi/machine.c
CLEANFILES += tests/mpi/machine tests/mpi/machine.xml
# A library that moves Fabrail's shared memory to another folder.
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
check_DATA += $(fr_datatype_tests) $(fr_job_tests) $(fr_job_control_tests) $(fr_fabric_programs) \
    $(fr_transparency_programs) $(fr_typed_programs) $(fr_typed_far_programs) $(fr_typed_huge_programs) $(fr_external_programs) $(fr_typed_calls_programs) $(fr_typed_leave_programs) $(fr_scarce_programs) $(fr_killed_programs) $(fr_many_types_programs) $(fr_with_without_preload_programs) $(fr_names_tests) \
    $(fr_report_programs) tests/mpi/libfryield.so tests/mpi/machine.xml $(fr_bounds_programs) $(fr_coll_multihost_programs) tests/mpi/libfrcount.so \
    tests/mpi/libfrshm.so $(MPI_FLAVOURS:%=tests/bench/job-%)
$(fr_datatype_tests): tests/mpi/datatype_test-%: $(fr_datatype_sources) tests/mpi/datatype_test.h \
    tests/mpi/datatype_types.h \
    tests/unit/check.h include/fabrail/datatype.h include/fabrail/abi.h libmodules.la
	$(fr_program_with_modules)
$(fr_job_tests): tests/mpi/job_test-%: tests/mpi/job_test.c tests/unit/check.h \
    include/fabrail/job.h include/fabrail/abi.h include/fabrail/device.h libmodules.la
	$(fr_program_with_modules)
$(fr_names_tests): tests/mpi/names_test-%: tests/mpi/names_test.c src/abi/stubs.S src/intercept/window_entry.S \
    tests/unit/check.h include/fabrail/job.h include/fabrail/abi.h include/fabrail/abi/functions.def libmodules.la
	$(fr_program_with_modules)
$(fr_job_control_tests): tests/mpi/job_control_test-%: tests/mpi/job_control_test.c tests/unit/check.h \
    include/fabrail/job/control.h include/fabrail/job.h include/fabrail/abi.h libmodules.la
	$(fr_program_with_modules)
$(fr_fabric_programs): tests/mpi/fabric-%: $(fr_fabric_sources) tests/programs/memory-%.o \
    $(fr_fabric_headers)
	$(fr_program)
$(fr_transparency_programs): tests/mpi/transparency-%: $(fr_transparency_sources) tests/programs/memory-%.o \
    tests/mpi/transparency.h tests/programs/memory.h
	$(fr_program)
$(fr_typed_programs): tests/mpi/typed-%: $(fr_typed_sources) tests/programs/memory-%.o tests/mpi/datatype_types.h \
    tests/programs/memory.h tests/unit/check.h
	$(fr_program)
$(fr_external_programs): tests/mpi/external-%: $(fr_external_sources) tests/programs/memory-%.o tests/mpi/datatype_types.h \
    tests/programs/memory.h tests/unit/check.h tests/sim/calls.h
	$(fr_program)
$(fr_typed_far_programs): tests/mpi/typed_far-%: tests/mpi/typed_far.c tests/programs/memory-%.o \
    tests/programs/memory.h tests/unit/check.h
	$(fr_program)
$(fr_typed_huge_programs): tests/mpi/typed_huge-%: tests/mpi/typed_huge.c tests/programs/memory-%.o \
    tests/programs/memory.h tests/unit/check.h
	$(fr_program)
$(fr_typed_calls_programs): tests/mpi/typed_calls-%: tests/mpi/typed_calls.c tests/programs/memory-%.o \
    tests/programs/memory.h tests/unit/check.h tests/sim/calls.h
	$(fr_program)
$(fr_killed_programs): tests/mpi/killed-%: tests/mpi/killed.c tests/programs/memory-%.o \
    tests/programs/memory.h
	$(fr_program)
$(fr_scarce_programs): tests/mpi/scarce-%: tests/mpi/scarce.c tests/programs/memory-%.o \
    tests/programs/memory.h tests/programs/harness.h
	$(fr_program)
$(fr_typed_leave_programs): tests/mpi/typed_leave-%: tests/mpi/typed_leave.c tests/programs/memory-%.o \
    tests/programs/memory.h tests/unit/check.h
	$(fr_program)
$(fr_many_types_programs): tests/mpi/many_types-%: tests/mpi/many_types.c tests/programs/memory-%.o \
    tests/programs/memory.h tests/unit/check.h
	$(fr_program)
$(fr_with_without_preload_programs): tests/mpi/with_without_preload-%: $(fr_with_without_preload_sources) tests/programs/memory-%.o \
    tests/mpi/with_without_preload.h tests/programs/memory.h
	$(fr_program)
$(fr_coll_multihost_programs): tests/mpi/coll_multihost-%: tests/mpi/coll_multihost.c tests/programs/memory-%.o \
    tests/programs/memory.h tests/sim/calls.h
	$(fr_program)
check_DATA += $(fr_standby_programs)
$(fr_standby_programs): tests/mpi/standby-%: tests/mpi/standby.c tests/mpi/counted.h tests/programs/memory-%.o \
    tests/programs/memory.h tests/sim/calls.h
	$(fr_program)
check_DATA += $(fr_aperture_programs)
$(fr_aperture_programs): tests/mpi/aperture-%: tests/mpi/aperture.c tests/mpi/counted.h tests/programs/memory-%.o \
    tests/programs/memory.h tests/sim/calls.h
	$(fr_program)
$(fr_bounds_programs): tests/mpi/bounds-%: tests/mpi/bounds.c tests/programs/memory-%.o \
    tests/programs/memory.h tests/sim/pins.h
	$(fr_program)
$(fr_report_programs): tests/mpi/report_run-%: tests/mpi/report_run.c tests/programs/memory-%.o \
    tests/programs/memory.h
	$(fr_program)
if HAVE_NVTX
check_DATA += tests/mpi/libfrnvtx.so
tests/mpi/libfrnvtx.so: tests/mpi/nvtx.c
	$(AM_V_CCLD)$(MKDIR_P) $(@D) && $(sim_compile) -o $@ $(srcdir)/tests/mpi/nvtx.c -ldl
endif
# A wrapper of dlsym goes on by a jump: the C library looks for the next of a name after the caller.
tests/mpi/libfrcount.so: tests/mpi/count.c
	$(AM_V_CCLD)$(MKDIR_P) $(@D) && $(sim_compile) -foptimize-sibling-calls -o $@ $(srcdir)/tests/mpi/count.c -ldl
tests/mpi/machine.xml: tests/mpi/machine.c
	$(AM_V_GEN)$(MKDIR_P) $(@D) && $(CC) $(RAILS_CPPFLAGS) $(CPPFLAGS) $(LDFLAGS) -o tests/mpi/machine \
	    $(srcdir)/tests/mpi/machine.c -lhwloc 2>/dev/null && tests/mpi/machine $@ || : >$@
tests/mpi/libfrshm.so: tests/mpi/shm.c
	$(AM_V_CCLD)$(MKDIR_P) $(@D) && $(sim_compile) -o $@ $(srcdir)/tests/mpi/shm.c -ldl
tests/mpi/libfryield.so: tests/mpi/yield.c
	$(AM_V_CCLD)$(MKDIR_P) $(@D) && $(sim_compile) -o $@ $(srcdir)/tests/mpi/yield.c -ldl
endif

# Kinds of memory by info, and their test.
fr_kinds_programs = $(MPI_FLAVOURS:%=tests/mpi/memory_kinds-%)
EXTRA_DIST += tests/mpi/memory_kinds.test tests/mpi/memory_kinds.c
CLEANFILES += $(fr_kinds_programs)
if !CROSS_COMPILING
TESTS += tests/mpi/memory_kinds.test
check_DATA += $(fr_kinds_programs)
$(fr_kinds_programs): tests/mpi/memory_kinds-%: tests/mpi/memory_kinds.c tests/programs/memory-%.o \
    tests/programs/memory.h
	$(fr_program)
endif

# A program of sessions alone, and its test.
fr_session_programs = $(MPI_FLAVOURS:%=tests/mpi/sessions-%)
EXTRA_DIST += tests/mpi/sessions.test tests/mpi/sessions.c
CLEANFILES += $(fr_session_programs)
if !CROSS_COMPILING
TESTS += tests/mpi/sessions.test
check_DATA += $(fr_session_programs)
$(fr_session_programs): tests/mpi/sessions-%: tests/mpi/sessions.c tests/programs/memory-%.o tests/programs/memory.h
	$(fr_program)
endif

# Cases of windows over device memory, wrong uses of them and what MPI promises of them, for their test.
fr_window_cases = $(MPI_FLAVOURS:%=tests/mpi/window_cases-%)
fr_window_errors = $(MPI_FLAVOURS:%=tests/mpi/window_errors-%)
fr_window_bulk = $(MPI_FLAVOURS:%=tests/mpi/window_bulk-%)
fr_window_terms = $(MPI_FLAVOURS:%=tests/mpi/window_terms-%)
fr_window_programs = $(fr_window_cases) $(fr_window_errors) $(fr_window_bulk) $(fr_window_terms)
EXTRA_DIST += tests/mpi/window_bulk.c tests/mpi/window_cases.c tests/mpi/window_errors.c tests/mpi/window_terms.c
CLEANFILES += $(fr_window_programs)
if !CROSS_COMPILING
check_DATA += $(fr_window_programs)
$(fr_window_bulk): tests/mpi/window_bulk-%: tests/mpi/window_bulk.c \
    tests/programs/memory-%.o tests/programs/memory.h
	$(fr_program)
$(fr_window_cases): tests/mpi/window_cases-%: tests/mpi/window_cases.c \
    tests/programs/memory-%.o tests/programs/memory.h
	$(fr_program)
$(fr_window_errors): tests/mpi/window_errors-%: tests/mpi/window_errors.c \
    tests/programs/memory-%.o tests/programs/memory.h
	$(fr_program)
$(fr_window_terms): tests/mpi/window_terms-%: tests/mpi/window_terms.c \
    tests/programs/memory-%.o tests/programs/memory.h tests/sim/calls.h
	$(fr_program)
endif

# A program with races between a GPU and MPI (FABRAIL_SYNC), and its test.
fr_races_programs = $(fr_families:%=tests/mpi/races-%)
EXTRA_DIST += tests/mpi/races.test tests/mpi/races.c tests/mpi/hides.c
CLEANFILES += $(fr_races_programs) tests/mpi/libfrhides.so
if !CROSS_COMPILING
TESTS += tests/mpi/races.test
check_DATA += $(fr_races_programs) tests/mpi/libfrhides.so
tests/mpi/libfrhides.so: tests/mpi/hides.c
	$(AM_V_CCLD)$(MKDIR_P) $(@D) && $(sim_compile) -foptimize-sibling-calls -o $@ $(srcdir)/tests/mpi/hides.c -ldl
$(fr_races_programs): tests/mpi/races-%: tests/mpi/races.c tests/programs/memory-%.o \
    tests/programs/memory.h
	$(fr_program_cc) -rdynamic $(filter %.c %.o,$^) -ldl -lpthread
endif
