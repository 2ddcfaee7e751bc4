libmodules_la_SOURCES += \
	src/staging/stage.c \
	src/staging/typed_copy.c \
	include/fabrail/staging/typed_copy.h \
	src/staging/own_copy.c \
	include/fabrail/staging/own_copy.h \
	src/staging/blocks.c \
	include/fabrail/staging/blocks.h \
	src/staging/fused.c src/staging/host_pack.c \
	include/fabrail/staging/fused.h \
	src/staging/packed.c \
	include/fabrail/staging/packed.h \
	include/fabrail/staging/path.h \
	include/fabrail/staging/tables.h \
	src/staging/view.c

# Module staging: cached staging memory.
libmodules_la_SOURCES += src/staging/device.c src/staging/pool.c src/staging/pinned_region.c \
	src/staging/reserve.c src/staging/staging.c src/staging/tables.c \
	include/fabrail/staging.h src/staging/staging_int.h
