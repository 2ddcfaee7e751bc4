# SPDX-License-Identifier: BSD-3-Clause
"""What the Python programs share: options, the loop over memory kinds, steps and sizes, buffers
between guard bytes and the check of every byte. It follows the harness of the C programs."""

import argparse
import ctypes
import os
import sys
import traceback

import numpy
from mpi4py import MPI

from driver import KINDS, Driver, Missing

GUARD_BYTES = 64
SKIPPED_EXIT = 77
MAX_MESSAGES = 10
DEFAULT_SIZES = (0, 1, 3, 64, 1000, 4096, 4097, 65537, 300001)
LOCAL_RANK_NAMES = (
    "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMI_LOCAL_RANK", "SLURM_LOCALID",
)


class DeviceArray:
    """Device memory as mpi4py knows it: an object with __cuda_array_interface__."""

    def __init__(self, address, count, dtype):
        self.__cuda_array_interface__ = {
            "shape": (count,), "typestr": numpy.dtype(dtype).str, "data": (address, False),
            "version": 3, "strides": None, "stream": None,
        }


class Buffer:
    """Bytes between guards in memory of the run's kind, and in `want` what they must hold."""

    def __init__(self, run, name, size):
        self.run, self.name, self.size = run, name, size
        whole = size + 2 * GUARD_BYTES
        self.shadow = run.stream(-1, run.rank + sum(name.encode()), whole)
        self.want = self.shadow[GUARD_BYTES:GUARD_BYTES + size]
        self.cupy = None
        if run.kind == "cupy":
            import cupy  # pylint: disable=import-outside-toplevel
            self.cupy = cupy.empty(whole, dtype="u1")
        else:
            self.base, self._free = run.driver.allocate(run.kind, whole)
        self.upload()

    def array(self, dtype="u1", start=0, stop=None):
        """The bytes from start to stop as an object to give to MPI."""
        stop = self.size if stop is None else stop
        count = (stop - start) // numpy.dtype(dtype).itemsize
        if self.cupy is not None:
            part = self.cupy[GUARD_BYTES + start:GUARD_BYTES + start + count * numpy.dtype(dtype).itemsize]
            return part.view(dtype)
        address = self.base + GUARD_BYTES + start
        if self.run.kind in ("host", "pinned"):
            memory = (ctypes.c_ubyte * (stop - start)).from_address(address)
            return numpy.frombuffer(memory, dtype=dtype, count=count)
        return DeviceArray(address, count, dtype)

    def upload(self):
        """Makes the memory hold want."""
        if self.cupy is not None:
            import cupy  # pylint: disable=import-outside-toplevel
            self.cupy.set(self.shadow)
            cupy.cuda.get_current_stream().synchronize()
        else:
            self.run.driver.write(self.run.kind, self.base, self.shadow)

    def check(self):
        """Reports the first byte that is not what it must be, guards included."""
        got = numpy.empty_like(self.shadow)
        if self.cupy is not None:
            got[:] = self.cupy.get()
        else:
            self.run.driver.read(self.run.kind, self.base, got)
        wrong = numpy.flatnonzero(got != self.shadow)
        if wrong.size == 0:
            self.run.check(True, "")
            return
        at = int(wrong[0])
        where, index = self.name, at - GUARD_BYTES
        if index < 0:
            where, index = f"the guard before {self.name}", at
        elif index >= self.size:
            where, index = f"the guard after {self.name}", index - self.size
        self.run.check(False, f"byte {index} of {where} is 0x{got[at]:02x}, "
                              f"expected 0x{self.shadow[at]:02x}")

    def finish(self):
        """Checks and frees."""
        self.check()
        if self.cupy is None:
            self._free()
        self.cupy = None


