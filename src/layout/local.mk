# Room layout: datatypes to byte runs and back.
librooms_la_SOURCES += src/layout/array.c src/layout/cache.c src/layout/compile.c \
	src/layout/contents.c \
	src/layout/decode.c src/layout/layout.h src/layout/layout_int.h src/layout/list.c \
	src/layout/packed.c src/layout/signature.c src/layout/unit.c src/layout/visit.c
