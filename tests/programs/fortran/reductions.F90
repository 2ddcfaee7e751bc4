! SPDX-License-Identifier: BSD-3-Clause
! Reductions in Fortran: element i of rank r is r + i, so every result is plain to see.
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
  integer :: n, ranks, rank, ierror
  type(c_ptr) :: send, recv
  real(c_double), pointer, contiguous :: a(:), b(:)

  n = int(bytes / 8)
  ranks = run_size(run)
  rank = run_rank(run)
  call everywhere()
  call in_place()
  call at_root()
  call prefix()

contains

  subroutine open_both(step)
    integer, intent(in) :: step
    call run_step(run, step)
    send = run_buffer(run, 1, int(n, c_size_t) * 8)
    recv = run_buffer(run, 2, int(n, c_size_t) * 8)
    call c_f_pointer(buffer_data(send), a, [n])
    call c_f_pointer(buffer_data(recv), b, [n])
    call expect_sum(send, rank, rank)
    call buffer_upload(send)
  end subroutine

  subroutine finish_both()
    call buffer_finish(recv)
    call buffer_finish(send)
  end subroutine

  ! Element i is the sum over ranks first to last of rank + i.
  subroutine expect_sum(buffer, first, last)
    type(c_ptr), intent(in) :: buffer
    integer, intent(in) :: first, last
    real(c_double), pointer :: want(:)
    integer :: i, r
    call c_f_pointer(buffer_want(buffer), want, [n])
    do i = 1, n
      want(i) = sum([(real(r + i, c_double), r = first, last)])
    end do
  end subroutine

  subroutine everywhere()
    REQUEST_TYPE :: request
    call open_both(6)
    call MPI_Allreduce(a, b, n, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierror)
    call expect_sum(recv, 0, ranks - 1)
    call finish_both()
    call open_both(6)
    call MPI_Iallreduce(a, b, n, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, request, ierror)
    call MPI_Wait(request, MPI_STATUS_IGNORE, ierror)
    call expect_sum(recv, 0, ranks - 1)
    call finish_both()
  end subroutine

  subroutine in_place()
    call open_both(7)
    call MPI_Allreduce(MPI_IN_PLACE, a, n, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierror)
    call expect_sum(send, 0, ranks - 1)
    call finish_both()
  end subroutine

  subroutine at_root()
    call open_both(8)
    call MPI_Reduce(a, b, n, MPI_DOUBLE_PRECISION, MPI_SUM, ranks - 1, MPI_COMM_WORLD, ierror)
    if (rank == ranks - 1) call expect_sum(recv, 0, ranks - 1)
    call finish_both()
  end subroutine

  subroutine prefix()
    call open_both(9)
    call MPI_Scan(a, b, n, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierror)
    call expect_sum(recv, 0, rank)
    call finish_both()
  end subroutine

end subroutine
