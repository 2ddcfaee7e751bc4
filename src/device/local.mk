# Room device: the CUDA driver, found at run time.
librooms_la_SOURCES += src/device/device.h src/device/device_int.h src/device/context.c \
	src/device/copy.c src/device/driver.c src/device/lane.c src/device/nvml.c src/device/query.c \
	src/device/register.c src/device/settle.c src/device/vmm.c

# Memory shared between processes.
librooms_la_SOURCES += src/device/share.c
