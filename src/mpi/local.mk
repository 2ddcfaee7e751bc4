librooms_la_SOURCES += \
	src/mpi/args.c \
	src/mpi/aware.h \
	src/mpi/build.c \
	src/mpi/schedule.c \
	src/mpi/call.c \
	src/mpi/collective.c \
	src/mpi/comms.c \
	src/mpi/enter.c \
	src/mpi/fabric.c \
	src/mpi/facts.c \
	src/mpi/hooks.c \
	src/mpi/message.c \
	src/mpi/mpi_int.h \
	src/mpi/neighbours.c \
	src/mpi/peer.c \
	src/mpi/present.c \
	src/mpi/probe.c \
	src/mpi/reduce.c \
	src/mpi/replace.c \
	src/mpi/rts.c \
	src/mpi/shape.c \
	src/mpi/side.c \
	src/mpi/side.h \
	src/mpi/sync.c \
	src/mpi/views.c \
	src/mpi/views.h
