# The installed command.
fr_tool_tests = tests/tools/explain.test tests/tools/info.test tests/tools/report.test tests/tools/run.test tests/tools/tune.test
EXTRA_DIST += $(fr_tool_tests) tests/tools/judge.sh tests/tools/browser.py \
    tests/tools/many-ranks.py
if !CROSS_COMPILING
TESTS += $(fr_tool_tests)
endif
