#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Makes the reports of a job of many ranks out of those of a smaller real one.

  many-ranks.py RANKS FROM TO   FROM and TO are folders with N.json

Rank r takes the counts of rank r modulo the smaller job's, times a factor of its own, so that ranks
differ; whom it talks to becomes its neighbours in a grid of 8 and the other ranks of its host of 8, so
that the map has structure. All sums stay right: it is the same files, of another job."""
import json
import os
import sys

SCALED = {"buffers", "bytes", "calls", "timed_calls", "fabrail_ns", "copies_ns", "mpi_ns", "wait_ns", "ns", "wall_ns"}


def scale(value, factor):
    if isinstance(value, dict):
        return {key: member * factor if key in SCALED and isinstance(member, int) else scale(member, factor)
                for key, member in value.items()}
    return [scale(member, factor) for member in value] if isinstance(value, list) else value


def neighbours(rank, size):
    for step in (1, 8):
        yield (rank + step) % size
        yield (rank - step) % size


def peers(report, rank, size):
    """The bytes of the report, shared out with nothing lost."""
    total = {}
    for row in report["peers"] + [dict(row, messages=row["messages"] * report["size"], bytes=row["bytes"] * report["size"])
                                  for row in report["everyone"]]:
        cell = total.setdefault(row["path"], [0, 0])
        cell[0] += row["messages"]
        cell[1] += row["bytes"]
    host, rows = range(rank - rank % 8, min(size, rank - rank % 8 + 8)), []
    for path, (messages, count) in sorted(total.items()):
        places = list(host) if path == "peer" else list(neighbours(rank, size)) * 2 + list(host)
        for i, place in enumerate(places):
            part = [whole // len(places) + (i < whole % len(places)) for whole in (messages, count)]
            rows.append({"rank": place, "path": path, "messages": part[0], "bytes": part[1]})
    return rows


def main():
    size, source, target = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    names = sorted(name for name in os.listdir(source) if name.split(".")[0].isdigit())
    for rank in range(size):
        with open(os.path.join(source, names[rank % len(names)]), encoding="utf-8") as file:
            report = json.load(file)
        factor = 1 + rank * 7 % 5
        report["peers"] = peers(report, rank, size)
        report["everyone"] = []
        report = scale(report, factor)
        for row in report["peers"]:
            row["messages"] *= factor
        host = f"node{rank // 8:02d}"
        report.update(rank=rank, size=size, host=host, hosts=(size + 7) // 8)
        report["totals"].update(rank=rank, host=host)
        with open(os.path.join(target, f"{rank}.json"), "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)


if __name__ == "__main__":
    main()
