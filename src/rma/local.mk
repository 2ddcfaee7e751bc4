# Module rma: windows over device memory.
libmodules_la_SOURCES += include/fabrail/rma.h src/rma/epoch.c src/rma/move.c src/rma/queue.c src/rma/remote.c src/rma/rma_int.h \
	src/rma/update.c src/rma/window.c src/rma/words.c src/rma/words.h
