# Module rndv: the rendezvous protocol of messages, and its schemes.
libmodules_la_SOURCES += include/fabrail/rndv.h include/fabrail/rndv/incoming.h \
	include/fabrail/rndv/outgoing.h include/fabrail/rndv/progress.h include/fabrail/rndv/receive.h include/fabrail/rndv/ahead.h \
	src/rndv/ahead_int.h src/rndv/awaited.c src/rndv/cut.c \
	src/rndv/fragments.c src/rndv/fragments.h src/rndv/get.c src/rndv/hmem.c \
	src/rndv/hmem.h src/rndv/incoming.c src/rndv/incoming_int.h src/rndv/ledger.c src/rndv/ledger.h src/rndv/ledger_device.c \
	src/rndv/message_facts.c src/rndv/own_rails.c src/rndv/own_rails.h src/rndv/patience.c src/rndv/pipeline.c \
	src/rndv/plain.c src/rndv/plain.h src/rndv/progress.c src/rndv/protocol.c src/rndv/protocol.h src/rndv/pull.h \
	src/rndv/pull_target.c src/rndv/rail.c src/rndv/rail_recv.c src/rndv/rail_recv.h src/rndv/rail_address_exchange.c src/rndv/rail_connect.c \
	src/rndv/rail_connect.h src/rndv/rail_probe.c src/rndv/rail_put_recv.c src/rndv/rail_put_send.c \
	src/rndv/rail_put_send.h src/rndv/recv.c src/rndv/replica.c src/rndv/replica.h src/rndv/retry_queue.c \
	src/rndv/schemes.c src/rndv/schemes.h src/rndv/send.c src/rndv/send.h src/rndv/send_registry.c \
	src/rndv/send_stage.c src/rndv/send_stage.h src/rndv/slot.c src/rndv/slot.h src/rndv/staged.c src/rndv/ahead.c src/rndv/strides.c src/rndv/strides.h \
	src/rndv/takers.c src/rndv/takers.h src/rndv/rails_thread.c src/rndv/waiting_sends.c src/rndv/waiting_sends.h
