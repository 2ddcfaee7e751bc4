# Hosts and rails without a NIC, and what is moved between them.
EXTRA_DIST += tests/rig/rig tests/rig/agent tests/rig/pair tests/rig/rails.test \
    tests/rig/messages.test tests/rig/tune.test tests/rig/ending.sh
fr_rig_tests =
if HAVE_RAILS
noinst_PROGRAMS += tests/rig/move
tests_rig_move_SOURCES = tests/rig/move.c tests/unit/check.h
tests_rig_move_LDADD = libmodules.la
fr_rig_tests += tests/rig/rails.test tests/rig/messages.test tests/rig/tune.test
TESTS += $(fr_rig_tests)
endif
