# Tests of module rail: recorded machines, a stand-in for libfabric, and the programs of the rig.
EXTRA_DIST += tests/rail/machines/make tests/rail/machines/dgx.nics tests/rail/machines/dgx.xml \
    tests/rail/machines/p5.nics tests/rail/machines/p5.xml tests/rail/machines/single.nics \
    tests/rail/machines/single.xml tests/rail/machines/slingshot.nics \
    tests/rail/machines/slingshot.xml

TESTS += tests/rail/fuzz.sh
EXTRA_DIST += tests/rail/hmem.c tests/rail/fuzz.sh tests/rail/fuzz_wire.c tests/rail/corpus/address-1 \
    tests/rail/corpus/address-4 tests/rail/corpus/key-1 tests/rail/corpus/key-4 \
    tests/rail/corpus/key-bad

check_PROGRAMS += tests/unit/rail_wire
tests_unit_rail_wire_SOURCES = tests/unit/rail_wire.c tests/unit/check.h
tests_unit_rail_wire_LDADD = libmodules.la

check_PROGRAMS += tests/unit/rail_sched
tests_unit_rail_sched_SOURCES = tests/unit/rail_sched.c tests/unit/check.h
tests_unit_rail_sched_LDADD = libmodules.la

if HAVE_RAILS
check_PROGRAMS += tests/unit/rail_choose
tests_unit_rail_choose_SOURCES = tests/unit/rail_choose.c tests/unit/check.h
tests_unit_rail_choose_LDADD = libmodules.la

check_PROGRAMS += tests/unit/rail_providers
tests_unit_rail_providers_SOURCES = tests/unit/rail_providers.c tests/unit/check.h \
    tests/unit/processes.h
tests_unit_rail_providers_LDADD = libmodules.la

check_LTLIBRARIES += tests/rail/libfabric.la
tests_rail_libfabric_la_SOURCES = tests/rail/standin.c tests/rail/standin.h
tests_rail_libfabric_la_CFLAGS = -std=gnu11 $(FR_CFLAGS) -fvisibility=default -pthread
tests_rail_libfabric_la_LDFLAGS = -version-info 1 -rpath /nowhere

rail_standin_headers = tests/unit/rail_standin.h tests/unit/check.h tests/rail/standin.h \
    tests/unit/logged.h tests/unit/rndv_two_ranks.h tests/unit/rndv_world.h
rail_standin_cppflags = $(AM_CPPFLAGS) -I$(top_srcdir)/tests
rail_standin_dependencies = libmodules.la tests/rail/libfabric.la

check_PROGRAMS += tests/unit/rail_standin
tests_unit_rail_standin_SOURCES = tests/unit/rail_standin.c $(rail_standin_headers)
tests_unit_rail_standin_CPPFLAGS = $(rail_standin_cppflags)
tests_unit_rail_standin_LDADD = libmodules.la
tests_unit_rail_standin_DEPENDENCIES = $(rail_standin_dependencies)

check_PROGRAMS += tests/unit/rail_faults
tests_unit_rail_faults_SOURCES = tests/unit/rail_faults.c $(rail_standin_headers)
tests_unit_rail_faults_CPPFLAGS = $(rail_standin_cppflags)
tests_unit_rail_faults_LDADD = libmodules.la
tests_unit_rail_faults_LDFLAGS = -Wl,--wrap=fr_core_log_write
tests_unit_rail_faults_DEPENDENCIES = $(rail_standin_dependencies)

check_PROGRAMS += tests/unit/rail_flush
tests_unit_rail_flush_SOURCES = tests/unit/rail_flush.c $(rail_standin_headers)
tests_unit_rail_flush_CPPFLAGS = $(rail_standin_cppflags)
tests_unit_rail_flush_LDADD = libmodules.la
tests_unit_rail_flush_DEPENDENCIES = $(rail_standin_dependencies)

check_PROGRAMS += tests/unit/rail_cache
tests_unit_rail_cache_SOURCES = tests/unit/rail_cache.c $(rail_standin_headers)
tests_unit_rail_cache_CPPFLAGS = $(rail_standin_cppflags)
tests_unit_rail_cache_LDADD = libmodules.la
tests_unit_rail_cache_DEPENDENCIES = $(rail_standin_dependencies)

check_PROGRAMS += tests/unit/rndv_hmem
tests_unit_rndv_hmem_SOURCES = tests/unit/rndv_hmem.c tests/unit/apart.h tests/unit/driver.h $(rail_standin_headers)
tests_unit_rndv_hmem_CPPFLAGS = $(rail_standin_cppflags) $(CUDA_CPPFLAGS)
tests_unit_rndv_hmem_LDADD = libmodules.la
tests_unit_rndv_hmem_DEPENDENCIES = $(rail_standin_dependencies)

# With a clock and words of its own, in place of the modules'.
check_PROGRAMS += tests/unit/rndv_rail_connect
tests_unit_rndv_rail_connect_SOURCES = tests/unit/rndv_rail_connect.c $(rail_standin_headers)
tests_unit_rndv_rail_connect_CPPFLAGS = $(rail_standin_cppflags)
tests_unit_rndv_rail_connect_LDADD = libmodules.la
tests_unit_rndv_rail_connect_LDFLAGS = -Wl,--wrap=clock_gettime,--wrap=fr_core_log_write \
    -Wl,--wrap=fr_rndv_rails_serve,--wrap=fr_job_control_send,--wrap=fr_job_control_reaches \
    -Wl,--wrap=fr_job_control_is_alive,--wrap=fr_rndv_thread_start
tests_unit_rndv_rail_connect_DEPENDENCIES = $(rail_standin_dependencies)

check_PROGRAMS += tests/unit/rndv_rail_put_send
tests_unit_rndv_rail_put_send_SOURCES = tests/unit/rndv_rail_put_send.c tests/unit/apart.h $(rail_standin_headers) \
    tests/unit/inside/workspace_usage.c tests/unit/inside/workspace_usage.h
tests_unit_rndv_rail_put_send_CPPFLAGS = $(rail_standin_cppflags)
tests_unit_rndv_rail_put_send_LDADD = libmodules.la
tests_unit_rndv_rail_put_send_LDFLAGS = -Wl,--wrap=clock_gettime,--wrap=fr_core_log_write \
    -Wl,--wrap=fr_rndv_rails_serve,--wrap=fr_job_control_send,--wrap=fr_job_control_reaches \
    -Wl,--wrap=fr_job_control_is_alive,--wrap=fr_rndv_thread_start
tests_unit_rndv_rail_put_send_DEPENDENCIES = $(rail_standin_dependencies)

# A provider that libfabric loads, under the name that it looks for.
check_DATA += tests/rail/libfrhmem-fi.so
CLEANFILES += tests/rail/libfrhmem-fi.so
tests/rail/libfrhmem-fi.so: tests/rail/hmem.c config.h
	$(AM_V_CCLD)$(MKDIR_P) tests/rail && $(sim_compile) -o $@ $(srcdir)/tests/rail/hmem.c -ldl

endif
