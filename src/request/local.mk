librooms_la_SOURCES += \
	src/request/complete.c \
	src/request/deliver.c \
	src/request/op.c \
	src/request/pending.c \
	src/request/persistent.c \
	src/request/request.h \
	src/request/table.c \
	src/request/table.h \
	src/request/track.c
