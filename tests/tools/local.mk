# The installed command.
fr_tool_tests = tests/tools/command.test tests/tools/run.test tests/tools/info.test \
    tests/tools/explain.test tests/tools/bench.test tests/tools/tune.test tests/tools/install.test tests/tools/documents.test
EXTRA_DIST += $(fr_tool_tests) tests/tools/judge.sh tests/tools/documents.list
if !CROSS_COMPILING
TESTS += $(fr_tool_tests)
endif
