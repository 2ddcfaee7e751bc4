# SPDX-License-Identifier: BSD-3-Clause
"""A race on purpose, for FABRAIL_SYNC on real GPUs: a kernel that fills every multiprocessor writes late
what is sent without a wait for it. With CuPy and two ranks:

    fabrail run --set=sync=check -- mpirun -n 2 python3 race.py           # one warning; right
    fabrail run --set=sync=auto -- mpirun -n 2 python3 race.py            # no warning; right
    fabrail run -- mpirun -n 2 python3 race.py                            # wrong
    fabrail run --set=sync=check -- mpirun -n 2 python3 race.py --cost    # what the setting costs

With --persistent a kernel runs on another stream from beginning to end, on one multiprocessor.
"""

import sys
import time

import cupy
from mpi4py import MPI

TAG = 7
ROUNDS = 20
COUNT = 1 << 22

late = cupy.RawKernel(r'''
extern "C" __global__ void late(float *data, long long count, float value, long long cycles)
{
    long long begin = clock64();
    while (clock64() - begin < cycles)
        ;
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < count;
         i += (long long)gridDim.x * blockDim.x)
        data[i] = value;
}''', 'late')

endless = cupy.RawKernel(r'''
extern "C" __global__ void endless(volatile int *stop)
{
    while (*stop == 0)
        ;
}''', 'endless')


def race(comm, stream):
    """Sends what the kernel is still writing. Returns how often the numbers were right."""
    data = cupy.zeros(COUNT, dtype=cupy.float32)
    properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
    blocks = 16 * properties['multiProcessorCount']
    right = 0
    for i in range(ROUNDS):
        cupy.cuda.get_current_stream().synchronize()
        comm.Barrier()
        if comm.rank == 0:
            cycles = properties['clockRate'] * 20  # 20 ms
            late((blocks,), (256,), (data, cupy.int64(COUNT), cupy.float32(i + 1), cupy.int64(cycles)),
                 stream=stream)
            comm.Send(data, 1, TAG)
            stream.synchronize()
        else:
            comm.Recv(data, 0, TAG)
            right += bool((data == i + 1).all())
    return right


def cost(comm):
    """Times messages of a program without races, there and back."""
    size = 8
    while size <= 64 << 20:
        data = cupy.zeros(size, dtype=cupy.uint8)
        cupy.cuda.get_current_stream().synchronize()
        rounds = 200 if size < 1 << 20 else 20
        for i in range(2 * rounds):
            if i == rounds:
                comm.Barrier()
                begin = time.perf_counter()
            if comm.rank == 0:
                comm.Send(data, 1, TAG)
                comm.Recv(data, 1, TAG)
            else:
                comm.Recv(data, 0, TAG)
                comm.Send(data, 0, TAG)
        if comm.rank == 0:
            print(f"{size} bytes: {(time.perf_counter() - begin) / rounds / 2 * 1e6:.1f} us a message")
        size *= 8


def main():
    comm = MPI.COMM_WORLD
    cupy.cuda.Device(comm.rank % cupy.cuda.runtime.getDeviceCount()).use()
    stream = cupy.cuda.Stream(non_blocking=True)
    stop = None
    if '--persistent' in sys.argv:
        stop = cupy.zeros(1, dtype=cupy.int32)
        cupy.cuda.get_current_stream().synchronize()
        endless((1,), (1,), (stop,), stream=cupy.cuda.Stream(non_blocking=True))
    if '--cost' in sys.argv:
        cost(comm)
    else:
        right = race(comm, stream)
        if comm.rank == 1:
            print(f"right in {right} of {ROUNDS} rounds")
    if stop is not None:
        with stream:
            stop.fill(1)
        stream.synchronize()


main()
