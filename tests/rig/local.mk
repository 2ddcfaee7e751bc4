# Hosts and rails without a NIC, and what is moved between them.
EXTRA_DIST += tests/rig/rig tests/rig/agent tests/rig/pair tests/rig/rails.test \
    tests/rig/messages.test tests/rig/tune.test tests/rig/ending.sh
fr_rig_tests =
if HAVE_RAILS
noinst_PROGRAMS += tests/rig/move
fr_rig_tests += tests/rig/rails.test tests/rig/messages.test tests/rig/tune.test
TESTS += $(fr_rig_tests)
endif
