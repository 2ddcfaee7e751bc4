# Room peer: messages over NVLink between processes.
librooms_la_SOURCES += src/peer/arrival.c src/peer/expected.c src/peer/herald.c src/peer/herald.h \
	src/peer/herald_int.h src/peer/host.c src/peer/host.h src/peer/host_int.h src/peer/parcel.c \
	src/peer/parcel.h src/peer/route.c src/peer/route.h
