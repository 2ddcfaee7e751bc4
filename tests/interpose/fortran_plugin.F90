! SPDX-License-Identifier: BSD-3-Clause
! A plugin in Fortran, which opener.c opens in a scope of its own: attributes of a window over host memory.
function exchange_run() bind(c, name="exchange_run") result(status)
  use iso_c_binding
  use mpi
  implicit none
  integer(c_int) :: status
  integer, parameter :: numbers = 16, number_bytes = 4
  integer, save :: memory(numbers)
  integer :: win, error
  integer(kind=MPI_ADDRESS_KIND) :: bytes
  logical :: found
  bytes = numbers * number_bytes
  status = 1
  call MPI_Init(error)
  call MPI_Win_create(memory, bytes, number_bytes, MPI_INFO_NULL, MPI_COMM_WORLD, win, error)
  bytes = 0
  call MPI_Win_get_attr(win, MPI_WIN_SIZE, bytes, found, error)
  if (error == MPI_SUCCESS .and. found .and. bytes == numbers * number_bytes) status = 0
  call MPI_Win_free(win, error)
  call MPI_Finalize(error)
end function
