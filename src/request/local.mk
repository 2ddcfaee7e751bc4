librooms_la_SOURCES += \
	src/request/await.c \
	src/request/schedule.c \
	src/request/schedule.h \
	src/request/complete.c \
	src/request/deliver.c \
	src/request/early.c \
	src/request/defer.c \
	src/request/posted.c \
	src/request/places.h \
	src/request/posted.h \
	src/request/posted_rts.c \
	src/request/op.c \
	src/request/outcome.c \
	src/request/pending.c \
	src/request/persistent.c \
	src/request/receive.c \
	src/request/request.h \
	src/request/set.c \
	src/request/set.h \
	src/request/table.c \
	src/request/table.h \
	src/request/track.c
