#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Looks into merged traces, and makes traces of hosts whose clocks differ.

  timeline.py arrows FILE RANK   arrows lie in calls that send and receive, and others waited for the late RANK
  timeline.py make FOLDER [ring] writes host-N.json of four ranks on three hosts, with messages both ways or around
  timeline.py clocks FILE        FILE is these, with the clocks put right
  timeline.py last FILE COUNT    FILE has the last COUNT events of each of these"""
import json
import os
import sys

AHEAD = {"a": 0, "b": 5000, "c": -70000}  # microseconds
HOSTS = ("a", "a", "b", "c")
STEPS, LATENCY = 50, 12


def load(name):
    with open(name, encoding="utf-8") as file:
        return json.load(file)


def arrows_of(trace):
    ends = {phase: {event["id"]: event for event in trace["traceEvents"] if event["ph"] == phase} for phase in "sf"}
    assert ends["s"] and set(ends["s"]) == set(ends["f"]), (len(ends["s"]), len(ends["f"]))
    return [(ends["s"][key], ends["f"][key]) for key in ends["s"]]


def check_arrows(name, late):
    trace = load(name)
    slices = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    calls = [event for event in slices if event["cat"] != "part"]

    def inside(end):
        return [call["name"] for call in calls if (call["pid"], call["tid"]) == (end["pid"], end["tid"]) and
                call["ts"] <= end["ts"] <= call["ts"] + call["dur"]]

    size = trace["otherData"]["ranks"]
    for begin, end in arrows_of(trace):
        assert inside(begin) == ["MPI_Isend"] and inside(end) == ["MPI_Recv"], (begin, end, inside(begin), inside(end))
        assert end["pid"] == (begin["pid"] + 1) % size and begin["ts"] <= end["ts"], (begin, end)
    waits = [event for event in slices if event["name"] == "waiting"]
    by_waiter = dict.fromkeys(range(size), 0)
    for event in waits:
        by_waiter[event["pid"]] += event["dur"]
    assert min(by_waiter, key=by_waiter.get) == int(late), ("the late rank waits", by_waiter)
    by_rank = {}
    for event in waits:
        rank = event.get("args", {}).get("rank")
        by_rank[rank] = by_rank.get(rank, 0) + event["dur"]
    assert max((rank for rank in by_rank if rank is not None), key=by_rank.get) == int(late), by_rank
    assert None in by_rank, "nobody waited in a collective"


def make(folder, ring=""):
    """Rank r sends to r + 1 and, but in a ring, r - 1 in turn, and each message takes as long."""
    events = [[] for _ in HOSTS]
    for step in range(STEPS):
        for rank in range(len(HOSTS)):
            to = (rank + (1 if ring or step % 2 else len(HOSTS) - 1)) % len(HOSTS)
            for place, phase, at in ((rank, "s", 0), (to, "f", LATENCY)):
                events[place].append({"ph": phase, "name": "message", "cat": "message", "id": (rank << 36) + 32 * step,
                                      "pid": place, "tid": 1, "ts": 100 * step + 3 * rank + at})
    for rank, host in enumerate(HOSTS):
        about = {"format": "fabrail-trace", "version": 1, "fabrail": "0", "job": "1", "rank": rank, "size": len(HOSTS),
                 "host": host, "started_unix_ns": 10**18 + 1000 * AHEAD[host], "lost_events": 0}
        with open(os.path.join(folder, f"host-{rank}.json"), "w", encoding="utf-8") as file:
            json.dump({"traceEvents": events[rank], "otherData": about}, file)


def check_clocks(name):
    trace = load(name)
    found = {row["host"]: row["ahead_us"] for row in trace["otherData"]["hosts"]}
    assert {host: round(us) for host, us in found.items()} == AHEAD, found
    took = {round(end["ts"] - begin["ts"], 1) for begin, end in arrows_of(trace)}
    assert took == {LATENCY}, took
    assert min(event["ts"] for event in trace["traceEvents"]) >= 0


def check_last(name, count):
    trace = load(name)
    events = [event for event in trace["traceEvents"] if "ts" in event]
    for rank in range(len(HOSTS)):
        own = [event for event in events if event["pid"] == rank]
        assert len(own) == int(count), (rank, len(own))
        assert any(event["id"] % 2**36 == 32 * (STEPS - 1) for event in own), "the last message is gone"
    assert trace["otherData"]["lost_events"] == 2 * STEPS * len(HOSTS) - len(events), trace["otherData"]


if __name__ == "__main__":
    {"arrows": check_arrows, "make": make, "clocks": check_clocks, "last": check_last}[sys.argv[1]](*sys.argv[2:])
