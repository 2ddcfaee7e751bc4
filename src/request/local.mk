librooms_la_SOURCES += \
	src/request/bundle.c \
	src/request/bundle.h \
	src/request/complete.c \
	src/request/deliver.c \
	src/request/early.c \
	src/request/gate.c \
	src/request/light.c \
	src/request/light.h \
	src/request/op.c \
	src/request/pending.c \
	src/request/persistent.c \
	src/request/receive.c \
	src/request/request.h \
	src/request/set.h \
	src/request/table.c \
	src/request/table.h \
	src/request/track.c
