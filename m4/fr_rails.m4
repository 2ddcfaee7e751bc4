# SPDX-License-Identifier: BSD-3-Clause
# The headers of libfabric and hwloc. Neither is linked: both libraries are found at run time, when a
# job first uses rails.

# FR_RAILS: defines FR_HAVE_RAILS and substitutes RAILS_CPPFLAGS; conditional HAVE_RAILS. FR_HAVE_RAILS is
# undefined where a header is missing, and the room then says at run time that it was built without.
AC_DEFUN([FR_RAILS], [
  AC_ARG_WITH([libfabric],
    [AS_HELP_STRING([--with-libfabric=DIR],
      [prefix of libfabric, whose headers rails over NICs need; no for none @<:@found@:>@])],
    [], [with_libfabric=])
  AC_ARG_WITH([hwloc],
    [AS_HELP_STRING([--with-hwloc=DIR],
      [prefix of hwloc 2, whose headers rails over NICs need; no for none @<:@found@:>@])],
    [], [with_hwloc=])
  RAILS_CPPFLAGS=
  for fr_dir in "$with_libfabric" "$with_hwloc"; do
    AS_CASE([$fr_dir], [no|yes|''], [], [RAILS_CPPFLAGS="$RAILS_CPPFLAGS -isystem $fr_dir/include"])
  done

  fr_cppflags_before=$CPPFLAGS
  CPPFLAGS="$CPPFLAGS $RAILS_CPPFLAGS"
  fr_rails_missing=
  AC_MSG_CHECKING([for the headers of libfabric 1.17 or newer])
  AS_IF([test "$with_libfabric" = no], [fr_known=no],
    [AC_PREPROC_IFELSE([AC_LANG_SOURCE([[
#include <rdma/fabric.h>
#if FI_MAJOR_VERSION < 1 || (FI_MAJOR_VERSION == 1 && FI_MINOR_VERSION < 17)
#error too old
#endif
]])], [fr_known=yes], [fr_known=no])])
  AC_MSG_RESULT([$fr_known])
  AS_IF([test $fr_known = no], [fr_rails_missing="libfabric 1.17"])
  AC_MSG_CHECKING([for the headers of hwloc 2])
  AS_IF([test "$with_hwloc" = no], [fr_known=no],
    [AC_PREPROC_IFELSE([AC_LANG_SOURCE([[
#include <hwloc.h>
#if HWLOC_API_VERSION < 0x20000 || HWLOC_API_VERSION >= 0x30000
#error another major version
#endif
]])], [fr_known=yes], [fr_known=no])])
  AC_MSG_RESULT([$fr_known])
  AS_IF([test $fr_known = no],
    [fr_rails_missing="${fr_rails_missing:+$fr_rails_missing and }hwloc 2"])
  CPPFLAGS=$fr_cppflags_before

  AS_IF([test -n "$fr_rails_missing"], [
    AS_CASE([" $with_libfabric $with_hwloc "],
      [*/*], [AC_MSG_ERROR([the headers of $fr_rails_missing were not found in: $with_libfabric $with_hwloc])])
    fr_rails_summary="none (no headers of $fr_rails_missing: libfabric-dev, libhwloc-dev)"], [
    fr_rails_summary="libfabric and hwloc, found at run time"
    AC_DEFINE([FR_HAVE_RAILS], [1], [Define to 1 to build rails over NICs.])])
  AM_CONDITIONAL([HAVE_RAILS], [test -z "$fr_rails_missing"])
  AC_SUBST([RAILS_CPPFLAGS])
])
