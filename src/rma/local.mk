# Module rma: windows over device memory.
libmodules_la_SOURCES += include/fabrail/rma.h include/fabrail/rma/access.h src/rma/advert.h src/rma/element.c src/rma/epoch.c src/rma/far.c src/rma/far.h src/rma/far_request.c src/rma/far_request.h src/rma/fragment.c src/rma/fragment.h src/rma/handles.c src/rma/large.c \
	src/rma/meet.c src/rma/window_message.c src/rma/window_message.h src/rma/move.c src/rma/piece_queue.c src/rma/piece_queue.h src/rma/host_target.c src/rma/rma_int.h \
	src/rma/reach.c src/rma/region.c src/rma/region.h src/rma/serve.c src/rma/serve_large.c src/rma/shelf.c src/rma/shelf.h src/rma/target_memory.c src/rma/target_memory.h src/rma/window_transfer.c src/rma/window_transfer.h src/rma/update.c src/rma/window.c src/rma/epoch_words.c src/rma/epoch_words.h
