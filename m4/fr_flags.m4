# SPDX-License-Identifier: BSD-3-Clause
# Compiler flags that are used only when the compiler knows them.

# FR_CFLAG(VARIABLE, FLAG...): appends each flag that compiles without a complaint.
AC_DEFUN([FR_CFLAG], [
  AC_LANG_PUSH([C])
  for fr_flag in $2; do
    fr_cflags_before=$CFLAGS
    CFLAGS="$CFLAGS -Werror $fr_flag"
    AS_VAR_PUSHDEF([fr_known], [fr_cv_cflag_$fr_flag])
    AC_CACHE_CHECK([whether $CC knows $fr_flag], [fr_known],
      [AC_COMPILE_IFELSE([AC_LANG_PROGRAM()],
        [AS_VAR_SET([fr_known], [yes])], [AS_VAR_SET([fr_known], [no])])])
    AS_VAR_IF([fr_known], [yes], [AS_VAR_APPEND([$1], [" $fr_flag"])])
    AS_VAR_POPDEF([fr_known])
    CFLAGS=$fr_cflags_before
  done
  AC_LANG_POP([C])
])
