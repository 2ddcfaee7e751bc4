# Room control: processes, and the shared memory of a host.
librooms_la_SOURCES += src/control/control.h src/control/process.c src/control/shm.c \
	src/control/shm.h
