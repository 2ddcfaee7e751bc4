# SPDX-License-Identifier: BSD-3-Clause
"""The command, as fabrail and as python -m fabrail: this process becomes it."""

import os
import sys

from fabrail import command


def main():
    os.execv(command(), ["fabrail"] + sys.argv[1:])


if __name__ == "__main__":
    main()
