# Room rndv: the rendezvous protocol of messages, and its schemes.
librooms_la_SOURCES += src/rndv/agenda.c src/rndv/cut.c src/rndv/facts.c src/rndv/fragments.c src/rndv/fragments.h \
	src/rndv/get.c src/rndv/hmem.c src/rndv/hmem.h src/rndv/incoming.c src/rndv/ledger.c src/rndv/left.c src/rndv/meet.c \
	src/rndv/meet.h src/rndv/open.c src/rndv/patience.c src/rndv/pipeline.c src/rndv/plain.c src/rndv/probe.c src/rndv/progress.c \
	src/rndv/rail.c src/rndv/rails.c src/rndv/rails.h \
	src/rndv/recv.c src/rndv/refused.c src/rndv/replica.c src/rndv/rndv.h \
	src/rndv/rndv_int.h src/rndv/schemes.c src/rndv/send.c src/rndv/send.h src/rndv/stage.c src/rndv/staged.c \
	src/rndv/thread.c src/rndv/told.c src/rndv/write.c src/rndv/write.h src/rndv/written.c
