# SPDX-License-Identifier: BSD-3-Clause
"""Point to point from Python: arrays with __cuda_array_interface__ given to mpi4py."""

from mpi4py import MPI

from harness import main

TAG = 5


def send_recv(run, size):
    """Send and Recv, one after the other around the ring."""
    send = run.filled("send", run.stream(run.rank, run.right, size))
    recv = run.buffer("recv", size)
    status = MPI.Status()
    if run.rank % 2 == 0:
        request = run.comm.Isend(send.array(), run.right, TAG)
        run.comm.Recv(recv.array(), run.left, TAG, status)
        request.Wait()
    else:
        run.comm.Recv(recv.array(), run.left, TAG, status)
        run.comm.Send(send.array(), run.right, TAG)
    run.check(status.Get_source() == run.left and status.Get_count() == size,
              f"the status has source {status.Get_source()} and count {status.Get_count()}")
    recv.want[:] = run.stream(run.left, run.rank, size)
    recv.finish()
    send.finish()


def isend_irecv(run, size):
    """Several messages under way, each in its part of one buffer."""
    parts = 4
    send = run.filled("send", run.stream(run.rank, run.right, parts * size))
    recv = run.buffer("recv", parts * size)
    requests = []
    for i in range(parts):
        requests.append(run.comm.Irecv(recv.array("u1", i * size, (i + 1) * size), run.left, TAG + i))
    for i in range(parts):
        requests.append(run.comm.Isend(send.array("u1", i * size, (i + 1) * size), run.right, TAG + i))
    MPI.Request.Waitall(requests)
    recv.want[:] = run.stream(run.left, run.rank, parts * size)
    recv.finish()
    send.finish()


def sendrecv(run, size):
    """Sendrecv and Sendrecv_replace."""
    send = run.filled("send", run.stream(run.rank, run.right, size))
    recv = run.buffer("recv", size)
    run.comm.Sendrecv(send.array(), run.right, TAG, recv.array(), run.left, TAG)
    run.comm.Sendrecv_replace(send.array(), run.right, TAG, run.left, TAG)
    recv.want[:] = run.stream(run.left, run.rank, size)
    send.want[:] = run.stream(run.left, run.rank, size)
    recv.finish()
    send.finish()


def typed(run, size):
    """Doubles, with the type named and every other one sent through a vector type."""
    count = size // 16
    send = run.filled("send", run.stream(run.rank, run.right, 16 * count))
    recv = run.buffer("recv", 16 * count)
    datatype = MPI.DOUBLE.Create_vector(count, 1, 2).Commit()
    requests = [run.comm.Irecv([recv.array("f8"), 1, datatype], run.left, TAG),
                run.comm.Isend([send.array("f8"), 1, datatype], run.right, TAG)]
    while not MPI.Request.Testall(requests):
        pass
    data = run.stream(run.left, run.rank, 16 * count)
    recv.want.reshape(count, 16)[:, :8] = data.reshape(count, 16)[:, :8]
    recv.finish()
    send.finish()
    datatype.Free()


def persistent(run, size):
    """Send_init and Recv_init, started again with new data."""
    send, recv = run.buffer("send", size), run.buffer("recv", size)
    requests = [run.comm.Recv_init(recv.array(), run.left, TAG),
                run.comm.Send_init(send.array(), run.right, TAG)]
    for _ in range(3):
        run.round += 1
        send.want[:] = run.stream(run.rank, run.right, size)
        send.upload()
        MPI.Prequest.Startall(requests)
        MPI.Request.Waitall(requests)
        recv.want[:] = run.stream(run.left, run.rank, size)
        recv.check()
    for request in requests:
        request.Free()
    recv.finish()
    send.finish()


if __name__ == "__main__":
    main("exchange.py", [send_recv, isend_irecv, sendrecv, typed, persistent])
