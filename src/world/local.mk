librooms_la_SOURCES += src/world/world.c src/world/world.h
