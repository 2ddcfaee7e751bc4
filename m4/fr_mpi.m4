# SPDX-License-Identifier: BSD-3-Clause
# The MPI libraries of this machine. The library needs none of them; the tests run with every one, and
# the tables of src/abi are compared with its mpi.h.

# Shell functions. A compiler wrapper is asked, nothing is guessed from names.
AC_DEFUN([FR_MPI_PREPARE], [
# The family whose mpi.h the wrapper $[]1 compiles against: openmpi, mpich, mpiabi, or nothing.
fr_mpi_family ()
{
  cat >conftest.c <<_FREOF
#include <mpi.h>
#if defined MPI_H_ABI || (defined MPI_ABI_VERSION && MPI_ABI_VERSION > 0)
fr_family=mpiabi;
#elif defined OPEN_MPI
fr_family=openmpi;
#elif defined MPICH_VERSION || defined MPICH || defined MPICH_NAME
fr_family=mpich;
#endif
_FREOF
  "$[]1" -E conftest.c 2>&AS_MESSAGE_LOG_FD | sed -n 's/^fr_family=\(.*\);$/\1/p'
  rm -f conftest.c
}

# The flags of the wrapper $[]1 that say where its mpi.h is.
fr_mpi_cppflags ()
{
  fr_flags=
  for fr_word in `"$[]1" -show 2>&AS_MESSAGE_LOG_FD`; do
    case $fr_word in
      -I/usr/include) ;;
      -I*) fr_flags="$fr_flags -isystem ${fr_word#-I}" ;;
      -D*) fr_flags="$fr_flags $fr_word" ;;
    esac
  done
  echo "$fr_flags"
}

# The first of the programs $[]2... that stands beside the wrapper $[]1.
fr_mpi_beside ()
{
  fr_where=`dirname "$[]1"`
  shift
  for fr_name in "$[]@"; do
    if test -x "$fr_where/$fr_name"; then
      echo "$fr_where/$fr_name"
      return
    fi
  done
}

# The Fortran wrapper beside $[]1, if it compiles a program that uses the three interfaces.
fr_mpi_fortran ()
{
  fr_suffix=`basename "$[]1" | sed 's/^mpicc//'`
  fr_fc=`fr_mpi_beside "$[]1" "mpifort$fr_suffix" "mpif90$fr_suffix"`
  test -n "$fr_fc" || return 0
  mkdir -p conftest.dir
  cat >conftest.dir/a.f90 <<_FREOF
subroutine a
  use mpi
  print *, MPI_VERSION
end subroutine
subroutine b
  include 'mpif.h'
  print *, MPI_VERSION
end subroutine
program c
  use mpi_f08
  print *, MPI_VERSION
end program
_FREOF
  if (cd conftest.dir && "$fr_fc" -o a a.f90) >&AS_MESSAGE_LOG_FD 2>&1; then
    echo "$fr_fc"
  fi
  rm -rf conftest.dir
}

# The Python beside the wrapper $[]1 (a virtual environment's, or the distribution's), if it has
# numpy and an mpi4py that runs on an MPI whose version text contains $[]2; none if that is empty.
fr_mpi_python ()
{
  fr_python=`fr_mpi_beside "$[]1" python3`
  test -n "$fr_python" && test -n "$[]2" || return 0
  if "$fr_python" -c '
import sys, numpy, mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
sys.exit(sys.argv@<:@1@:>@ not in MPI.Get_library_version())' "$[]2" >&AS_MESSAGE_LOG_FD 2>&1; then
    echo "$fr_python"
  fi
}
])

# FR_MPI(FLAVOUR, FAMILY, TITLE, VERSION-TEXT, WRAPPERS): looks for an MPI of FAMILY, first among
# the wrappers, in order. Substitutes, with the flavour in capitals for X: X_MPICC, X_MPIFC,
# X_MPIRUN, X_PYTHON, X_CPPFLAGS, each empty when there is none; conditionals HAVE_X and
# HAVE_X_FORTRAN; a line for the summary in fr_mpi_summary, the flavour in MPI_FLAVOURS.
AC_DEFUN([FR_MPI], [
  AC_REQUIRE([FR_MPI_PREPARE])
  m4_pushdef([FR_X], m4_toupper([$1]))
  AC_ARG_WITH([$1],
    [AS_HELP_STRING([--with-$1=MPICC], [compiler wrapper of $3 @<:@]m4_if([$5], [], [none], [found])[@:>@])],
    [], [with_$1=])
  fr_wrappers="$5"
  AS_CASE([$with_$1], [yes|''], [], [no], [fr_wrappers=], [fr_wrappers=$with_$1])
  AC_MSG_CHECKING([for $3])
  FR_X[]_MPICC= FR_X[]_MPIFC= FR_X[]_MPIRUN= FR_X[]_PYTHON= FR_X[]_CPPFLAGS=
  for fr_wrapper in $fr_wrappers; do
    fr_path=`command -v "$fr_wrapper"`
    test -n "$fr_path" && test "`fr_mpi_family "$fr_path"`" = $2 || continue
    FR_X[]_MPICC=$fr_path
    break
  done
  AS_IF([test -n "$FR_X[]_MPICC"], [
    fr_suffix=`basename "$FR_X[]_MPICC" | sed 's/^mpicc//; s/^_abi$//'`
    FR_X[]_CPPFLAGS=`fr_mpi_cppflags "$FR_X[]_MPICC"`
    FR_X[]_MPIRUN=`fr_mpi_beside "$FR_X[]_MPICC" m4_if([$2], [openmpi], [], [mpiexec.hydra]) \
      "mpirun$fr_suffix" "mpiexec$fr_suffix"`
    FR_X[]_MPIFC=`fr_mpi_fortran "$FR_X[]_MPICC"`
    FR_X[]_PYTHON=`fr_mpi_python "$FR_X[]_MPICC" "$4"`
    MPI_FLAVOURS="$MPI_FLAVOURS $1"
    AS_VAR_APPEND([fr_mpi_summary], ["
  $3: $FR_X[]_MPICC, launcher ${FR_X[]_MPIRUN:-none}, Fortran ${FR_X[]_MPIFC:-none}, mpi4py ${FR_X[]_PYTHON:-none}"])
  ], [
    AS_CASE([$with_$1], [yes|no|''], [], [
      AC_MSG_RESULT([no])
      AC_MSG_ERROR([$with_$1 is no compiler wrapper of $3])])])
  AC_MSG_RESULT([${FR_X[]_MPICC:-no}])
  AM_CONDITIONAL([HAVE_]FR_X, [test -n "$FR_X[]_MPICC"])
  AM_CONDITIONAL([HAVE_]FR_X[_FORTRAN], [test -n "$FR_X[]_MPIFC"])
  AC_SUBST(FR_X[_MPICC])
  AC_SUBST(FR_X[_MPIFC])
  AC_SUBST(FR_X[_MPIRUN])
  AC_SUBST(FR_X[_PYTHON])
  AC_SUBST(FR_X[_CPPFLAGS])
  AC_SUBST([MPI_FLAVOURS])
  m4_popdef([FR_X])
])
