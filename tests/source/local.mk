# Rules of the source tree itself.
TESTS += tests/source/rooms.test
EXTRA_DIST += tests/source/rooms.test
