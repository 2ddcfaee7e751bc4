# Room coll: ranks that agree, and collectives over NVLink.
librooms_la_SOURCES += src/coll/alltoall.c src/coll/alltoall.h src/coll/choice.c src/coll/choice.h \
	src/coll/group.c src/coll/group.h src/coll/segment.c src/coll/segment.h
