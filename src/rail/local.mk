# Room rail: libfabric is opened at run time, and where its header is missing the room has its interface
# alone.
librooms_la_SOURCES += src/rail/choose.c src/rail/choose.h
if HAVE_RAILS
librooms_la_SOURCES += src/rail/machine.c
endif
