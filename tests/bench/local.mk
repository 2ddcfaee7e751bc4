# Benchmarks, which `fabrail bench` and `make bench` run. They print and assert nothing.
pkglibexec_PROGRAMS = tests/bench/start tests/bench/limit
tests_bench_start_LDADD =

# Measures the cost of the report's counters.
EXTRA_PROGRAMS += tests/bench/report
CLEANFILES += tests/bench/report$(EXEEXT)

# The raw limit between GPUs, without MPI.
tests_bench_limit_SOURCES = tests/bench/limit.c tests/bench/rows.h

fr_bench_programs = $(MPI_FLAVOURS:%=tests/bench/host-%) $(MPI_FLAVOURS:%=tests/bench/device-%) \
    $(MPI_FLAVOURS:%=tests/bench/fabric-%) $(MPI_FLAVOURS:%=tests/bench/exchange-%) \
    $(MPI_FLAVOURS:%=tests/bench/message-%) $(MPI_FLAVOURS:%=tests/bench/fresh-%) \
    $(MPI_FLAVOURS:%=tests/bench/collective-%) $(MPI_FLAVOURS:%=tests/bench/between-%) \
    $(MPI_FLAVOURS:%=tests/bench/halo-%) $(MPI_FLAVOURS:%=tests/bench/types-%) \
    $(MPI_FLAVOURS:%=tests/bench/slabs-%) $(MPI_FLAVOURS:%=tests/bench/onesided-%)
CLEANFILES += $(fr_bench_programs)
EXTRA_DIST += tests/bench/run tests/bench/host.c tests/bench/device.c tests/bench/fabric.c \
    tests/bench/between.c tests/bench/fresh.c tests/bench/halo.c tests/bench/collective.c tests/bench/exchange.c \
    tests/bench/message.c tests/bench/types.c tests/bench/slabs.c tests/bench/onesided.c \
    tests/bench/peers.c tests/bench/peers.h tests/bench/ways.c tests/bench/ways.h \
    tests/bench/rows.h tests/bench/core_share.c tests/bench/core_share.h

$(MPI_FLAVOURS:%=tests/bench/host-%): tests/bench/host-%: tests/bench/host.c tests/programs/memory-%.o tests/bench/rows.h
	$(fr_program)
$(MPI_FLAVOURS:%=tests/bench/device-%): tests/bench/device-%: tests/bench/device.c \
    tests/programs/memory-%.o tests/bench/rows.h
	$(fr_program)
$(MPI_FLAVOURS:%=tests/bench/fresh-%): tests/bench/fresh-%: tests/bench/fresh.c \
    tests/programs/memory-%.o
	$(fr_program)
$(MPI_FLAVOURS:%=tests/bench/halo-%): tests/bench/halo-%: tests/bench/halo.c tests/programs/memory-%.o
	$(fr_program)
$(MPI_FLAVOURS:%=tests/bench/types-%): tests/bench/types-%: tests/bench/types.c \
    tests/programs/memory-%.o tests/bench/rows.h
	$(fr_program)
$(MPI_FLAVOURS:%=tests/bench/slabs-%): tests/bench/slabs-%: tests/bench/slabs.c \
    tests/programs/memory-%.o tests/bench/rows.h
	$(fr_program)
$(MPI_FLAVOURS:%=tests/bench/fabric-%): tests/bench/fabric-%: tests/bench/fabric.c \
    tests/programs/memory-%.o tests/bench/rows.h
	$(fr_program)
fr_bench_peers = tests/bench/peers.c tests/programs/memory-%.o libmodules.la
$(MPI_FLAVOURS:%=tests/bench/exchange-%): tests/bench/exchange-%: tests/bench/exchange.c \
    $(fr_bench_peers) tests/bench/peers.h tests/bench/rows.h
	$(fr_program_with_modules)
$(MPI_FLAVOURS:%=tests/bench/collective-%): tests/bench/collective-%: tests/bench/collective.c \
    $(fr_bench_peers) tests/bench/peers.h tests/bench/rows.h
	$(fr_program_with_modules)
$(MPI_FLAVOURS:%=tests/bench/between-%): tests/bench/between-%: tests/bench/between.c \
    tests/programs/memory-%.o libmodules.la tests/bench/rows.h
	$(fr_program_with_modules)
$(MPI_FLAVOURS:%=tests/bench/onesided-%): tests/bench/onesided-%: tests/bench/onesided.c \
    $(fr_bench_peers) tests/bench/peers.h tests/bench/rows.h
	$(fr_program_with_modules)
$(MPI_FLAVOURS:%=tests/bench/message-%): tests/bench/message-%: tests/bench/message.c \
    tests/bench/ways.c tests/bench/core_share.c $(fr_bench_peers) tests/bench/peers.h tests/bench/ways.h \
    tests/bench/core_share.h tests/bench/rows.h
	$(fr_program_with_modules)

# Those with MPI are compiled by its wrappers, for this machine alone; they are installed with the
# included transpose, by which a user sees that all is well.
if !CROSS_COMPILING
fr_installed_programs = $(fr_bench_programs) $(MPI_FLAVOURS:%=tests/programs/transpose-%)
fr_all_local += $(fr_installed_programs)
install-exec-local: $(fr_installed_programs)
	$(MKDIR_P) '$(DESTDIR)$(pkglibexecdir)'
	$(if $(strip $(fr_installed_programs)),$(INSTALL_PROGRAM) $(fr_installed_programs) '$(DESTDIR)$(pkglibexecdir)')
endif

bench: all tests/bench/report$(EXEEXT) tests/sim/libcuda.so.1
	@$(AM_TESTS_ENVIRONMENT) $(srcdir)/tests/bench/run
.PHONY: bench

# Whole jobs of many ranks.
fr_bench_jobs = $(MPI_FLAVOURS:%=tests/bench/job-%)
EXTRA_DIST += tests/bench/many tests/bench/job.c
CLEANFILES += $(fr_bench_jobs)
$(fr_bench_jobs): tests/bench/job-%: tests/bench/job.c
	$(fr_program)
bench-many: libfabrail.la $(fr_bench_jobs) tests/sim/libcuda.so.1 tests/sim/libnvidia-ml.so.1 \
    tests/mpi/libfryield.so
	@$(AM_TESTS_ENVIRONMENT) $(srcdir)/tests/bench/many
.PHONY: bench-many

# Rails between two hosts that are none.
EXTRA_DIST += tests/bench/rails
if HAVE_RAILS
bench-rails: tests/rig/move$(EXEEXT) libfabrail.la tests/sim/libcuda.so.1 tests/sim/libnvidia-ml.so.1 \
    tests/sim/libfrsim-host.so $(MPI_FLAVOURS:%=tests/bench/between-%) $(MPI_FLAVOURS:%=tests/programs/transpose-%)
	@$(AM_TESTS_ENVIRONMENT) $(srcdir)/tests/bench/rails
else
bench-rails:
	@echo "built without rails: configure found no headers of libfabric or hwloc"
endif
.PHONY: bench-rails
