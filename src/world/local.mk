librooms_la_SOURCES += src/world/clique.c src/world/facts.c src/world/world.c \
	src/world/world.h src/world/world_int.h
