# Module datatype: datatypes to byte runs and back.
libmodules_la_SOURCES += src/datatype/array.c src/datatype/cache.c src/datatype/compile.c \
	src/datatype/contents.c \
	src/datatype/decode.c src/datatype/external.c include/fabrail/datatype.h src/datatype/datatype_int.h src/datatype/list.c \
	src/datatype/packing_probe.c src/datatype/signature.c src/datatype/unit.c src/datatype/visit.c
