libmodules_la_SOURCES += \
	src/request/advance.c \
	src/request/attendant.c \
	src/request/await.c \
	src/request/schedule.c \
	src/request/stand_by.c \
	include/fabrail/request/schedule.h \
	src/request/complete.c \
	src/request/deliver.c \
	src/request/pending_progress.c \
	src/request/hidden_sends.c \
	src/request/posted.c \
	src/request/posted_table.h \
	include/fabrail/request/posted.h \
	src/request/posted_rts.c \
	src/request/op.c \
	src/request/outcome.c \
	src/request/pending.c \
	src/request/persistent.c \
	src/request/rts_receive.c \
	include/fabrail/request.h include/fabrail/request/attendant.h include/fabrail/request/errors.h \
	include/fabrail/request/op.h \
	include/fabrail/request/pending.h \
	src/request/request_int.h \
	src/request/set.c \
	include/fabrail/request/set.h \
	include/fabrail/request/form.h \
	src/request/set_int.h \
	src/request/table.c \
	src/request/table.h \
	src/request/track.c
