# Module coll: ranks that agree, and collectives over NVLink.
libmodules_la_SOURCES += src/coll/team_clone.c include/fabrail/coll/clone.h src/coll/queue.c include/fabrail/coll/queue.h src/coll/queue_thread.c src/coll/queue_thread.h src/coll/agree.c include/fabrail/coll/agree.h src/coll/alltoall.c \
	include/fabrail/coll/alltoall.h src/coll/host.c include/fabrail/coll/host.h src/coll/host_posts.c include/fabrail/coll/host_posts.h \
	src/coll/host_exchange.c include/fabrail/coll/host_exchange.h src/coll/host_reduce.c include/fabrail/coll/host_reduce.h src/coll/bcast.c include/fabrail/coll/bcast.h src/coll/copies.c include/fabrail/coll/copies.h \
	src/coll/team.c include/fabrail/coll.h src/coll/mapset.c src/coll/mapset.h src/coll/team_message.c \
	include/fabrail/coll/team_message.h src/coll/number.c include/fabrail/coll/number.h src/coll/team_memory.c src/coll/team_memory.h \
	src/coll/team_quit.c src/coll/team_quit.h \
	src/coll/team_discovery.c include/fabrail/coll/team_discovery.h \
	src/coll/shm_slots.c include/fabrail/coll/shm_slots.h src/coll/reduction.c include/fabrail/coll/reduction.h src/coll/rounds.c \
	include/fabrail/coll/rounds.h src/coll/segment.c include/fabrail/coll/segment.h src/coll/slab.c include/fabrail/coll/slab.h \
	src/coll/slab_int.h src/coll/slab_parts.c src/coll/slab_round.c src/coll/task.c include/fabrail/coll/task.h
