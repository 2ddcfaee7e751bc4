#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Looks into reports and traces.

  report-check.py schema SCHEMA FILE...      each file is as the schema says
  report-check.py counts RANKS FOLDER        N.json are what `report_run messages` has done
  report-check.py peer RANKS FOLDER          N.json are of the same over NVLink
  report-check.py job RANKS FILE [details]   a summary adds up, and has the details or not
  report-check.py ended HOW SIGNAL FILE      how the rank ended, and that its messages are counted
  report-check.py trace RANKS FOLDER         N.json are traces of `report_run messages`
  report-check.py waits RANKS FOLDER         N.json are traces of `report_run waits`

The checker of schemas knows the words that doc/report.schema.json uses, and refuses others."""
import json
import os
import sys

MESSAGES, STEP, EXCHANGES, PAIR, OTHER_PAIR, CAST = 10, 1000, 3, 64, 32, 100
POSTED, LENGTH, LATE, TESTS, MOST_PARTS = 8, 600, 40, 20000, 25
WORDS = {"$schema", "$id", "$defs", "$ref", "title", "description", "type", "const", "enum", "minimum", "required",
         "properties", "additionalProperties", "items", "oneOf"}
TIMES = ("fabrail_ns", "copies_ns", "mpi_ns", "wait_ns")
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}


def is_type(value, name):
    if name == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, TYPES[name])


def violations(value, schema, root, where="$"):
    unknown = set(schema) - WORDS
    if unknown:
        raise ValueError(f"the checker does not know {sorted(unknown)}")
    if "$ref" in schema:
        yield from violations(value, root["$defs"][schema["$ref"].rsplit("/", 1)[1]], root, where)
    types = schema.get("type", [])
    if types and not any(is_type(value, name) for name in ([types] if isinstance(types, str) else types)):
        yield f"{where} is no {types}"
        return
    if "const" in schema and value != schema["const"] or "enum" in schema and value not in schema["enum"]:
        yield f"{where} is {value!r}"
    if "minimum" in schema and value < schema["minimum"]:
        yield f"{where} is {value}"
    if "oneOf" in schema:
        tried = [list(violations(value, one, root, where)) for one in schema["oneOf"]]
        if sum(not wrong for wrong in tried) != 1:
            yield from min(tried, key=len)[:10] or [f"{where} is as several say"]
    if isinstance(value, list):
        for i, item in enumerate(value):
            yield from violations(item, schema.get("items", {}), root, f"{where}[{i}]")
    if isinstance(value, dict):
        yield from (f"{where} lacks {name}" for name in schema.get("required", []) if name not in value)
        for name, member in value.items():
            rest = schema.get("additionalProperties", {})
            if name not in schema.get("properties", {}) and rest is False:
                yield f"{where} has {name}"
                continue
            one = schema.get("properties", {}).get(name, rest)
            yield from violations(member, one, root, f"{where}.{name}")


def load(name):
    with open(name, encoding="utf-8") as file:
        return json.load(file)


def check_schema(schema, *names):
    root = load(schema)
    assert list(violations({"format": "fabrail-report"}, root, root)), "the schema takes anything"
    return [f"{name}: {text}" for name in names for text in violations(load(name), root, root)]


def expect(wrong, what, got, wanted):
    if got != wanted:
        wrong.append(f"{what}: {got}, and not {wanted}")


def function(report, name):
    rows = [row for row in report["functions"] if row["name"] == name and row["buffers"]]
    return {"buffers": sum(row["buffers"] for row in rows), "bytes": sum(row["bytes"] for row in rows)}


def sent_to(rank, size):
    """Bytes that the rank sends to each, by what report_run does."""
    sent = [EXCHANGES * PAIR + OTHER_PAIR for _ in range(size)]
    sent[(rank + 1) % size] += MESSAGES * STEP * (rank + 1) + POSTED * LENGTH
    for other in range(size):
        sent[other] += CAST if rank == 1 else 0
        sent[size - 1 - other] += other if rank == 0 else 0
    return sent


def check_messages(report, rank, size, wrong):
    own, left = STEP * (rank + 1), STEP * ((rank + size - 1) % size + 1)
    expect(wrong, "Isend", function(report, "MPI_Isend"), {"buffers": MESSAGES, "bytes": MESSAGES * own})
    expect(wrong, "Recv", function(report, "MPI_Recv"), {"buffers": MESSAGES, "bytes": MESSAGES * left})
    calls = {row["name"]: row for row in report["functions"] if row["path"] == "host"}
    expect(wrong, "calls of Isend", calls["MPI_Isend"]["calls"], MESSAGES)
    expect(wrong, "calls of Recv", calls["MPI_Recv"]["calls"], MESSAGES)
    if not calls["MPI_Recv"]["copies_ns"] or not calls["MPI_Recv"]["mpi_ns"] or not calls["MPI_Isend"]["fabrail_ns"]:
        wrong.append(f"no time: {calls}")


def check_sums(report, wrong):
    for path, cell in report["paths"].items():
        for part in ("memory", "functions", "sizes"):
            for what in ("buffers", "bytes"):
                total = sum(row[what] for row in report[part] if row["path"] == path)
                expect(wrong, f"{part} of {path}", total, cell[what])
        expect(wrong, "totals", report["totals"]["paths"][path]["bytes"], cell["bytes"])
        expect(wrong, f"sites of {path}", sum(row["bytes"].get(path, 0) for row in report["sites"]), cell["bytes"])
    rows = [row for row in report["functions"] + report["calls"] if row["path"] != "none"]
    times = [sum(row[what] for row in table for what in TIMES) for table in (rows, report["sites"])]
    if abs(times[0] - times[1]) > len(rows) + len(report["sites"]): # each is rounded
        wrong.append(f"calls took {times[0]} ns by function, and {times[1]} by site")
    expect(wrong, "calls by site", sum(row["calls"] for row in report["sites"]), sum(row["calls"] for row in rows))
    for row in report["sizes"]:
        low = row["from_bytes"]
        if not low * row["buffers"] <= row["bytes"] < max(2 * low, 2) * row["buffers"]:
            wrong.append(f"size class {row}")


def check_all_sent(report, rank, size, wrong, over_nvlink=False):
    expect(wrong, "Irecv", function(report, "MPI_Irecv"), {"buffers": POSTED, "bytes": POSTED * LENGTH})
    sent = [sum(row["bytes"] for row in report["everyone"])] * size
    for row in report["peers"]:
        sent[row["rank"]] += row["bytes"]
    wanted = sent_to(rank, size)
    if over_nvlink:  # an exchange as messages has none to oneself
        sent[rank] = wanted[rank]
    expect(wrong, f"sent by {rank}", sent, wanted)


def check_sites(reports, wrong):
    """All ranks make the same calls at the same places, wherever their program is loaded. The last scatters nothing."""
    sites = [{(row["function"], row["object"], row["address"], row["name"], row["communicator"], row["ranks"])
              for row in report["sites"]} for report in reports]
    if any(one != {row for row in sites[0] if one is not sites[-1] or row[3] != "MPI_Scatterv"} for one in sites):
        wrong.append(f"call sites differ: {sites}")
    size = reports[0]["size"]
    named = {(row[0], row[3]) for row in sites[0] if row[4:] == ("reversed", size)}
    expect(wrong, "calls on the communicator with a name", named, {("exchange", "MPI_Alltoall"), ("exchange", "MPI_Scatterv")})
    expect(wrong, "communicators", {row[4] for row in sites[0]}, {"reversed", "MPI_COMM_WORLD"})


def load_ranks(size, folder):
    return [load(os.path.join(folder, f"{rank}.json")) for rank in range(size)]


def check_counts(ranks, folder):
    size, wrong = int(ranks), []
    for rank, report in enumerate(load_ranks(size, folder)):
        expect(wrong, "rank", (report["rank"], report["size"], report["ended"]), (rank, size, "finalize"))
        check_messages(report, rank, size, wrong)
        check_sums(report, wrong)
        both = 2 * size * (EXCHANGES * PAIR + OTHER_PAIR)
        expect(wrong, "Alltoall", function(report, "MPI_Alltoall"), {"buffers": 2 * EXCHANGES + 2, "bytes": both})
        check_all_sent(report, rank, size, wrong)
        for row in report["functions"]:
            expect(wrong, f"why {row['name']} was staged", row["reason"], "FABRAIL_PATHS excludes peer")
    check_sites(load_ranks(size, folder), wrong)
    return wrong


def by_path(reports, name):
    """What a function has moved by each path, on all ranks; messages that no RTS announced are one path."""
    moved = {}
    for row in (row for report in reports for row in report["functions"] if row["name"] == name):
        moved[row["path"]] = moved.get(row["path"], 0) + row["bytes"]
    return {path: count for path, count in moved.items() if count}


def check_peer(ranks, folder):
    size, wrong = int(ranks), []
    reports = load_ranks(size, folder)
    for rank, report in enumerate(reports):
        check_sums(report, wrong)
        check_all_sent(report, rank, size, wrong, over_nvlink=True)
        # It is true in all calls of this job alike, and so the reason of none.
        wrong += [f"{row['name']} by {row['path']}: {row['reason']}" for row in report["functions"]
                  if "GPU-aware" in row["reason"]]
        for path in ("host", "peer"):
            calls = sum(row["calls"] for part in ("functions", "calls") for row in report[part]
                        if row["name"] == "MPI_Irecv" and row["path"] == path)
            expect(wrong, f"calls of Irecv by {path}, before it is known by what", calls, 0)
    early = {row["reason"] for report in reports for row in report["functions"]
             if row["name"] == "MPI_Alltoall" and row["path"] == "host" and not row["scheme"]}
    if not early or not all(" yet to " in reason for reason in early):
        wrong.append(f"why the first exchanges were staged: {early}")
    expect(wrong, "posted receives", by_path(reports, "MPI_Irecv"), by_path(reports, "MPI_Issend"))
    if "peer" not in by_path(reports, "MPI_Issend") or "peer" not in by_path(reports, "MPI_Alltoall"):
        wrong.append("nothing went over NVLink")
    return wrong


def check_job(ranks, name, details=None):
    job, wrong = load(name), []
    expect(wrong, "ranks", [row["rank"] for row in job["ranks"]], list(range(int(ranks))))
    expect(wrong, "found", job["ranks_found"], int(ranks))
    expect(wrong, "details", len(job["details"]), int(ranks) if details else 0)
    for path, totals in job["paths"].items():
        for what, value in totals.items():
            expect(wrong, f"{path} {what}", sum(row["paths"][path][what] for row in job["ranks"]), value)
    if not job["paths"]["host"]["bytes"]:
        wrong.append("the summary has no bytes")
    return wrong


def check_ended(how, number, name):
    report, wrong = load(name), []
    expect(wrong, "ended", (report["ended"], report["signal"]), (how, int(number)))
    check_messages(report, report["rank"], report["size"], wrong)
    return wrong


def check_trace(ranks, folder):
    wrong = []
    for rank in range(int(ranks)):
        trace = load(os.path.join(folder, f"{rank}.json"))
        events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
        sends = [event for event in events if event["name"] == "MPI_Isend"]
        expect(wrong, "sends", [(e["pid"], e["args"]["peer"], e["args"]["bytes"], e["args"]["path"]) for e in sends],
               [(rank, (rank + 1) % int(ranks), STEP * (rank + 1), "host")] * MESSAGES)
        copies = [event for event in events if event["name"] == "copy"]
        receives = [event for event in events if event["name"] == "MPI_Recv"]
        inside = [copy for copy in copies for outer in receives if outer["tid"] == copy["tid"] and
                  outer["ts"] <= copy["ts"] and copy["ts"] + copy["dur"] <= outer["ts"] + outer["dur"] + 1]
        if len(receives) != MESSAGES or not inside:
            wrong.append(f"{len(receives)} receives, {len(inside)} copies in them")
        expect(wrong, "lost", trace["otherData"]["lost_events"], 0)
    return wrong


def check_waits(ranks, folder):
    wrong = []
    for rank, trace in enumerate(load_ranks(int(ranks), folder)):
        events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
        expect(wrong, f"exchanges of {rank}", sum(event["name"] == "MPI_Alltoall" for event in events), LATE)
        parts = sum(event["cat"] == "part" and event["name"] in ("copy", "MPI library") for event in events)
        if parts > MOST_PARTS * LATE:
            wrong.append(f"{parts} parts of operations of {rank}")
        expect(wrong, f"events that {rank} has lost", trace["otherData"]["lost_events"], 0)
        polls = [event for event in events if event["name"] in ("MPI_Test", "MPI_Iprobe", "polling")]
        calls = sum(event.get("args", {}).get("calls", 1) for event in polls)
        if rank == 0 and (calls < 2 * TESTS or len(polls) > TESTS / 2):
            wrong.append(f"{calls} calls that poll, in {len(polls)} events")
    return wrong


CHECKS = {"schema": check_schema, "counts": check_counts, "peer": check_peer, "job": check_job, "ended": check_ended,
          "trace": check_trace, "waits": check_waits}

if __name__ == "__main__":
    try:
        found = CHECKS[sys.argv[1]](*sys.argv[2:])
    except (OSError, ValueError, KeyError, TypeError) as error:
        found = [repr(error)]
    for line in found[:20]:
        print(line)
    sys.exit(1 if found else 0)