class Run:
    """What one launch of a program knows."""

    def __init__(self, name, seed):
        self.name, self.seed = name, seed
        self.comm = MPI.COMM_WORLD
        self.rank, self.size = self.comm.Get_rank(), self.comm.Get_size()
        self.left, self.right = (self.rank - 1) % self.size, (self.rank + 1) % self.size
        self.driver = Driver(self._local_rank())
        self.kind = self.kind_name = self.step = None
        self.bytes = self.round = self.checks = self.failures = 0

    def _local_rank(self):
        for name in LOCAL_RANK_NAMES:
            if os.environ.get(name, "").isdigit():
                return int(os.environ[name])
        return self.comm.Split_type(MPI.COMM_TYPE_SHARED).Get_rank()

    def stream(self, source, target, size):
        """The bytes that one rank sends another in this step call, alike on all ranks."""
        key = [self.seed, self.round, source + 2, target + 2]
        return numpy.random.default_rng(key).integers(0, 256, size, dtype="u1")

    def buffer(self, name, size):
        """A buffer with a pattern of its own that nobody sends."""
        return Buffer(self, name, size)

    def filled(self, name, data):
        """A buffer that holds these bytes."""
        buffer = Buffer(self, name, data.nbytes)
        buffer.want[:] = data.view("u1")
        buffer.upload()
        return buffer

    def check(self, good, text):
        """Counts a check and reports it if it failed."""
        self.checks += 1
        if good:
            return
        self.failures += 1
        if self.failures <= MAX_MESSAGES:
            print(f"{self.name}: memory {self.kind_name} rank {self.rank}: {text} "
                  f"({self.step}, {self.bytes} bytes)", file=sys.stderr, flush=True)

    def missing(self):
        """Why the kind cannot be had on the lowest rank that lacks it, or None; alike on all."""
        reason = None
        try:
            self.driver.demand(self.kind)
        except Missing as error:
            reason = str(error)
        return next((text for text in self.comm.allgather(reason) if text is not None), None)

    def all_steps(self, steps, sizes, only):
        """Calls each step with each size."""
        for step in steps:
            self.step = step.__name__
            if only not in (None, self.step):
                continue
            for self.bytes in sizes:
                self.round += 1
                step(self, self.bytes)
                self.check(self.driver.context_unchanged(), "the current context has changed")


def parse(name):
    """The options that all programs have."""
    parser = argparse.ArgumentParser(prog=name)
    parser.add_argument("--memory", default=",".join(KINDS[:-1]))
    parser.add_argument("--cupy", action="store_true", help="use CuPy's arrays")
    parser.add_argument("--bytes", default=",".join(map(str, DEFAULT_SIZES)))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--only")
    options = parser.parse_args()
    options.kinds = ["cupy"] if options.cupy else options.memory.split(",")
    if unknown := [kind for kind in options.kinds if kind not in KINDS]:
        parser.error(f"unknown memory {unknown[0]}")
    options.sizes = [int(size) for size in options.bytes.split(",")]
    return options


def run_kind(run, kind, number, steps, options):
    """Runs all steps with one kind of memory. Returns True, False, or None when it was skipped."""
    run.kind_name, run.checks, run.failures = kind, 0, 0
    run.kind = kind if kind != "mixed" else ("device", "host")[run.rank % 2]
    label = f"{number} - {run.name} memory {kind}"
    if reason := run.missing():
        if run.rank == 0:
            print(f"ok {label} # SKIP {reason}", flush=True)
        return None
    for _ in range(options.repeat):
        run.all_steps(steps, options.sizes, options.only)
    failures = run.comm.allreduce(run.failures)
    checks = run.comm.allreduce(run.checks)
    passed = failures == 0 and checks > 0
    if run.rank == 0:
        print(f"{'ok' if passed else 'not ok'} {label}, {checks} checks", flush=True)
    return passed


def main(name, steps):
    """Runs a program and exits with its status. An exception on one rank ends the job."""
    options = parse(name)
    try:
        run = Run(name, options.seed)
        if run.rank == 0:
            print(f"1..{len(options.kinds)}", flush=True)
        results = [run_kind(run, kind, number + 1, steps, options)
                   for number, kind in enumerate(options.kinds)]
    except Exception:  # pylint: disable=broad-except
        traceback.print_exc()
        sys.stderr.flush()
        MPI.COMM_WORLD.Abort(1)
    if False in results:
        sys.exit(1)
    sys.exit(0 if True in results else SKIPPED_EXIT)
