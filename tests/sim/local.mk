# SPDX-License-Identifier: BSD-3-Clause
# The simulated CUDA driver and NVML, under the names that programs load. Plain rules: libtool would
# choose other file names.
sim_headers = tests/sim/sim.h tests/sim/sim_base.h tests/sim/sim_memory.h tests/sim/sim_work.h \
    tests/sim/bar.h tests/sim/touch.h tests/sim/pins.h tests/sim/calls.h tests/sim/entry.def include/fabrail/device/kernels.h \
    include/fabrail/device/elements.h include/fabrail/device/reduce.def include/fabrail/device/round.h include/fabrail/device/standby_order.h include/fabrail/device/shape.h include/fabrail/device/shape_table.h \
    include/fabrail/device/shape_walk.h
sim_cuda_sources = tests/sim/bar.c tests/sim/context.c tests/sim/copy.c tests/sim/device.c tests/sim/entry.c \
    tests/sim/event.c tests/sim/few.c tests/sim/graph.c tests/sim/heap.c tests/sim/knobs.c tests/sim/memory.c tests/sim/module.c \
    tests/sim/pack.c tests/sim/pointer.c tests/sim/pool.c tests/sim/reduce.c tests/sim/round.c tests/sim/share.c tests/sim/standby.c tests/sim/stream.c \
    tests/sim/table.c tests/sim/touch.c tests/sim/transfer.c tests/sim/vmm.c
sim_nvml_sources = tests/sim/nvml.c tests/sim/knobs.c
sim_host_sources = tests/sim/host.c tests/sim/knobs.c
# Products and sums round each by itself, as in the kernels; gcc 12 merges some into one instruction
# of the processor in spite of the first option, where it vectorizes.
sim_compile = $(CC) $(DEFS) $(DEFAULT_INCLUDES) $(AM_CPPFLAGS) $(CUDA_CPPFLAGS) $(CPPFLAGS) \
    $(AM_CFLAGS) $(CFLAGS) -ffp-contract=off -fno-tree-vectorize -fPIC -shared $(LDFLAGS)

check_DATA += tests/sim/libcuda.so.1 tests/sim/libnvidia-ml.so.1 tests/sim/libfrsim-host.so \
    tests/sim/gdrcopy/libgdrapi.so.2 tests/sim/clique/libnvidia-ml.so.1
EXTRA_DIST += $(sim_headers) $(sim_cuda_sources) tests/sim/nvml.c tests/sim/nvml_clique.c tests/sim/nvml_fabric.h \
    tests/sim/sim_nvml.h tests/sim/host.c tests/sim/gdrapi.c tests/sim/gdrapi.h
CLEANFILES += tests/sim/libcuda.so.1 tests/sim/libnvidia-ml.so.1 tests/sim/libfrsim-host.so \
    tests/sim/gdrcopy/libgdrapi.so.2 tests/sim/clique/libnvidia-ml.so.1 tests/sim/clique/libfrsim-nvml.so

tests/sim/libcuda.so.1: $(sim_cuda_sources) $(sim_headers) config.h
	$(AM_V_CCLD)$(MKDIR_P) tests/sim && $(sim_compile) -Wl,-soname,libcuda.so.1 -o $@ \
	    $(sim_cuda_sources:%=$(srcdir)/%)

tests/sim/libnvidia-ml.so.1: $(sim_nvml_sources) tests/sim/nvml_fabric.h tests/sim/sim_nvml.h $(sim_headers) config.h
	$(AM_V_CCLD)$(MKDIR_P) tests/sim && $(sim_compile) -Wl,-soname,libnvidia-ml.so.1 -o $@ \
	    $(sim_nvml_sources:%=$(srcdir)/%)

tests/sim/libfrsim-host.so: $(sim_host_sources) $(sim_headers) config.h
	$(AM_V_CCLD)$(MKDIR_P) tests/sim && $(sim_compile) -o $@ $(sim_host_sources:%=$(srcdir)/%)

# In a folder of its own, so that programs find it only where a test wants it.
tests/sim/gdrcopy/libgdrapi.so.2: tests/sim/gdrapi.c tests/sim/gdrapi.h tests/sim/bar.h config.h
	$(AM_V_CCLD)$(MKDIR_P) tests/sim/gdrcopy && $(sim_compile) -Wl,-soname,libgdrapi.so.2 -o $@ \
	    $(srcdir)/tests/sim/gdrapi.c -ldl -lpthread

# The machine's NVML is to be found as libfrsim-nvml.so when programs start: run-program puts a link there.
tests/sim/clique/libnvidia-ml.so.1: tests/sim/nvml_clique.c tests/sim/knobs.c tests/sim/nvml_fabric.h tests/sim/sim_nvml.h $(sim_headers) config.h
	$(AM_V_CCLD)rm -rf tests/sim/clique && $(MKDIR_P) tests/sim/clique && \
	    $(sim_compile) -Wl,-soname,libfrsim-nvml.so -o tests/sim/clique/libfrsim-nvml.so -x c /dev/null && \
	    $(sim_compile) -Wl,-soname,libnvidia-ml.so.1 -Wl,--no-as-needed -o $@.new $(srcdir)/tests/sim/nvml_clique.c \
	    $(srcdir)/tests/sim/knobs.c tests/sim/clique/libfrsim-nvml.so && \
	    rm tests/sim/clique/libfrsim-nvml.so && mv $@.new $@

# The test of the double itself. One small library stands for the caller libfabrail.
check_PROGRAMS += tests/sim/sim_test
TESTS += tests/sim/sim_test
tests_sim_sim_test_SOURCES = tests/sim/sim_test.c tests/sim/test.h tests/sim/test_memory.c \
    tests/sim/test_copy.c tests/sim/test_async.c tests/sim/test_share.c tests/sim/test_process.c \
    tests/sim/test_touch.c tests/unit/check.h
tests_sim_sim_test_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_sim_sim_test_LDADD = -ldl

check_DATA += tests/sim/libfabrail-caller.so
EXTRA_DIST += tests/sim/test_caller.c tests/sim/README.md
CLEANFILES += tests/sim/libfabrail-caller.so
tests/sim/libfabrail-caller.so: tests/sim/test_caller.c config.h
	$(AM_V_CCLD)$(MKDIR_P) tests/sim && $(sim_compile) -o $@ $(srcdir)/tests/sim/test_caller.c
