# Room core: status, log, settings, lock.
librooms_la_SOURCES += src/core/core.h src/core/files.c src/core/files.h src/core/hash.h src/core/job.c \
	src/core/list.h src/core/log.c src/core/meter.c src/core/meter.h src/core/object.c src/core/object.h src/core/settings.c src/core/status.c src/core/time.h \
	src/core/wait.c src/core/wait.h
