#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Reads the reports that the ranks of a launch wrote, one JSON file each.

  check-report.py nothing-staged RANKS FOLDER   the ranks used host memory alone: path host carried nothing
  check-report.py staged RANKS FOLDER           path host carried bytes, on at least one rank
  check-report.py staged+FUNCTION... RANKS FOLDER   path peer carried bytes of each of these functions, and
                                                path host may have carried others
  check-report.py paths RANKS FOLDER            prints the paths that carried bytes of device buffers

A report has, under "paths", an object for each path with "buffers" and "bytes": how many device
buffers took it, and how many bytes of theirs. Exit status 1 when the expectation is not met."""
import glob
import json
import os
import sys


def read(ranks, folder):
    names = sorted(glob.glob(os.path.join(folder, "[0-9]*.json")))
    if len(names) != ranks:
        raise ValueError(f"{len(names)} reports of {ranks} ranks")
    for name in names:
        with open(name, encoding="utf-8") as file:
            yield json.load(file)


def main():
    (expectation, *functions), ranks, folder = sys.argv[1].split("+"), int(sys.argv[2]), sys.argv[3]
    totals, over_nvlink = {}, set()
    for report in read(ranks, folder):
        over_nvlink |= {row["name"] for row in report["functions"] if row["path"] == "peer" and row["bytes"]}
        for path, counts in report["paths"].items():
            totals[path] = totals.get(path, 0) + counts["bytes"]
    if expectation == "paths":
        print(",".join(sorted(path for path, count in totals.items() if count)) or "none")
        return 0
    if expectation not in ("nothing-staged", "staged"):
        raise ValueError(f"unknown expectation {expectation}")
    staged = totals.get("host", 0)
    print("bytes of device buffers by path:", totals)
    missing = [name for name in functions if name not in over_nvlink]
    if missing:
        print("path peer carried nothing of", ", ".join(missing))
    if expectation == "nothing-staged":
        return 1 if staged else 0
    return 1 if missing or not (staged or functions) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OSError, ValueError, KeyError, AttributeError) as error:
        print(f"no usable report: {error!r}")
        sys.exit(1)
