# The installed commands.
EXTRA_DIST += tests/tools/tune.test
if !CROSS_COMPILING
TESTS += tests/tools/tune.test
endif
