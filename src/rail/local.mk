# Room rail: libfabric and hwloc are opened at run time. Where their headers are missing, the room has its
# interface alone.
librooms_la_SOURCES += src/rail/choose.c src/rail/choose.h src/rail/rail.h src/rail/rails.c \
    src/rail/rail_int.h src/rail/sched.c src/rail/sched.h src/rail/steps_int.h \
    src/rail/wire.c src/rail/wire.h
if HAVE_RAILS
librooms_la_SOURCES += src/rail/complete.c src/rail/cores.c src/rail/endpoint.c src/rail/fault.c src/rail/flush.c \
    src/rail/library.c src/rail/machine.c src/rail/nics.c src/rail/peer.c src/rail/post.c \
    src/rail/region.c src/rail/transfer.c
else
librooms_la_SOURCES += src/rail/none.c
endif
