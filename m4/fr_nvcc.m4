# SPDX-License-Identifier: BSD-3-Clause
# The compiler of the kernels. What it makes is the same for every host, so a cross build takes the
# nvcc of the machine that builds.

# FR_NVCC: substitutes NVCC, empty without one, and NVCC_CODE, the architectures; defines
# FR_HAVE_NVCC; conditional HAVE_NVCC.
AC_DEFUN([FR_NVCC], [
  AC_REQUIRE([FR_CUDA])
  AC_ARG_WITH([nvcc],
    [AS_HELP_STRING([--with-nvcc=NVCC],
      [compiler of the GPU kernels; without one copy engines move all sizes between GPUs @<:@found@:>@])],
    [], [with_nvcc=])
  AC_ARG_VAR([NVCCFLAGS], [flags for nvcc])
  NVCC=
  AS_CASE([$with_nvcc],
    [no], [],
    [yes|''], [AC_PATH_PROGS([NVCC], [nvcc], [],
      [$CUDA_DIR/bin$PATH_SEPARATOR$CUDA_HOME/bin$PATH_SEPARATOR$PATH$PATH_SEPARATOR/usr/local/cuda/bin])],
    [NVCC=`command -v "$with_nvcc"`
     AS_IF([test -z "$NVCC"], [AC_MSG_ERROR([$with_nvcc was not found])])])

  # Machine code for what has NVLink or much use, and the oldest PTX, from which the driver makes
  # code for all others, later ones included.
  NVCC_CODE=
  fr_nvcc_known=
  fr_nvcc_ptx=
  AS_IF([test -n "$NVCC"], [
    AC_MSG_CHECKING([which architectures $NVCC knows])
    fr_nvcc_list=`"$NVCC" --list-gpu-code 2>&AS_MESSAGE_LOG_FD`
    for fr_arch in 70 75 80 90 100 120; do
      AS_CASE([" "`echo $fr_nvcc_list`" "], [*" sm_$fr_arch "*], [], [continue])
      test -n "$fr_nvcc_ptx" || fr_nvcc_ptx=$fr_arch
      test "$fr_arch" != 75 || continue
      NVCC_CODE="$NVCC_CODE -gencode arch=compute_$fr_arch,code=sm_$fr_arch"
      fr_nvcc_known="$fr_nvcc_known sm_$fr_arch"
    done
    NVCC_CODE="$NVCC_CODE -gencode arch=compute_$fr_nvcc_ptx,code=compute_$fr_nvcc_ptx"
    AC_MSG_RESULT([${fr_nvcc_known:-none}])
    AC_MSG_CHECKING([whether $NVCC works])
    cat >conftest.cu <<_FREOF
#include <stdint.h>
struct params { uint64_t to; };
extern "C" __global__ void kernel(const __grid_constant__ struct params params)
{
    *(uint64_t *)params.to = 1;
}
_FREOF
    AS_IF([test -n "$fr_nvcc_ptx" &&
           "$NVCC" $NVCCFLAGS -fatbin $NVCC_CODE -o conftest.fatbin conftest.cu >&AS_MESSAGE_LOG_FD 2>&1 &&
           test -s conftest.fatbin],
      [AC_MSG_RESULT([yes])],
      [AC_MSG_RESULT([no])
       AS_CASE([$with_nvcc], [yes|''], [],
         [AC_MSG_ERROR([$with_nvcc does not compile a kernel; config.log says why])])
       NVCC=])
    rm -f conftest.cu conftest.fatbin
  ])
  AS_IF([test -n "$NVCC"],
    [AC_DEFINE([FR_HAVE_NVCC], [1], [Define to 1 if the kernels are built and embedded.])
     fr_nvcc_summary="$NVCC for$fr_nvcc_known, PTX compute_$fr_nvcc_ptx"],
    [fr_nvcc_summary="none: copy engines move all sizes between GPUs (contrib/cuda-headers --nvcc DIR gets nvcc)"])
  AM_CONDITIONAL([HAVE_NVCC], [test -n "$NVCC"])
  AC_SUBST([NVCC])
  AC_SUBST([NVCC_CODE])
])
