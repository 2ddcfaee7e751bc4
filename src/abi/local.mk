libmodules_la_SOURCES += \
	src/abi/mpi5.h \
	src/abi/call.c \
	src/abi/caller.c \
	include/fabrail/abi/classes.def \
	include/fabrail/abi/constants.def \
	include/fabrail/abi/functions.def \
	src/abi/load.c \
	include/fabrail/abi/passes.def \
	src/abi/personality.h \
	include/fabrail/abi.h \
	src/abi/rows.c \
	src/abi/shapes.def \
	src/abi/types.c \
	include/fabrail/abi/types.def
