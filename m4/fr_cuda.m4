# SPDX-License-Identifier: BSD-3-Clause
# The headers of the CUDA driver (cuda.h) and of NVML (nvml.h). Nothing of CUDA is linked: the
# library finds the driver at run time, in the process that it is preloaded into.

# FR_CUDA: substitutes CUDA_CPPFLAGS and CUDA_DIR, and defines HAVE_NVML_H.
AC_DEFUN([FR_CUDA], [
  AC_ARG_WITH([cuda],
    [AS_HELP_STRING([--with-cuda=DIR],
      [CUDA toolkit, or a folder with its headers @<:@CUDA_HOME, then the usual places@:>@])],
    [], [with_cuda=])
  AS_CASE([$with_cuda],
    [yes|''], [fr_cuda_dirs="$CUDA_HOME $CUDA_PATH /usr/local/cuda /opt/cuda /usr/lib/cuda /usr"],
    [no], [AC_MSG_ERROR([the headers of the CUDA driver are needed: --without-cuda is no choice])],
    [fr_cuda_dirs=$with_cuda])

  AC_MSG_CHECKING([for cuda.h])
  CUDA_DIR=
  fr_cuda_include=
  fr_nvml_include=
  for fr_dir in $fr_cuda_dirs; do
    for fr_sub in include . targets/x86_64-linux/include targets/sbsa-linux/include; do
      AS_IF([test -z "$fr_cuda_include" && test -r "$fr_dir/$fr_sub/cuda.h"],
        [fr_cuda_include=$fr_dir/$fr_sub; CUDA_DIR=$fr_dir])
      AS_IF([test -z "$fr_nvml_include" && test -r "$fr_dir/$fr_sub/nvml.h"],
        [fr_nvml_include=$fr_dir/$fr_sub])
    done
  done
  AS_IF([test -z "$fr_cuda_include"], [
    AC_MSG_RESULT([no])
    AC_MSG_ERROR([cuda.h was not found in: $fr_cuda_dirs
  Name a CUDA toolkit with --with-cuda=DIR or CUDA_HOME, or get NVIDIA's packages of headers with
      $srcdir/contrib/cuda-headers DIR
  and configure --with-cuda=DIR.])])
  AC_MSG_RESULT([$fr_cuda_include])
  AC_MSG_CHECKING([for nvml.h])
  AC_MSG_RESULT([${fr_nvml_include:-no}])

  CUDA_CPPFLAGS=
  for fr_dir in "$fr_cuda_include" "$fr_nvml_include"; do
    AS_CASE(["$fr_dir:$CUDA_CPPFLAGS"],
      [:*|/usr/include:*|*:*"-isystem $fr_dir"], [],
      [CUDA_CPPFLAGS="$CUDA_CPPFLAGS -isystem $fr_dir"])
  done

  fr_cppflags_before=$CPPFLAGS
  CPPFLAGS="$CPPFLAGS $CUDA_CPPFLAGS"
  AC_MSG_CHECKING([whether cuda.h is of CUDA 12.4 or newer])
  AC_PREPROC_IFELSE([AC_LANG_SOURCE([[
#include <cuda.h>
#if CUDA_VERSION < 12040
#error too old
#endif
]])], [AC_MSG_RESULT([yes])],
    [AC_MSG_RESULT([no])
     AC_MSG_ERROR([$fr_cuda_include/cuda.h is too old: fabric handles came with CUDA 12.4.
  $srcdir/contrib/cuda-headers DIR gets newer headers. The driver at run time may be older.])])
  CPPFLAGS=$fr_cppflags_before

  AS_IF([test -n "$fr_nvml_include"],
    [AC_DEFINE([HAVE_NVML_H], [1], [Define to 1 if nvml.h was found.])])
  AM_CONDITIONAL([HAVE_NVML_H], [test -n "$fr_nvml_include"])
  AC_SUBST([CUDA_DIR])
  AC_SUBST([CUDA_CPPFLAGS])
])
