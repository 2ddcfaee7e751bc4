# Room control: processes, control messages between them, and the shared memory of a host.
librooms_la_SOURCES += src/control/control.c src/control/control.h src/control/control_int.h \
	src/control/host.c src/control/process.c src/control/remote.c src/control/secret.c \
	src/control/shm.c src/control/shm.h
