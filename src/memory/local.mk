# Room memory: memory of other processes, exported and mapped.
librooms_la_SOURCES += src/memory/channel.c src/memory/engine.c src/memory/engine.h \
	src/memory/export.c src/memory/import.c src/memory/memory.c src/memory/memory.h \
	src/memory/memory_int.h
