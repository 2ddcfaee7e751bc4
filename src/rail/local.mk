# Module rail: libfabric and hwloc are opened at run time. Where their headers are missing, the module has its
# interface alone.
libmodules_la_SOURCES += src/rail/choose.c src/rail/choose.h include/fabrail/rail.h include/fabrail/rail/options.h src/rail/options.c \
    src/rail/rail_int.h src/rail/transfer_int.h src/rail/sched.c src/rail/sched.h src/rail/steps_int.h \
    src/rail/wire.c src/rail/wire.h
if HAVE_RAILS
libmodules_la_SOURCES += src/rail/carrier.c src/rail/completion.c src/rail/cores.c src/rail/endpoint.c src/rail/fault.c src/rail/flush.c \
    src/rail/library.c src/rail/topology.c src/rail/nics.c src/rail/link_peers.c src/rail/post.c \
    src/rail/rails.c src/rail/registration.c src/rail/transfer.c
else
libmodules_la_SOURCES += src/rail/none.c
endif
