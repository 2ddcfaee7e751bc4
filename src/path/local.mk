librooms_la_SOURCES += \
	src/path/stage.c \
	src/path/stage.h \
	src/path/ops.c \
	src/path/path.h \
	src/path/view.c
