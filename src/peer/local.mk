# Room peer: memory shared between processes, and shared-memory agreement.
librooms_la_SOURCES += src/peer/alltoall.c src/peer/alltoall.h src/peer/arrival.c \
	src/peer/engine.c src/peer/engine.h src/peer/export.c src/peer/group.c src/peer/group.h \
	src/peer/expected.c src/peer/herald.c src/peer/herald.h src/peer/herald_int.h \
	src/peer/host.c src/peer/host.h src/peer/host_int.h src/peer/import.c \
	src/peer/kept.c src/peer/kept.h src/peer/mailbox.c src/peer/parcel.c src/peer/parcel.h src/peer/peer.h \
	src/peer/peer_int.h src/peer/process.c src/peer/route.c src/peer/route.h \
	src/peer/segment.c src/peer/segment.h src/peer/shm.c src/peer/shm.h
