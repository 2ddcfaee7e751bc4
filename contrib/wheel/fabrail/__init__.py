# SPDX-License-Identifier: BSD-3-Clause
"""Where the files of Fabrail are, which lets MPI programs pass GPU pointers to any MPI."""

import os

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "root")


def library():
    """Returns the path of the library to preload, for LD_PRELOAD."""
    return os.path.join(ROOT, "lib", "libfabrail.so")


def command():
    """Returns the path of the command fabrail."""
    return os.path.join(ROOT, "bin", "fabrail")
