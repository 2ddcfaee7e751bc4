#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Judges launches in which all plain device memory must reach MPI through fabric memory.

  check-fabric.py launch FLAVOUR RANKS FOLDER TABLE SEEN   one launch, and adds to the file SEEN
  check-fabric.py messages FLAVOUR RANKS FOLDER TABLE SEEN the same, where Fabrail may send each rank's share alone
  check-fabric.py coverage TABLE SEEN FLAVOUR...           all of them together

FOLDER holds the ranks' reports (*.json) and the simulated driver's counts of what MPI touched
(touch.*). TABLE is functions.def. A function that the MPI's manual lets take device memory must have
used path fabric, any other path host, and nothing but fabric memory may have been touched. Coverage:
each function of the table with a buffer must have been seen so. Exit status 1 when it was not."""
import glob
import json
import os
import re
import sys

FAMILIES = {"openmpi": "openmpi", "openmpi5": "openmpi", "mpich": "mpich", "mpich5": "mpich", "mpiabi": "other"}
POINT_TO_POINT = {"SEND", "RECV", "SENDRECV", "REPLACE"}
COLLECTIVES = {"BCAST", "GATHER", "SCATTER", "ALLGATHER", "ALLTOALL", "REDUCE", "ALLREDUCE", "EXSCAN",
               "REDUCE_SCATTER", "REDUCE_SCATTER_BLOCK"}
EXCHANGES = {"ALLTOALL", "NEIGHBOR_ALLTOALL"}
PUT_AND_GET = {"MPI_Put", "MPI_Put_c", "MPI_Get", "MPI_Get_c"}


def read_table(path):
    """Name: (class, signature, is it newer than MPI 3.1) of each function with a buffer."""
    rows = {}
    pattern = re.compile(r'^FR_(ROW|BOTH|LATER|LATER_BOTH)\((MPIX?_\w+), (\w+), "(\w*)", ')
    with open(path, encoding="utf-8") as file:
        for match in filter(None, map(pattern.match, file)):
            kind, name, group, signature = match.groups()
            if not re.search("[srb]", signature) or group == "BUFFER_ATTACH":  # memory for MPI itself
                continue
            rows[name] = (group, signature, kind.startswith("LATER"))
            if kind.endswith("BOTH"):
                rows[name + "_c"] = (group, signature, True)
    return rows


def expected_path(family, name, row):
    """By the manuals: Open MPI lists what it takes, MPICH takes all but in files."""
    group, signature, _ = row
    if group.startswith("FILE_"):
        return "host"
    if family == "mpich":
        return "fabric"
    listed = group in POINT_TO_POINT or name in PUT_AND_GET or (group in COLLECTIVES and "q" not in signature)
    return "fabric" if listed else "host"


def check_touches(ranks, folder):
    """Kinds of memory that MPI touched must be vmm-fabric alone."""
    names = glob.glob(os.path.join(folder, "touch.*"))
    if len(names) < ranks:
        yield f"{len(names)} counts of touched memory, of {ranks} ranks"
    for name in names:
        with open(name, encoding="utf-8") as file:
            for kind, count in (line.split() for line in file):
                if kind != "vmm-fabric" and int(count):
                    yield f"MPI was given {count} times memory of kind {kind}"


def check_launch(flavour, ranks, folder, table, seen_path, messages):
    rows, used = read_table(table), set()
    names = glob.glob(os.path.join(folder, "[0-9]*.json"))
    wrong = list(check_touches(ranks, folder))
    if len(names) != ranks:
        wrong.append(f"{len(names)} reports of {ranks} ranks")
    for name in names:
        with open(name, encoding="utf-8") as file:
            used |= {(row["name"], row["path"]) for row in json.load(file)["functions"] if row["bytes"]}
    if not used:
        wrong.append("no function had a device buffer")
    for name, path in sorted(used):
        expected = expected_path(FAMILIES[flavour], name, rows[name])
        allowed = {expected, "peer"} # what Fabrail moves itself, MPI is not given
        if messages and rows[name][0] in EXCHANGES: # out of the workspace as it is
            allowed |= {"fabric", "pass"}
        if path not in allowed:
            wrong.append(f"{name} used path {path}, not {expected}")
    with open(seen_path, "a", encoding="utf-8") as file:
        file.writelines(f"{name} {path}\n" for name, path in used)
    return wrong


def check_coverage(table, seen_path, flavours):
    with open(seen_path, encoding="utf-8") as file:
        seen = {tuple(line.split()) for line in file}
    families = {FAMILIES[flavour] for flavour in flavours}
    newest = bool({"openmpi5", "mpich5"} & set(flavours))
    wrong = []
    for name, row in read_table(table).items():
        # Memory that MPI keeps cannot be replaced; the end of a split file operation has the buffer of
        # its beginning. The MPIX names are Open MPI 4's, which excludes what others call MPI_.
        if row[0] in ("REFUSE", "WIN_MAKE", "WIN_ATTACH", "FILE_END") or name.startswith("MPIX_") or (row[2] and not newest):
            continue
        paths = {expected_path(family, name, row) for family in families}
        best = "fabric" if "fabric" in paths else "host"
        if (name, best) not in seen:
            wrong.append(f"no program had {name} use path {best}")
    return wrong


def main():
    if sys.argv[1] in ("launch", "messages"):
        flavour, ranks, folder, table, seen = sys.argv[2:]
        wrong = check_launch(flavour, int(ranks), folder, table, seen, sys.argv[1] == "messages")
    else:
        wrong = check_coverage(sys.argv[2], sys.argv[3], sys.argv[4:])
    for text in wrong:
        print(text)
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OSError, ValueError, KeyError) as error:
        print(f"no usable report: {error!r}")
        sys.exit(1)
