#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Reads what sanitizers wrote about the ranks of a launch (check-sanitizer.py FILE...) and shows what
concerns Fabrail. MPI libraries leak at exit and synchronise in ways that sanitizers do not see; a
report about their own doing is left out. Exit status 1 when anything is left."""
import os
import re
import sys

# A report's frames are "#N 0xADDRESS in FUNCTION FILE" or "#N FUNCTION FILE".
FRAME = re.compile(r"^\s+#(\d+) (.*)$")
MODULES = "|".join(entry.name for entry in os.scandir(os.path.join(os.path.dirname(__file__), "../../src")) if entry.is_dir())
OURS = re.compile(rf"libfabrail\.so|/src/(?:{MODULES})/(?:cuda/)?[\w.]+:\d+|/include/fabrail/|/tests/sim/")
# Code of a library that has been unloaded, which goes by the name of the one that lay before it.
NAMELESS = re.compile(r"0x[0-9a-f]+\s+\(")
RUNTIME = re.compile(r"sanitizer|interceptor|asan|tsan|__libc_start")


def stacks(block):
    """The stacks of a report, innermost frame first, without the sanitizer's own frames."""
    stack = []
    for line in block.splitlines() + [""]:
        frame = FRAME.match(line)
        if frame and not (frame.group(1) == "0" and stack):
            if not RUNTIME.search(frame.group(2)):
                stack.append(frame.group(2))
        elif stack:
            yield stack
            stack = [frame.group(2)] if frame and not RUNTIME.search(frame.group(2)) else []


def reports(text):
    """Splits a log into reports. Leaks are one report each, whatever heading they share."""
    starts = re.compile(r"^(?:=+\d+=+ ?ERROR: AddressSanitizer|WARNING: ThreadSanitizer|FATAL: |"
                        r"(?:Direct|Indirect) leak of|\S+:\d+:\d+: runtime error)", re.M)
    places = [match.start() for match in starts.finditer(text)] + [len(text)]
    for begin, end in zip(places, places[1:]):
        yield text[begin:end].strip()


def is_ours(frame):
    return OURS.search(frame) and not NAMELESS.match(frame)


def concerns_us(report):
    if report.startswith(("Direct leak", "Indirect leak")):
        # Whoever called malloc: the first frame, or the second behind a helper of the C library.
        return any(is_ours(frame) for stack in stacks(report) for frame in stack[:2])
    if report.startswith("WARNING: ThreadSanitizer"):
        return any(is_ours(frame) for stack in stacks(report) for frame in stack[:4])
    return True


def main():
    bad = []
    for name in sys.argv[1:]:
        with open(name, encoding="utf-8", errors="replace") as file:
            bad += [report for report in reports(file.read()) if concerns_us(report)]
    for report in bad[:5]:
        print(report[:4000])
        print()
    if bad:
        print(f"{len(bad)} sanitizer reports")
    return 1 if bad else 0


sys.exit(main())
