# SPDX-License-Identifier: BSD-3-Clause
"""Collectives from Python: arrays with __cuda_array_interface__ given to mpi4py."""

import numpy
from mpi4py import MPI

from harness import main


def sent(run, size):
    """The blocks that this rank sends to each, one after the other."""
    return numpy.concatenate([run.stream(run.rank, peer, size) for peer in range(run.size)])


def received(run, size):
    """The blocks that this rank receives from each."""
    return numpy.concatenate([run.stream(peer, run.rank, size) for peer in range(run.size)])


def alltoall(run, size):
    """Alltoall, nonblocking and in place too."""
    send = run.filled("send", sent(run, size))
    recv, other = run.buffer("recv", send.size), run.buffer("other", send.size)
    run.comm.Alltoall(send.array(), recv.array())
    run.comm.Ialltoall(send.array(), other.array()).Wait()
    run.comm.Alltoall(MPI.IN_PLACE, send.array())
    for buffer in (recv, other, send):
        buffer.want[:] = received(run, size)
        buffer.finish()


def alltoallv(run, size):
    """Alltoallv with blocks of different sizes, in reverse order and with gaps."""
    counts = [size * (1 + (run.rank + peer) % 3) // 2 for peer in range(run.size)]
    places, end = [0] * run.size, 0
    for peer in reversed(range(run.size)):
        places[peer] = end + 8
        end = places[peer] + counts[peer]
    send, recv = run.buffer("send", end), run.buffer("recv", end)
    for peer, (count, place) in enumerate(zip(counts, places)):
        send.want[place:place + count] = run.stream(run.rank, peer, count)
    send.upload()
    run.comm.Alltoallv([send.array(), counts, places, MPI.BYTE],
                       [recv.array(), counts, places, MPI.BYTE])
    for peer, (count, place) in enumerate(zip(counts, places)):
        recv.want[place:place + count] = run.stream(peer, run.rank, count)
    recv.finish()
    send.finish()


def allreduce(run, size):
    """Allreduce of whole numbers in doubles, so that any order gives the same sum."""
    count = size // 8
    values = [run.stream(rank, -2, count).astype("f8") for rank in range(run.size)]
    send = run.filled("send", values[run.rank])
    recv, other = run.buffer("recv", 8 * count), run.buffer("other", 8 * count)
    run.comm.Allreduce(send.array("f8"), recv.array("f8"))
    run.comm.Iallreduce(send.array("f8"), other.array("f8"), MPI.MAX).Wait()
    run.comm.Allreduce(MPI.IN_PLACE, send.array("f8"))
    recv.want[:] = sum(values).view("u1")
    send.want[:] = sum(values).view("u1")
    other.want[:] = numpy.max(values, axis=0).view("u1")
    for buffer in (recv, other, send):
        buffer.finish()


def bcast(run, size):
    """Bcast from every rank, blocking and not."""
    for root in range(run.size):
        data = run.stream(root, -2, size)
        both = run.filled("both", data) if run.rank == root else run.buffer("both", size)
        if root % 2 == 0:
            run.comm.Bcast(both.array(), root)
        else:
            run.comm.Ibcast(both.array(), root).Wait()
        both.want[:] = data
        both.finish()


def allgather(run, size):
    """Allgather, and Allgatherv with the same blocks."""
    send = run.filled("send", run.stream(run.rank, -2, size))
    recv, other = run.buffer("recv", size * run.size), run.buffer("other", size * run.size)
    run.comm.Allgather(send.array(), recv.array())
    run.comm.Allgatherv(send.array(), [other.array(), [size] * run.size, None, MPI.BYTE])
    data = numpy.concatenate([run.stream(rank, -2, size) for rank in range(run.size)])
    for buffer in (recv, other):
        buffer.want[:] = data
        buffer.finish()
    send.finish()


def gather_scatter(run, size):
    """Gather to rank 0 and Scatter back; nobody else has a buffer for the whole."""
    root = run.rank == 0
    send = run.filled("send", run.stream(run.rank, -2, size))
    whole = run.buffer("whole", size * run.size) if root else None
    back = run.buffer("back", size)
    run.comm.Gather(send.array(), whole.array() if root else None, 0)
    run.comm.Scatter(whole.array() if root else None, back.array(), 0)
    if root:
        whole.want[:] = numpy.concatenate([run.stream(rank, -2, size) for rank in range(run.size)])
        whole.finish()
    back.want[:] = run.stream(run.rank, -2, size)
    back.finish()
    send.finish()


if __name__ == "__main__":
    main("collective.py", [alltoall, alltoallv, allreduce, bcast, allgather, gather_scatter])
