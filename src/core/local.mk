# Module core: status, log, settings, lock.
libmodules_la_SOURCES += include/fabrail/core.h include/fabrail/core/aligned.h src/core/files.c include/fabrail/core/files.h include/fabrail/core/hash.h src/core/job_name.c \
	include/fabrail/core/list.h src/core/log.c src/core/meter.c include/fabrail/core/meter.h src/core/object.c include/fabrail/core/object.h src/core/settings.c src/core/settings.def include/fabrail/core/settings.h src/core/site.c src/core/slots.c include/fabrail/core/site.h src/core/status.c src/core/thread.c include/fabrail/core/thread.h include/fabrail/core/time.h \
	src/core/wait.c include/fabrail/core/wait.h
# It has a folder in it, which another run of configure may change.
src/core/files.lo: Makefile
