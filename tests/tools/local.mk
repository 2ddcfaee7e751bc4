# The installed command.
fr_tool_tests = tests/tools/explain.test tests/tools/info.test tests/tools/run.test tests/tools/tune.test
EXTRA_DIST += $(fr_tool_tests) tests/tools/judge.sh
if !CROSS_COMPILING
TESTS += $(fr_tool_tests)
endif
