# Tests of module rail: recorded machines, a stand-in for libfabric, and the programs of the rig.
EXTRA_DIST += tests/rail/machines/make tests/rail/machines/dgx.nics tests/rail/machines/dgx.xml \
    tests/rail/machines/p5.nics tests/rail/machines/p5.xml tests/rail/machines/single.nics \
    tests/rail/machines/single.xml tests/rail/machines/slingshot.nics \
    tests/rail/machines/slingshot.xml

TESTS += tests/rail/fuzz.sh
EXTRA_DIST += tests/rail/hmem.c tests/rail/fuzz.sh tests/rail/fuzz_wire.c tests/rail/corpus/address-1 \
    tests/rail/corpus/address-4 tests/rail/corpus/key-1 tests/rail/corpus/key-4 \
    tests/rail/corpus/key-bad

check_PROGRAMS += tests/unit/rail_wire tests/unit/rail_sched

if HAVE_RAILS
check_PROGRAMS += tests/unit/rail_choose tests/unit/rail_providers

# On the stand-in.
check_LTLIBRARIES += tests/rail/libfabric.la
tests_rail_libfabric_la_SOURCES = tests/rail/standin.c tests/rail/standin.h
tests_rail_libfabric_la_CFLAGS = -std=gnu11 $(FR_CFLAGS) -fvisibility=default -pthread
tests_rail_libfabric_la_LDFLAGS = -version-info 1 -rpath /nowhere

check_PROGRAMS += tests/unit/rail_standin tests/unit/rail_faults tests/unit/rail_flush tests/unit/rail_cache \
    tests/unit/rndv_hmem tests/unit/rndv_rail_connect tests/unit/rndv_rail_put_send
tests_unit_rail_faults_LDFLAGS = -Wl,--wrap=fr_core_log_write

# With a clock and words of their own, in place of the modules'.
unit_rail_wraps = -Wl,--wrap=clock_gettime,--wrap=fr_core_log_write \
    -Wl,--wrap=fr_rndv_rails_serve,--wrap=fr_job_control_send,--wrap=fr_job_control_reaches \
    -Wl,--wrap=fr_job_control_is_alive,--wrap=fr_rndv_thread_start
tests_unit_rndv_rail_connect_LDFLAGS = $(unit_rail_wraps)
tests_unit_rndv_rail_put_send_SOURCES = tests/unit/rndv_rail_put_send.c $(unit_workspace_usage)
tests_unit_rndv_rail_put_send_LDFLAGS = $(unit_rail_wraps)

# A provider that libfabric loads, under the name that it looks for.
check_DATA += tests/rail/libfrhmem-fi.so
CLEANFILES += tests/rail/libfrhmem-fi.so
tests/rail/libfrhmem-fi.so: tests/rail/hmem.c config.h
	$(AM_V_CCLD)$(MKDIR_P) tests/rail && $(sim_compile) -o $@ $(srcdir)/tests/rail/hmem.c -ldl

endif
