# Room workspace: cached staging memory.
librooms_la_SOURCES += src/workspace/device.c src/workspace/pool.c src/workspace/region.c \
	src/workspace/reserve.c src/workspace/workspace.c src/workspace/workspace.h src/workspace/workspace_int.h
