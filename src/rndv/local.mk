# Module rndv: the rendezvous protocol of messages, and its schemes.
libmodules_la_SOURCES += src/rndv/retry_queue.c src/rndv/cut.c src/rndv/message_facts.c src/rndv/fragments.c src/rndv/fragments.h \
	src/rndv/get.c src/rndv/pull.h src/rndv/pull_target.c src/rndv/hmem.c src/rndv/hmem.h src/rndv/incoming.c src/rndv/ledger.c src/rndv/detached_sends.c src/rndv/rail_connect.c \
	src/rndv/rail_connect.h src/rndv/protocol.c src/rndv/patience.c src/rndv/pipeline.c src/rndv/plain.c src/rndv/rail_probe.c src/rndv/progress.c \
	src/rndv/rail.c src/rndv/own_rails.c src/rndv/own_rails.h \
	src/rndv/wait.c include/fabrail/rndv/wait.h src/rndv/recv.c src/rndv/strides.c src/rndv/send_registry.c src/rndv/replica.c include/fabrail/rndv.h \
	src/rndv/rndv_int.h src/rndv/schemes.c src/rndv/send.c src/rndv/send.h src/rndv/send_stage.c src/rndv/staged.c \
	src/rndv/takers.c src/rndv/thread.c src/rndv/waiting_sends.c src/rndv/rail_address_exchange.c src/rndv/rail_put_send.c src/rndv/rail_put_send.h src/rndv/rail_put_recv.c
