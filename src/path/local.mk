librooms_la_SOURCES += \
	src/path/host.c \
	src/path/host.h \
	src/path/ops.c \
	src/path/path.h \
	src/path/view.c
