libmodules_la_SOURCES += \
	src/intercept/args.c \
	src/intercept/attach.c \
	src/intercept/gpu_aware.h \
	src/intercept/by_messages.c \
	src/intercept/coll_messages.c src/intercept/coll_messages.h \
	src/intercept/coll_schedule.c \
	src/intercept/coll_self.c \
	src/intercept/coll_shapes.c src/intercept/coll_shapes.h \
	src/intercept/buffer_call.c src/intercept/buffer_paths.c src/intercept/buffer_paths.h \
	src/intercept/counting.c \
	src/intercept/coll_views.c \
	src/intercept/comms.c \
	src/intercept/dispatch.c \
	src/intercept/entry.c \
	src/intercept/entry.h \
	src/intercept/fabric.c \
	src/intercept/fortran.c \
	src/intercept/gpu_aware.c \
	src/intercept/guard.c \
	src/intercept/guard_requests.c \
	src/intercept/guard_look.c \
	src/intercept/guard.h \
	src/intercept/hooks.c \
	src/intercept/lookup.c \
	src/intercept/memory_kinds.c \
	src/intercept/message.c \
	src/intercept/intercept_int.h src/intercept/message.h src/intercept/stub.h \
	src/intercept/neighbours.c \
	src/intercept/coll_nvlink.c \
	src/intercept/pack_call.c \
	src/intercept/persistent_send.c \
	src/intercept/present.c \
	src/intercept/probe.c \
	src/intercept/proof.c \
	src/intercept/host_fastpath.c \
	src/intercept/reasons.c \
	src/intercept/receive.c \
	src/intercept/coll_combine.c \
	src/intercept/coll_reduction.c \
	src/intercept/coll_reduction.h \
	src/intercept/coll_reduction_nonblocking.c \
	src/intercept/coll_exchange.c \
	src/intercept/coll_exchange.h \
	src/intercept/coll_exchange_nonblocking.c \
	src/intercept/coll_nonblocking.c \
	src/intercept/coll_nonblocking.h \
	src/intercept/redirect.c \
	src/intercept/replace.c \
	src/intercept/rts.c \
	src/intercept/rts.h \
	src/intercept/serve_within.c \
	src/intercept/shape.c \
	src/intercept/coll_buffer.c \
	src/intercept/coll_buffer.h \
	src/intercept/spawn.c \
	src/intercept/win_sync.c \
	src/intercept/window_call.c \
	src/intercept/window_call.h \
	src/intercept/window_access.c \
	src/intercept/window_make.c \
	src/intercept/views.c \
	src/intercept/views.h
