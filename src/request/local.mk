librooms_la_SOURCES += \
	src/request/complete.c \
	src/request/deliver.c \
	src/request/fetch.c \
	src/request/gate.c \
	src/request/op.c \
	src/request/pending.c \
	src/request/persistent.c \
	src/request/request.h \
	src/request/set.h \
	src/request/settle.c \
	src/request/table.c \
	src/request/table.h \
	src/request/track.c
