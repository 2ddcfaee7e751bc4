# Module device: what is common to all vendors' devices.
libmodules_la_SOURCES += src/device/aperture.c src/device/aperture_cache.c src/device/aperture_cache.h include/fabrail/device/aperture.h \
	src/device/classify.c include/fabrail/device/classify.h src/device/copy.c \
	include/fabrail/device.h include/fabrail/device/range.h include/fabrail/device/memory.h include/fabrail/device/batch.h include/fabrail/device/push.h src/device/device_int.h src/device/ops.h src/device/context_objects.h include/fabrail/device/elements.h include/fabrail/device/kernels.h \
	src/device/model.c src/device/barrier_kernel.c include/fabrail/device/barrier_kernel.h src/device/pack.c src/device/reshape.c \
	include/fabrail/device/pack.h \
	src/device/push.c src/device/reduce.c src/device/reduce_host.c include/fabrail/device/reduce.def include/fabrail/device/reduce.h \
	include/fabrail/device/round.h src/device/vendors.c include/fabrail/device/shape.h include/fabrail/device/shape_table.h include/fabrail/device/shape_walk.h src/device/few.c src/device/mailbox.c src/device/mailbox.h src/device/standby.c include/fabrail/device/standby.h include/fabrail/device/standby_order.h src/device/runs.c include/fabrail/device/runs.h src/device/words.c src/device/work.c

# CUDA: the driver and NVML, found at run time.
libmodules_la_SOURCES += src/device/cuda/context.c src/device/cuda/cuda_int.h src/device/cuda/cuda_driver.h \
	src/device/cuda/dmabuf.c src/device/cuda/driver.c src/device/cuda/gdrcopy.c src/device/cuda/graph.c src/device/cuda/installed.c src/device/cuda/module.c \
	src/device/cuda/mover.c src/device/cuda/nvml.c src/device/cuda/query.c \
	src/device/cuda/rdma.c src/device/cuda/register.c src/device/cuda/share.c \
	src/device/cuda/stream.c src/device/cuda/strided.c src/device/cuda/sync.c \
	src/device/cuda/vmm.c

# Work of the application's own (FABRAIL_SYNC).
libmodules_la_SOURCES += src/device/app_work.c include/fabrail/device/app_work.h \
	src/device/cuda/app_streams.c src/device/cuda/driver_hooks.c

# CUDA's kernels, as an image inside of the library.
EXTRA_DIST += src/device/cuda/kernels.cu src/device/cuda/pack.cu src/device/cuda/reduce.cu \
    src/device/cuda/barrier.cuh src/device/cuda/words.cuh
CLEANFILES += src/device/cuda/kernels.fatbin src/device/cuda/pack.fatbin \
    src/device/cuda/reduce.fatbin
if HAVE_NVCC
libmodules_la_SOURCES += src/device/cuda/image.S
endif
kernel_headers = include/fabrail/device/kernels.h include/fabrail/device/elements.h include/fabrail/device/reduce.def \
    include/fabrail/device/round.h src/device/cuda/barrier.cuh src/device/cuda/words.cuh
pack_headers = include/fabrail/device/shape.h include/fabrail/device/shape_table.h include/fabrail/device/shape_walk.h \
    include/fabrail/device/kernels.h src/device/cuda/words.cuh
src/device/cuda/kernels.fatbin: src/device/cuda/kernels.cu include/fabrail/device/standby_order.h $(kernel_headers)
	$(AM_V_GEN)$(MKDIR_P) src/device/cuda && $(NVCC) -fatbin -O3 -I$(srcdir)/src -I$(srcdir)/include $(NVCC_CODE) \
	    $(NVCCFLAGS) -o $@ $(srcdir)/src/device/cuda/kernels.cu
# Products are not fused with sums, so that results are those of the CPU.
src/device/cuda/reduce.fatbin: src/device/cuda/reduce.cu $(kernel_headers)
	$(AM_V_GEN)$(MKDIR_P) src/device/cuda && $(NVCC) -fatbin -O3 -fmad=false -I$(srcdir)/src -I$(srcdir)/include \
	    $(NVCC_CODE) $(NVCCFLAGS) -o $@ $(srcdir)/src/device/cuda/reduce.cu
src/device/cuda/pack.fatbin: src/device/cuda/pack.cu $(pack_headers)
	$(AM_V_GEN)$(MKDIR_P) src/device/cuda && $(NVCC) -fatbin -O3 -I$(srcdir)/src -I$(srcdir)/include $(NVCC_CODE) \
	    $(NVCCFLAGS) -o $@ $(srcdir)/src/device/cuda/pack.cu
src/device/cuda/image.lo: src/device/cuda/kernels.fatbin src/device/cuda/pack.fatbin \
    src/device/cuda/reduce.fatbin
