# Room device: the CUDA driver, found at run time.
librooms_la_SOURCES += src/device/device.h src/device/device_int.h src/device/context.c \
	src/device/copy.c src/device/driver.c src/device/installed.c src/device/stream.c src/device/mover.c src/device/nvml.c \
	src/device/query.c src/device/rdma.c src/device/register.c src/device/sync.c src/device/vmm.c

# Pushes between devices, and their kernels as an image inside of the library.
librooms_la_SOURCES += src/device/kernels.h src/device/elements.h src/device/met.c \
	src/device/met.h src/device/module.c src/device/push.c src/device/reduce.c \
	src/device/reduce.def src/device/reduce.h src/device/round.h
EXTRA_DIST += src/device/kernels.cu src/device/reduce.cu src/device/round.cuh
CLEANFILES += src/device/kernels.fatbin src/device/reduce.fatbin
if HAVE_NVCC
librooms_la_SOURCES += src/device/image.S
endif
kernel_headers = src/device/kernels.h src/device/elements.h src/device/reduce.def \
    src/device/round.h src/device/round.cuh
src/device/kernels.fatbin: src/device/kernels.cu $(kernel_headers)
	$(AM_V_GEN)$(MKDIR_P) src/device && $(NVCC) -fatbin -O3 -I$(srcdir)/src $(NVCC_CODE) \
	    $(NVCCFLAGS) -o $@ $(srcdir)/src/device/kernels.cu
# Products are not fused with sums, so that results are those of the CPU.
src/device/reduce.fatbin: src/device/reduce.cu $(kernel_headers)
	$(AM_V_GEN)$(MKDIR_P) src/device && $(NVCC) -fatbin -O3 -fmad=false -I$(srcdir)/src \
	    $(NVCC_CODE) $(NVCCFLAGS) -o $@ $(srcdir)/src/device/reduce.cu
src/device/image.lo: src/device/kernels.fatbin src/device/reduce.fatbin

# What machine this is.
librooms_la_SOURCES += src/device/machine.c

# Memory shared between processes.
librooms_la_SOURCES += src/device/share.c
