librooms_la_SOURCES += \
	src/mpi/announce.c \
	src/mpi/args.c \
	src/mpi/aware.h \
	src/mpi/build.c \
	src/mpi/bundle.c \
	src/mpi/call.c \
	src/mpi/collective.c \
	src/mpi/enter.c \
	src/mpi/fabric.c \
	src/mpi/facts.c \
	src/mpi/hear.c \
	src/mpi/hooks.c \
	src/mpi/mpi_int.h \
	src/mpi/neighbours.c \
	src/mpi/peer.c \
	src/mpi/pipeline.c \
	src/mpi/placed.c \
	src/mpi/present.c \
	src/mpi/probe.c \
	src/mpi/replace.c \
	src/mpi/shape.c \
	src/mpi/sync.c \
	src/mpi/views.c \
	src/mpi/views.h
