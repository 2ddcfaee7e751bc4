! SPDX-License-Identifier: BSD-3-Clause
! A halo exchange in Fortran: the columns of a matrix are contiguous and its rows are not. Each rank
! sends its second row and column, without their ends, to the right and receives its first ones from
! the left.
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
  integer, parameter :: tag_row = 1, tag_column = 2
  integer :: edge, left, right, rank, ierror
  type(c_ptr) :: cells
  real(c_double), pointer, contiguous :: a(:)
  DATATYPE_TYPE :: row

  edge = 3 + int(sqrt(real(bytes, c_double) / 8))
  rank = run_rank(run)
  left = modulo(rank - 1, run_size(run))
  right = modulo(rank + 1, run_size(run))
  call MPI_Type_vector(edge - 2, 1, edge, MPI_DOUBLE_PRECISION, row, ierror)
  call MPI_Type_commit(row, ierror)
  call nonblocking()
  call persistent()
  call by_address()
  if (run_size(run) > 1) call window()
  call MPI_Type_free(row, ierror)

contains

  subroutine open_cells()
    cells = run_buffer(run, 3, int(edge, c_size_t)**2 * 8)
    call c_f_pointer(buffer_data(cells), a, [edge * edge])
    call buffer_expect(cells, 0_c_size_t, int(edge, c_size_t)**2 * 8, run_seed(run, rank, 0))
    call buffer_upload(cells)
  end subroutine

  ! The left neighbour's second row and column are this rank's first ones; all other cells stay.
  subroutine expect_cells()
    real(c_double), pointer :: want(:, :), theirs(:, :)
    real(c_double), allocatable, target :: other(:)
    call c_f_pointer(buffer_want(cells), want, [edge, edge])
    allocate (other(edge * edge))
    call pattern_write(c_loc(other), run_seed(run, left, 0), 0_c_size_t, int(edge, c_size_t)**2 * 8)
    theirs(1:edge, 1:edge) => other
    want(1, 2:edge - 1) = theirs(2, 2:edge - 1)
    want(2:edge - 1, 1) = theirs(2:edge - 1, 2)
    call buffer_finish(cells)
  end subroutine

  subroutine nonblocking()
    REQUEST_TYPE :: requests(4)
    call run_step(run, 10)
    call open_cells()
    call MPI_Irecv(a(edge + 1), 1, row, left, tag_row, MPI_COMM_WORLD, requests(1), ierror)
    call MPI_Irecv(a(2), edge - 2, MPI_DOUBLE_PRECISION, left, tag_column, MPI_COMM_WORLD, &
                   requests(2), ierror)
    call MPI_Isend(a(edge + 2), 1, row, right, tag_row, MPI_COMM_WORLD, requests(3), ierror)
    call MPI_Isend(a(edge + 2), edge - 2, MPI_DOUBLE_PRECISION, right, tag_column, MPI_COMM_WORLD, &
                   requests(4), ierror)
    call MPI_Waitall(4, requests, MPI_STATUSES_IGNORE, ierror)
    call expect_cells()
  end subroutine

  subroutine persistent()
    REQUEST_TYPE :: requests(4)
    integer :: i
    call run_step(run, 11)
    call open_cells()
    call MPI_Recv_init(a(edge + 1), 1, row, left, tag_row, MPI_COMM_WORLD, requests(1), ierror)
    call MPI_Recv_init(a(2), edge - 2, MPI_DOUBLE_PRECISION, left, tag_column, MPI_COMM_WORLD, &
                       requests(2), ierror)
    call MPI_Send_init(a(edge + 2), 1, row, right, tag_row, MPI_COMM_WORLD, requests(3), ierror)
    call MPI_Send_init(a(edge + 2), edge - 2, MPI_DOUBLE_PRECISION, right, tag_column, &
                       MPI_COMM_WORLD, requests(4), ierror)
    call MPI_Startall(4, requests, ierror)
    call MPI_Waitall(4, requests, MPI_STATUSES_IGNORE, ierror)
    do i = 1, 4
      call MPI_Request_free(requests(i), ierror)
    end do
    call expect_cells()
  end subroutine

  ! A window over the cells tells where they are, and how many.
  subroutine window()
    WIN_TYPE :: win
    integer(kind=MPI_ADDRESS_KIND) :: base, length, found(3)
    logical :: flags(3)
    call run_step(run, 14)
    call open_cells()
    call MPI_Get_address(a(1), base, ierror)
    length = int(edge, MPI_ADDRESS_KIND)**2 * 8
    call MPI_Win_create(a, length, 8, MPI_INFO_NULL, MPI_COMM_WORLD, win, ierror)
    call MPI_Win_get_attr(win, MPI_WIN_BASE, found(1), flags(1), ierror)
    call MPI_Win_get_attr(win, MPI_WIN_SIZE, found(2), flags(2), ierror)
    call MPI_Win_get_attr(win, MPI_WIN_DISP_UNIT, found(3), flags(3), ierror)
    if (.not. all(flags) .or. any(found /= [base, length, 8_MPI_ADDRESS_KIND])) then
      print *, 'a window of', base, length, ' tells', flags, found
      error stop 1
    end if
    call MPI_Win_free(win, ierror)
    call buffer_finish(cells)
  end subroutine

  ! The row and the column as one message each way, by absolute addresses.
  subroutine by_address()
    DATATYPE_TYPE :: types(2), incoming, outgoing
    integer(kind=MPI_ADDRESS_KIND) :: addresses(2)
    integer :: lengths(2)
    STATUS_TYPE :: status
    call run_step(run, 12)
    call open_cells()
    types(1) = row
    types(2) = MPI_DOUBLE_PRECISION
    lengths = [1, edge - 2]
    call MPI_Get_address(a(edge + 1), addresses(1), ierror)
    call MPI_Get_address(a(2), addresses(2), ierror)
    call MPI_Type_create_struct(2, lengths, addresses, types, incoming, ierror)
    call MPI_Get_address(a(edge + 2), addresses(1), ierror)
    addresses(2) = addresses(1)
    call MPI_Type_create_struct(2, lengths, addresses, types, outgoing, ierror)
    call MPI_Type_commit(incoming, ierror)
    call MPI_Type_commit(outgoing, ierror)
    call MPI_Sendrecv(MPI_BOTTOM, 1, outgoing, right, tag_row, MPI_BOTTOM, 1, incoming, left, &
                      tag_row, MPI_COMM_WORLD, status, ierror)
    call MPI_Type_free(incoming, ierror)
    call MPI_Type_free(outgoing, ierror)
    call expect_cells()
  end subroutine

end subroutine
