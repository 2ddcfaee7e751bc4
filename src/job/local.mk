# Module job: processes, control messages between them, and the shared memory of a host.
libmodules_la_SOURCES += src/job/control.c include/fabrail/job/control.h include/fabrail/job/process.h src/job/control_int.h \
	src/job/host_queue.c src/job/process.c src/job/remote.c src/job/secret.c \
	src/job/shm.c include/fabrail/job/shm.h

libmodules_la_SOURCES += src/job/alone.c src/job/blocked.c src/job/census.c \
	src/job/census.h src/job/census_warn.c src/job/clique.c src/job/comm.c \
	src/job/process_facts.c src/job/hydra.c src/job/finalize_sync.c src/job/name.c \
	src/job/pmix.c src/job/ranks.c src/job/tally.c src/job/job.c include/fabrail/job.h \
	src/job/job_int.h
