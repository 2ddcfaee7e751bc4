# Room memory: memory of other processes, exported and mapped.
librooms_la_SOURCES += src/memory/asked.c src/memory/channel.c src/memory/engine.h \
	src/memory/export.c src/memory/importers.c src/memory/map.c \
	src/memory/mapping.c src/memory/memory.c src/memory/memory.h src/memory/memory_int.h \
	src/memory/tuned.c src/memory/tuned.h
