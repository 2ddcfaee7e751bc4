# SPDX-License-Identifier: BSD-3-Clause
# Tests of the interposition itself: the table, the stubs, and how they live beside other libraries.
fr_interpose_tests = tests/interpose/coverage.test tests/interpose/refusal.test \
    tests/interpose/profiler.test tests/interpose/local.test tests/interpose/stubs.test \
    tests/interpose/aware.test tests/interpose/preloads.test
fr_interpose_sources = tests/interpose/refusal.c tests/interpose/exchange.c \
    tests/interpose/profiler.c tests/interpose/profiled.c tests/interpose/opener.c \
    tests/interpose/aware.c tests/interpose/bound.c tests/interpose/constructed.c \
    tests/interpose/loads.c tests/interpose/hostrecv.c tests/interpose/tool.c \
    tests/interpose/wrapping.c tests/interpose/fortran_plugin.F90
fr_interpose_headers = tests/interpose/exchange.h tests/programs/memory.h
EXTRA_DIST += $(fr_interpose_tests) $(fr_interpose_sources) tests/interpose/tap.sh tests/interpose/passes.list \
    tests/interpose/exchange.h tests/interpose/bound.h tests/interpose/fakempi.c tests/interpose/fakempi.h \
    tests/interpose/caller.c tests/interpose/calls.c

# Files of which each MPI flavour has one: NAME-FLAVOUR.
fr_interpose_refusal = $(MPI_FLAVOURS:%=tests/interpose/refusal-%)
fr_interpose_aware = $(MPI_FLAVOURS:%=tests/interpose/aware-%)
fr_interpose_object = $(MPI_FLAVOURS:%=tests/interpose/profiled_object-%)
fr_interpose_library = $(MPI_FLAVOURS:%=tests/interpose/profiled_library-%)
fr_interpose_profiler = $(MPI_FLAVOURS:%=tests/interpose/libprofiler-%.so)
fr_interpose_bound = $(MPI_FLAVOURS:%=tests/interpose/bound-%)
fr_interpose_layered = $(MPI_FLAVOURS:%=tests/interpose/layered-%)
fr_interpose_loads = $(MPI_FLAVOURS:%=tests/interpose/loads-%)
fr_interpose_hostrecv = $(MPI_FLAVOURS:%=tests/interpose/hostrecv-%)
fr_interpose_tooled = $(patsubst %,tests/interpose/tooled-%,$(filter openmpi mpich,$(MPI_FLAVOURS)))
fr_interpose_tool = $(MPI_FLAVOURS:%=tests/interpose/libtool-%.so)
fr_interpose_receives = $(MPI_FLAVOURS:%=tests/interpose/libreceives-%.so)
fr_interpose_wrapping = $(patsubst %,tests/interpose/libwrap_%.so,dlsym libc dlopen malloc rest)
fr_interpose_plugin = $(MPI_FLAVOURS:%=tests/interpose/plugin-%.so)
# Open MPI 4 makes no windows in a scope of its own, without Fabrail too.
fr_interpose_fortran = $(foreach flavour,$(filter mpich,$(MPI_FLAVOURS)),$(if $(fr_mpifc_$(flavour)),tests/interpose/fortran_plugin-$(flavour).so))
fr_interpose_built = $(fr_interpose_fortran) $(fr_interpose_refusal) $(fr_interpose_aware) $(fr_interpose_object) \
    $(fr_interpose_library) $(fr_interpose_profiler) $(fr_interpose_plugin) \
    $(fr_interpose_bound) $(fr_interpose_layered) $(fr_interpose_loads) \
    $(fr_interpose_hostrecv) $(fr_interpose_tooled) $(fr_interpose_tool) $(fr_interpose_receives) $(fr_interpose_wrapping) \
    tests/interpose/opener tests/interpose/libconstructed.so
CLEANFILES += $(fr_interpose_built)

if !CROSS_COMPILING
TESTS += $(fr_interpose_tests)
check_DATA += $(fr_interpose_built)
$(fr_interpose_refusal): tests/interpose/refusal-%: \
    tests/interpose/refusal.c tests/programs/memory-%.o $(fr_interpose_headers)
	$(fr_program)
$(fr_interpose_aware): tests/interpose/aware-%: \
    tests/interpose/aware.c tests/programs/memory-%.o $(fr_interpose_headers)
	$(fr_program)
$(fr_interpose_object): tests/interpose/profiled_object-%: \
    tests/interpose/profiled.c tests/interpose/exchange.c tests/interpose/profiler.c \
    tests/programs/memory-%.o $(fr_interpose_headers)
	$(fr_program)
