librooms_la_SOURCES += \
	src/real/abi.h \
	src/real/call.c \
	src/real/caller.c \
	src/real/classes.def \
	src/real/constants.def \
	src/real/functions.def \
	src/real/load.c \
	src/real/passes.def \
	src/real/personality.h \
	src/real/real.h \
	src/real/rows.c \
	src/real/shapes.def \
	src/real/types.c \
	src/real/types.def
