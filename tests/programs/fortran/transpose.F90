! SPDX-License-Identifier: BSD-3-Clause
! The transpose in Fortran: every rank sends a block to every other.
#include "init.inc"

subroutine fortran_step(run, bytes) bind(C)
  use, intrinsic :: iso_c_binding
#if defined FORTRAN_f08
  use mpi_f08
#elif defined FORTRAN_mpi
  use mpi
#endif
  implicit none
#include "interface.inc"
  type(c_ptr), value :: run
  integer(c_size_t), value :: bytes
  integer :: n, ranks, rank

  n = int(bytes / 8)
  ranks = run_size(run)
  rank = run_rank(run)
  call blocking()
  call in_place()
  call with_counts()
  call nonblocking()

contains

  ! A buffer of ranks blocks of n doubles, as Fortran sees its memory.
  subroutine open_blocks(name, buffer, values)
    integer(c_int), intent(in) :: name
    type(c_ptr), intent(out) :: buffer
    real(c_double), pointer, contiguous, intent(out) :: values(:)
    buffer = run_buffer(run, name, int(n, c_size_t) * 8 * ranks)
    call c_f_pointer(buffer_data(buffer), values, [n * ranks])
  end subroutine

  ! Expects in a buffer the data that this rank sends to each rank, or has received from each.
  subroutine expect_blocks(buffer, received)
    type(c_ptr), intent(in) :: buffer
    logical, intent(in) :: received
    integer :: peer
    integer(c_int64_t) :: seed
    do peer = 0, ranks - 1
      if (received) then
        seed = run_seed(run, peer, rank)
      else
        seed = run_seed(run, rank, peer)
      end if
      call buffer_expect(buffer, int(n, c_size_t) * 8 * peer, int(n, c_size_t) * 8, seed)
    end do
  end subroutine

  subroutine open_both(send, recv, a, b)
    type(c_ptr), intent(out) :: send, recv
    real(c_double), pointer, contiguous, intent(out) :: a(:), b(:)
    call open_blocks(1, send, a)
    call open_blocks(2, recv, b)
    call expect_blocks(send, .false.)
    call buffer_upload(send)
  end subroutine

  subroutine finish_both(send, recv)
    type(c_ptr), intent(in) :: send, recv
    call expect_blocks(recv, .true.)
    call buffer_finish(recv)
    call buffer_finish(send)
  end subroutine

  subroutine blocking()
    type(c_ptr) :: send, recv
    real(c_double), pointer, contiguous :: a(:), b(:)
    integer :: ierror
    call run_step(run, 1)
    call open_both(send, recv, a, b)
    call MPI_Alltoall(a, n, MPI_DOUBLE_PRECISION, b, n, MPI_DOUBLE_PRECISION, MPI_COMM_WORLD, ierror)
    call finish_both(send, recv)
  end subroutine

  subroutine in_place()
    type(c_ptr) :: both
    real(c_double), pointer, contiguous :: a(:)
    integer :: ierror
    call run_step(run, 2)
    call open_blocks(3, both, a)
    call expect_blocks(both, .false.)
    call buffer_upload(both)
    call MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DOUBLE_PRECISION, a, n, MPI_DOUBLE_PRECISION, &
                      MPI_COMM_WORLD, ierror)
    call expect_blocks(both, .true.)
    call buffer_finish(both)
  end subroutine

  subroutine with_counts()
    type(c_ptr) :: send, recv
    real(c_double), pointer, contiguous :: a(:), b(:)
    integer :: counts(ranks), places(ranks), i, ierror
    call run_step(run, 3)
    counts = n
    places = [((i - 1) * n, i = 1, ranks)]
    call open_both(send, recv, a, b)
    call MPI_Alltoallv(a, counts, places, MPI_DOUBLE_PRECISION, b, counts, places, &
                       MPI_DOUBLE_PRECISION, MPI_COMM_WORLD, ierror)
    call finish_both(send, recv)
  end subroutine

  subroutine nonblocking()
    type(c_ptr) :: send, recv
    real(c_double), pointer, contiguous :: a(:), b(:)
    REQUEST_TYPE :: request
    integer :: ierror
    call run_step(run, 4)
    call open_both(send, recv, a, b)
    call MPI_Ialltoall(a, n, MPI_DOUBLE_PRECISION, b, n, MPI_DOUBLE_PRECISION, MPI_COMM_WORLD, &
                       request, ierror)
    call MPI_Wait(request, MPI_STATUS_IGNORE, ierror)
    call finish_both(send, recv)
  end subroutine

end subroutine
