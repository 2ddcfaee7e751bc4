librooms_la_SOURCES += \
	src/request/bundle.c \
	src/request/bundle.h \
	src/request/chunks.c \
	src/request/chunks.h \
	src/request/chunks_int.h \
	src/request/complete.c \
	src/request/deliver.c \
	src/request/fetch.c \
	src/request/gate.c \
	src/request/light.c \
	src/request/light.h \
	src/request/op.c \
	src/request/outgoing.c \
	src/request/outgoing_int.h \
	src/request/packed.c \
	src/request/packed.h \
	src/request/pending.c \
	src/request/persistent.c \
	src/request/request.h \
	src/request/set.h \
	src/request/settle.c \
	src/request/slices.c \
	src/request/table.c \
	src/request/table.h \
	src/request/track.c
