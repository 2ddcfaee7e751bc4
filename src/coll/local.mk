# Room coll: ranks that agree, and collectives over NVLink.
librooms_la_SOURCES += src/coll/agree.c src/coll/agree.h src/coll/alltoall.c \
	src/coll/alltoall.h src/coll/bcast.c src/coll/bcast.h src/coll/copies.c src/coll/copies.h \
	src/coll/group.c src/coll/group.h src/coll/mapset.c src/coll/mapset.h src/coll/meet.c \
	src/coll/meet.h src/coll/number.c src/coll/number.h src/coll/open.c src/coll/open.h \
	src/coll/place.c src/coll/place.h \
	src/coll/posts.c src/coll/posts.h src/coll/reduce.c src/coll/reduce.h src/coll/rounds.c \
	src/coll/rounds.h src/coll/segment.c src/coll/segment.h src/coll/slab.c src/coll/slab.h \
	src/coll/slab_int.h src/coll/slab_round.c src/coll/task.c src/coll/task.h src/coll/wait.c \
	src/coll/wait.h
