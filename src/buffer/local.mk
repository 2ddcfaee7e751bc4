# Room buffer: what a pointer is.
librooms_la_SOURCES += src/buffer/buffer.c src/buffer/buffer.h
