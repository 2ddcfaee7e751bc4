# Room device: the CUDA driver, found at run time.
librooms_la_SOURCES += src/device/device.h src/device/device_int.h src/device/context.c \
	src/device/copy.c src/device/driver.c src/device/installed.c src/device/lane.c src/device/nvml.c \
	src/device/query.c src/device/register.c src/device/settle.c src/device/vmm.c

# Pushes between devices, and their kernels as an image inside of the library.
librooms_la_SOURCES += src/device/kernels.h src/device/module.c src/device/push.c
EXTRA_DIST += src/device/kernels.cu
CLEANFILES += src/device/kernels.fatbin
if HAVE_NVCC
librooms_la_SOURCES += src/device/image.S
endif
src/device/kernels.fatbin: src/device/kernels.cu src/device/kernels.h
	$(AM_V_GEN)$(MKDIR_P) src/device && $(NVCC) -fatbin -O3 -I$(srcdir)/src $(NVCC_CODE) \
	    $(NVCCFLAGS) -o $@ $(srcdir)/src/device/kernels.cu
src/device/image.lo: src/device/kernels.fatbin

# What machine this is.
librooms_la_SOURCES += src/device/machine.c

# Memory shared between processes.
librooms_la_SOURCES += src/device/share.c
