# Module ipc: memory of other processes, exported and mapped.
libmodules_la_SOURCES += src/ipc/map_requests.c src/ipc/channel.c include/fabrail/ipc/engine.h \
	src/ipc/export.c src/ipc/export_watch.c src/ipc/map.c \
	src/ipc/mapping.c src/ipc/mapping_cache.h src/ipc/pin.c src/ipc/ipc.c include/fabrail/ipc.h src/ipc/ipc_int.h \
	src/ipc/tuned.c include/fabrail/ipc/tuned.h
