# Rules of the source tree itself.
TESTS += tests/source/modules.test tests/source/messages.test
EXTRA_DIST += tests/source/modules.test tests/source/messages.test