$(fr_interpose_profiler): tests/interpose/libprofiler-%.so: \
    tests/interpose/profiler.c $(fr_interpose_headers)
	$(fr_program_cc) -fPIC -shared -Wl,-soname,$(@F) $(filter %.c,$^)
# The profiler comes before MPI among the libraries, which the wrapper appends.
$(fr_interpose_library): tests/interpose/profiled_library-%: \
    tests/interpose/profiled.c tests/interpose/exchange.c tests/programs/memory-%.o \
    $(fr_interpose_headers) tests/interpose/libprofiler-%.so
	$(fr_program_cc) $(filter %.c %.o,$^) -Ltests/interpose -Wl,--no-as-needed -lprofiler-$* \
	    -Wl,-rpath,$(abs_builddir)/tests/interpose -ldl
$(fr_interpose_plugin): tests/interpose/plugin-%.so: \
    tests/interpose/exchange.c tests/programs/memory.c $(fr_interpose_headers)
	$(fr_program_cc) -fPIC -shared $(filter %.c,$^) -ldl
$(fr_interpose_fortran): tests/interpose/fortran_plugin-%.so: tests/interpose/fortran_plugin.F90
	$(AM_V_CCLD)$(MKDIR_P) $(@D) && $(fr_mpifc_$*) -O1 -fPIC -shared -o $@ $<
fr_interpose_bound_from = tests/interpose/bound.c tests/interpose/exchange.c tests/programs/memory-%.o \
    tests/interpose/bound.h $(fr_interpose_headers)
$(fr_interpose_bound): tests/interpose/bound-%: $(fr_interpose_bound_from)
	$(fr_program_cc) -DEXCHANGE_BOUND -rdynamic $(filter %.c %.o,$^) -ldl -lpthread
$(fr_interpose_layered): tests/interpose/layered-%: $(fr_interpose_bound_from)
	$(fr_program_cc) -DEXCHANGE_BOUND -DLAYERED -rdynamic $(filter %.c %.o,$^) -ldl -lpthread
$(fr_interpose_loads): tests/interpose/loads-%: tests/interpose/loads.c $(fr_interpose_headers)
	$(fr_program_cc) -rdynamic -pthread $(filter %.c,$^) -ldl
# The plugin, which prefers its own libraries' symbols, has MPI's data where they are in the library.
$(fr_interpose_hostrecv): tests/interpose/hostrecv-%: \
    tests/interpose/hostrecv.c tests/programs/memory.c $(fr_interpose_headers)
	$(fr_program_cc) -fPIC -Wl,-z,nocopyreloc $(filter %.c,$^) -ldl
$(fr_interpose_tooled): tests/interpose/tooled-%: \
    tests/interpose/hostrecv.c tests/interpose/tool.c tests/programs/memory-%.o $(fr_interpose_headers)
	$(fr_program)
$(fr_interpose_tool): tests/interpose/libtool-%.so: tests/interpose/tool.c
	$(fr_program_cc) -fPIC -shared $< -ldl
$(fr_interpose_receives): tests/interpose/libreceives-%.so: tests/interpose/tool.c
	$(fr_program_cc) -fPIC -shared -DTOOL_OF_RECEIVES $< -ldl
fr_interpose_wraps_dlsym = -DWRAP_DLSYM
fr_interpose_wraps_libc = -DWRAP_DLSYM_OF_LIBC
fr_interpose_wraps_dlopen = -DWRAP_DLOPEN
fr_interpose_wraps_malloc = -DWRAP_MALLOC
fr_interpose_wraps_rest = -DWRAP_REST
# The next of a name comes after the caller of dlsym: a wrapper of it goes on by a jump, so that this is still the first.
$(fr_interpose_wrapping): tests/interpose/libwrap_%.so: tests/interpose/wrapping.c
	$(AM_V_CCLD)$(MKDIR_P) $(@D) && $(CC) $(fr_program_flags) -foptimize-sibling-calls $(fr_interpose_wraps_$*) -o $@ -fPIC -shared \
	    -fno-builtin $< -ldl
tests/interpose/libconstructed.so: tests/interpose/constructed.c
	$(AM_V_CCLD)$(MKDIR_P) $(@D) && $(CC) $(fr_program_flags) -o $@ -fPIC -shared $(filter %.c,$^)
tests/interpose/opener: tests/interpose/opener.c tests/interpose/exchange.h
	$(AM_V_CCLD)$(MKDIR_P) $(@D) && $(CC) $(fr_program_flags) -o $@ $(filter %.c,$^) -ldl
endif
