# The library to preload: the stubs of all MPI functions and every module behind them. No MPI and no CUDA
# is linked.
lib_LTLIBRARIES += libfabrail.la
libfabrail_la_SOURCES = src/abi/stubs.S src/abi/lookup.S src/intercept/window_entry.S
libfabrail_la_LIBADD = libmodules.la
libfabrail_la_LDFLAGS = -module -avoid-version -shared -no-undefined -Wl,--no-undefined \
    -Wl,-z,nodelete -Wl,--version-script=$(srcdir)/src/libfabrail.map
libfabrail_la_DEPENDENCIES = libmodules.la src/libfabrail.map
EXTRA_DIST += src/libfabrail.map
