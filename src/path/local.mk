librooms_la_SOURCES += \
	src/path/stage.c \
	src/path/stage.h \
	src/path/ops.c \
	src/path/pack.c \
	src/path/pack.h \
	src/path/packed.c \
	src/path/packed.h \
	src/path/path.h \
	src/path/view.c
