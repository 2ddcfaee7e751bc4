librooms_la_SOURCES += src/world/alone.c src/world/census.c \
	src/world/census.h src/world/census_warn.c src/world/clique.c src/world/comm.c \
	src/world/facts.c src/world/hydra.c src/world/meeting.c src/world/name.c \
	src/world/pmix.c src/world/ranks.c src/world/tally.c src/world/world.c src/world/world.h \
	src/world/world_int.h
