# SPDX-License-Identifier: BSD-3-Clause
"""Memory of every kind that a program may hand to MPI, had through the CUDA driver by ctypes."""

import ctypes
from ctypes import byref, c_char_p, c_int, c_size_t, c_ubyte, c_uint64, c_ushort, c_void_p

KINDS = (
    "device", "host", "pinned", "managed", "pool", "vmm", "vmm-fd", "vmm-fabric", "mixed", "cupy",
)
HANDLE_TYPES = {"vmm": 0, "vmm-fd": 1, "vmm-fabric": 8}
ATTRIBUTE_MANAGED, ATTRIBUTE_VMM, ATTRIBUTE_POOLS = 83, 102, 115
ALLOCATION_PINNED = LOCATION_DEVICE = HOST_ALLOC_PORTABLE = ATTACH_GLOBAL = 1
ACCESS_READ_WRITE = 3


class Missing(Exception):
    """A kind of memory that this machine does not have, and why."""


class Location(ctypes.Structure):
    """CUmemLocation of cuda.h."""

    _fields_ = [("type", c_int), ("id", c_int)]


class AllocationFlags(ctypes.Structure):
    """The flags inside CUmemAllocationProp."""

    _fields_ = [("compression", c_ubyte), ("rdma", c_ubyte), ("usage", c_ushort),
                ("reserved", c_ubyte * 4)]


class AllocationProperties(ctypes.Structure):
    """CUmemAllocationProp of cuda.h."""

    _fields_ = [("type", c_int), ("handle_types", c_int), ("location", Location),
                ("metadata", c_void_p), ("flags", AllocationFlags)]


class Access(ctypes.Structure):
    """CUmemAccessDesc of cuda.h."""

    _fields_ = [("location", Location), ("flags", c_int)]


class Driver:
    """The CUDA driver with one device's primary context current, or the reason for having none."""

    def __init__(self, local_rank):
        self.missing = None
        self.context = c_void_p()
        self.device = c_int()
        try:
            self.library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            self.missing = f"no CUDA driver: {error}"
            return
        count = c_int()
        result = self.library.cuInit(0) or self.library.cuDeviceGetCount(byref(count))
        if result or count.value == 0:
            self.missing = f"no CUDA device: {self.error(result)}"
            return
        self.call("cuDeviceGet", byref(self.device), local_rank % count.value)
        self.call("cuDevicePrimaryCtxRetain", byref(self.context), self.device)
        self.call("cuCtxSetCurrent", self.context)

    def error(self, result):
        """The driver's name of a result."""
        name = c_char_p()
        self.library.cuGetErrorName(result, byref(name))
        return name.value.decode() if name.value else str(result)

    def call(self, name, *arguments):
        """Calls the driver and raises when it refuses."""
        result = getattr(self.library, name)(*arguments)
        if result:
            raise RuntimeError(f"{name}: {self.error(result)}")

    def context_unchanged(self):
        """Whether the context that was made current still is."""
        if self.missing:
            return True
        current = c_void_p()
        self.call("cuCtxGetCurrent", byref(current))
        return current.value == self.context.value

    def demand(self, kind):
        """Raises Missing unless memory of this kind can be had."""
        if kind == "host":
            return
        if self.missing:
            raise Missing(self.missing)
        attribute = {"managed": ATTRIBUTE_MANAGED, "pool": ATTRIBUTE_POOLS}.get(kind)
        if kind in HANDLE_TYPES:
            attribute = ATTRIBUTE_VMM
        if attribute is not None:
            value = c_int()
            self.call("cuDeviceGetAttribute", byref(value), attribute, self.device)
            if not value.value:
                raise Missing(f"the device has no {kind} memory")
        if kind == "vmm-fabric":
            self._demand_fabric()
        if kind == "cupy":
            try:
                import cupy  # pylint: disable=import-outside-toplevel,unused-import
            except ImportError as error:
                raise Missing(str(error)) from error

    def _demand_fabric(self):
        """Only trying tells: without an IMEX channel the driver refuses what the device supports."""
        handle, properties = c_uint64(), self._properties("vmm-fabric")
        size = self._rounded(properties, 1)
        result = self.library.cuMemCreate(byref(handle), c_size_t(size), byref(properties), c_uint64(0))
        if result:
            raise Missing(f"cuMemCreate with a fabric handle: {self.error(result)}")
        self.call("cuMemRelease", handle)

    def _properties(self, kind):
        properties = AllocationProperties()
        properties.type = ALLOCATION_PINNED
        properties.handle_types = HANDLE_TYPES[kind]
        properties.location = Location(LOCATION_DEVICE, self.device.value)
        return properties

    def _rounded(self, properties, size):
        unit = c_size_t()
        self.call("cuMemGetAllocationGranularity", byref(unit), byref(properties), 0)
        return (size + unit.value - 1) // unit.value * unit.value

    def allocate(self, kind, size):
        """Returns the address and a function that frees it."""
        address = c_uint64()
        if kind == "host":
            memory = ctypes.create_string_buffer(size)
            return ctypes.addressof(memory), lambda: memory
        if kind == "pinned":
            self.call("cuMemHostAlloc", byref(address), c_size_t(size), HOST_ALLOC_PORTABLE)
            return address.value, lambda: self.call("cuMemFreeHost", address)
        if kind == "pool":
            self.call("cuMemAllocAsync", byref(address), c_size_t(size), None)
            self.call("cuStreamSynchronize", None)
            return address.value, lambda: self.call("cuMemFreeAsync", address, None)
        if kind in HANDLE_TYPES:
            return self._allocate_vmm(kind, size)
        if kind == "managed":
            self.call("cuMemAllocManaged", byref(address), c_size_t(size), ATTACH_GLOBAL)
        else:
            self.call("cuMemAlloc_v2", byref(address), c_size_t(size))
        return address.value, lambda: self.call("cuMemFree_v2", address)

    def _allocate_vmm(self, kind, size):
        properties, handle, address = self._properties(kind), c_uint64(), c_uint64()
        mapped, none = c_size_t(self._rounded(properties, size)), c_uint64(0)
        access = Access(properties.location, ACCESS_READ_WRITE)
        self.call("cuMemCreate", byref(handle), mapped, byref(properties), none)
        self.call("cuMemAddressReserve", byref(address), mapped, c_size_t(0), none, none)
        self.call("cuMemMap", address, mapped, c_size_t(0), handle, none)
        self.call("cuMemSetAccess", address, mapped, byref(access), c_size_t(1))

        def free():
            self.call("cuMemUnmap", address, mapped)
            self.call("cuMemAddressFree", address, mapped)
            self.call("cuMemRelease", handle)

        return address.value, free

    def write(self, kind, address, data):
        """Copies a numpy array to memory of this kind."""
        if kind in ("host", "pinned"):
            ctypes.memmove(address, data.ctypes.data, data.nbytes)
            return
        self.call("cuMemcpyHtoD_v2", c_uint64(address), c_void_p(data.ctypes.data),
                  c_size_t(data.nbytes))
        self.call("cuCtxSynchronize")

    def read(self, kind, address, data):
        """Copies memory of this kind into a numpy array."""
        if kind in ("host", "pinned"):
            ctypes.memmove(data.ctypes.data, address, data.nbytes)
            return
        self.call("cuMemcpyDtoH_v2", c_void_p(data.ctypes.data), c_uint64(address),
                  c_size_t(data.nbytes))
