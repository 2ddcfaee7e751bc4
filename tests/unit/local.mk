# Unit tests: one block a test.
check_PROGRAMS += tests/unit/core_settings
tests_unit_core_settings_SOURCES = tests/unit/core_settings.c tests/unit/check.h
tests_unit_core_settings_LDADD = librooms.la

check_PROGRAMS += tests/unit/core_log
tests_unit_core_log_SOURCES = tests/unit/core_log.c tests/unit/check.h
tests_unit_core_log_LDADD = librooms.la

check_PROGRAMS += tests/unit/core_hash
tests_unit_core_hash_SOURCES = tests/unit/core_hash.c tests/unit/check.h
tests_unit_core_hash_LDADD = librooms.la
