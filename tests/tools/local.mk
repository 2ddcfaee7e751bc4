# The installed command.
fr_tool_tests = tests/tools/command.test tests/tools/run.test tests/tools/info.test \
    tests/tools/explain.test tests/tools/bench.test tests/tools/figures.test \
    tests/tools/report.test tests/tools/tune.test tests/tools/install.test tests/tools/packages.test tests/tools/documents.test \
    tests/tools/spank.test
EXTRA_DIST += $(fr_tool_tests) tests/tools/wheel.test tests/tools/judge.sh tests/tools/documents.list tests/tools/browser.py \
    tests/tools/many-ranks.py tests/tools/timeline.py tests/tools/zsh-tab.py tests/tools/commands.py \
    tests/tools/spank_loader.c
if !CROSS_COMPILING
TESTS += $(fr_tool_tests)
endif

# Slurm's part before its plugin, run by spank.test.
if HAVE_SPANK
EXTRA_PROGRAMS += tests/tools/spank_loader
check_DATA += tests/tools/spank_loader
tests_tools_spank_loader_LDFLAGS = -rdynamic
tests_tools_spank_loader_LDADD = -ldl
endif

check_PROGRAMS += tests/tools/json
tests_tools_json_SOURCES = tests/tools/json.c tests/unit/check.h tools/json_write.c tools/json_write.h
tests_tools_json_LDADD = libmodules.la -lm

check_PROGRAMS += tests/tools/pairing
tests_tools_pairing_SOURCES = tests/tools/pairing.c tests/unit/check.h tools/pairing.h \
    tools/elf_file.c tools/elf_file.h tools/child.c tools/child.h
tests_tools_pairing_LDADD = libmodules.la -lm
