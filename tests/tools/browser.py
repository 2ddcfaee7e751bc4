#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Opens a page of fabrail report in a real browser, which it speaks to through a pipe, and judges it.

  browser.py [--first] [--screenshot=PREFIX] PAGE REPORT...   with --first the first complaint ends it

At 1280 and 390 pixels, light and dark: the page says nothing on the console and fetches nothing, it does
not scroll sideways, what can be reached by keyboard is, and the map answers it. Its numbers equal those of
the reports, and its first sentence is that of the job's file, if one is given. Tables sort by a click.
Prints a line for each thing that is wrong; exit status 77 without a browser."""
import base64
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile

NAMES = ("chromium", "chromium-browser", "google-chrome")
WIDTHS = (1280, 390)
WAIT_S = 60
PATHS = ("pass", "host", "fabric", "peer", "rail", "refuse", "none")
TIMES = ("fabrail_ns", "copies_ns", "mpi_ns", "wait_ns")
VERDICT = ("wait_ns", "copies_ns", "wire_ns", "fabrail_ns")


class Browser:
    """Chromium with the DevTools protocol on two pipes: JSON messages that end with a zero byte."""

    def __init__(self, program, folder):
        to_read, self.to = os.pipe()
        self.back, back_write = os.pipe()
        self.number, self.buffer, self.events = 0, b"", []

        def wire():
            # The numbers that the browser expects, whichever the pipes have got.
            kept = [os.dup(to_read), os.dup(back_write)]
            high = [os.dup2(fd, 40 + i) for i, fd in enumerate(kept)]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self.process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-extensions", "--disable-background-networking", "--disable-sync", "--remote-debugging-pipe",
             f"--user-data-dir={folder}", "about:blank"],
            preexec_fn=wire, close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True)
        os.close(to_read)
        os.close(back_write)
        self.session = None

    def read(self):
        while b"\0" not in self.buffer:
            part = os.read(self.back, 1 << 16)
            if not part:
                raise EOFError("the browser has ended")
            self.buffer += part
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.to, data):]
        while True:
            answer = self.read()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise ValueError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def wait_for(self, method):
        while not any(event.get("method") == method for event in self.events):
            self.events.append(self.read())

    def start(self):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def show(self, page, width, scheme):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.events.clear()
        self.call("Page.navigate", url="file://" + os.path.abspath(page))
        self.wait_for("Page.loadEventFired")

    def ask(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise ValueError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def press(self, key):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key,
                      windowsVirtualKeyCode={"Tab": 9, "ArrowRight": 39, "ArrowDown": 40}.get(key, 0))

    def save(self, name):
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        with open(name, "wb") as file:
            file.write(base64.b64decode(shot["data"]))

    def close(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def complaints(browser):
    for event in browser.events:
        what, parameters = event.get("method"), event.get("params", {})
        if what in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
            yield f"{what}: {json.dumps(parameters)[:300]}"
        if what == "Network.requestWillBeSent":
            url = parameters["request"]["url"]
            if not url.startswith(("file://", "data:")):
                yield f"it asks for {url}"


def walk(browser):
    """Goes through the page by the tabulator; what is passed, by its tag."""
    seen = []
    for _ in range(60):
        browser.press("Tab")
        tag = browser.ask("var e = document.activeElement; e.id || e.className || e.tagName")
        if seen and tag == "BODY":
            break
        seen.append(tag)
    return seen


def judge_use(browser, many):
    seen = walk(browser)
    for wanted in ("skip", "exact", "heat", "scroll"):
        if wanted not in seen:
            yield f"the tabulator does not come to {wanted}: {seen}"
    browser.ask("document.getElementById('heat').focus()")
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        browser.press(key)
    said = browser.ask("document.getElementById('cell').textContent")
    group = browser.ask("JSON.parse(document.getElementById('pairs').textContent).group")
    whom = "rank 1" if group == 1 else f"ranks {group} to {2 * group - 1}"
    if not said.startswith(f"{whom} → {whom}: "):
        yield f"arrow keys on the map say {said!r}"
    browser.ask("document.getElementById('exact').click()")
    wide = browser.ask("document.documentElement.scrollWidth - innerWidth")
    exact = browser.ask("document.querySelector('data[data-k=\"all.bytes\"]').textContent.replace(/\\D/g, '')")
    if wide > 0 or exact != browser.ask("document.querySelector('data[data-k=\"all.bytes\"]').value"):
        yield f"exact numbers: {exact}, and {wide} pixels too wide"


def judge_view(browser, width):
    wide = browser.ask("document.documentElement.scrollWidth - innerWidth")
    if browser.ask("innerWidth") != width or wide > 0:
        yield f"{wide} pixels wider than the window of {browser.ask('innerWidth')}"
    blank = browser.ask("var c = document.getElementById('heat'); c.width > 100 && c.height > 100 && "
                        "new Set(c.getContext('2d').getImageData(0, 0, c.width, c.height).data).size")
    if not blank or blank < 4:
        yield "the map is blank"


def numbers_of(reports):
    """What the page says under each key, from the reports."""
    want, matrix = {}, {}
    size = reports[0]["size"]
    for report in reports:
        for path in PATHS:
            row = report["totals"]["paths"].get(path, {})
            for what in ("bytes", "buffers", "calls") + TIMES:
                key = f"paths.{path}.{what}"
                want[key] = want.get(key, 0) + row.get(what, 0)
        for row in report["sizes"]:
            place = max(row["from_bytes"].bit_length() - 1, 0)
            for what in ("buffers", "bytes"):
                key = f"sizes.{place}.{what}"
                want[key] = want.get(key, 0) + row[what]
        for row in report["peers"]:
            matrix[report["rank"], row["rank"]] = matrix.get((report["rank"], row["rank"]), 0) + row["bytes"]
        for row in report["everyone"]:
            for to in range(size):
                matrix[report["rank"], to] = matrix.get((report["rank"], to), 0) + row["bytes"]
        served = [row for path, row in report["totals"]["paths"].items() if path != "none"]
        want[f"ranks.{report['rank']}.bytes"] = sum(row["bytes"] for row in served)
        want[f"ranks.{report['rank']}.ns"] = sum(row[what] for row in served for what in TIMES)
        want[f"ranks.{report['rank']}.wall_ns"] = report["totals"]["wall_ns"]
    for path in PATHS:
        want[f"paths.{path}.ns"] = sum(want[f"paths.{path}.{what}"] for what in TIMES)
    for what in ("bytes", "buffers", "calls", "ns"):
        want[f"all.{what}"] = sum(want[f"paths.{path}.{what}"] for path in PATHS if path != "none")
    want["staged.bytes"], want["size"] = want["paths.host.bytes"], size
    want["matrix.bytes"], want["wall.ns"] = sum(matrix.values()), max(r["totals"]["wall_ns"] for r in reports)
    return want, matrix


def judge_verdict(browser, page, verdict, reports):
    rows = 5 * sum(len(report[part]) for report in reports for part in ("functions", "calls", "sites"))  # each is rounded
    parts, whole = [page.get(f"verdict.{part}") for part in VERDICT], page.get("all.ns")
    if None in parts or sum(parts) != whole:
        yield f"the parts of the verdict are {parts}, of {whole}"
    waits = {table: sum(value for key, value in page.items() if key.startswith(table) and key.endswith(".wait_ns"))
             for table in ("verdict.", "ranks.", "functions.", "paths.", "sites.", "comms.")}
    if waits["ranks."] != waits["verdict."] or waits["functions."] != waits["paths."] or \
            waits["sites."] != waits["comms."] or abs(waits["sites."] - waits["verdict."]) > rows:
        yield f"tables and verdict do not agree on the time of waiting: {waits}"
    said = browser.ask("document.querySelector('p.verdict').textContent")
    if verdict and said != verdict[1]:
        yield f"the first sentence is {said!r}, and not {verdict[1]!r}"


def judge_order(browser):
    """Functions come by time; a click on a column sorts by it, another one the other way round."""
    ask = ("Array.from(document.querySelectorAll('#functions tbody tr')).map(r => Number(r.cells[%d].querySelector"
           "('data').value))")
    head = "document.querySelectorAll('#functions thead th')[%d].querySelector('button').click()"
    started = browser.ask("document.querySelectorAll('#functions tbody tr').length - Array.from(document.querySelectorAll"
                          "('#functions tbody th')).filter(h => /MPI_(Init|Finalize)/.test(h.textContent)).length")
    times = browser.ask(ask % 2)[:started]
    if times != sorted(times, reverse=True):
        yield "the functions are not in the order of their time"
    for clicks, down in ((1, True), (2, False)):
        browser.ask(head % 5)
        if browser.ask(ask % 5) != sorted(browser.ask(ask % 5), reverse=down):
            yield f"the functions are not sorted by calls after {clicks} clicks"


def judge_functions(page, reports):
    sums = {}
    for report in reports:
        for row in report["functions"] + report["calls"]:
            key = row["name"], row["path"], row["scheme"], row["reason"]
            cell = sums.setdefault(key, [0, 0, 0])
            cell[0] += row["bytes"]
            cell[1] += row["calls"]
            cell[2] += sum(row[what] for what in TIMES)
    shown = sorted([page[f"functions.{i}.bytes"], page[f"functions.{i}.calls"], page[f"functions.{i}.ns"]]
                   for i in range(sum(key.startswith("functions.") and key.endswith(".bytes") for key in page)))
    if shown != sorted(sums.values()):
        yield "the functions are not those of the reports"


def judge_sites(browser, page, reports):
    """Both tables are what the reports say, and none of them has calls without device buffers."""
    sums = {"sites": {}, "comms": {}}
    for row in (row for report in reports for row in report["sites"]):
        comm = row["communicator"], row["ranks"]
        place = row["function"], row["object"] and row["object"].split("/")[-1], row["address"], row["name"]
        for table, key in (("sites", comm + place), ("comms", comm)):
            cell = sums[table].setdefault(key, [0, 0, 0])
            for i, value in enumerate((sum(row["bytes"].values()), row["calls"], sum(row[what] for what in TIMES))):
                cell[i] += value
    for table, cells in sums.items():
        shown = [[page[f"{table}.{i}.{what}"] for what in ("bytes", "calls", "ns")]
                 for i in range(sum(key.startswith(table + ".") and key.endswith(".ns") for key in page))]
        if shown != sorted(cells.values(), key=lambda cell: -cell[2])[:200]:
            yield f"the table of {table} is not that of the reports"
    for row in (row for report in reports for row in report["sites"] if row["communicator"] is None):
        yield f"the communicator of {row['name']} in {row['function']} is not known"
    first = browser.ask("document.querySelector('#sites tbody th').textContent")
    if "report_run" not in first and "transpose" not in first:
        yield f"the first call site is {first}"


def judge_numbers(browser, reports, verdict):
    page = browser.ask("var o = {}; document.querySelectorAll('data[data-k]').forEach(d => o[d.dataset.k] = d.value); o")
    page = {key: int(value) for key, value in page.items()}
    want, matrix = numbers_of(reports)
    # The verdict makes waiting of some time in the MPI library.
    for path in PATHS:
        mpi, wait = f"paths.{path}.mpi_ns", f"paths.{path}.wait_ns"
        if page.get(wait, 0) >= want[wait]:
            want[mpi], want[wait] = want[mpi] + want[wait] - page.get(wait, 0), page.get(wait, 0)
    for key, value in sorted(want.items()):
        hidden = key.startswith("paths.") and not want[key.rsplit(".", 1)[0] + ".calls"]
        if page.get(key) != value and not hidden:
            yield f"{key} is {page.get(key)}, and not {value}"
    pairs = browser.ask("JSON.parse(document.getElementById('pairs').textContent)")
    shown = {(i, j): value for i, row in enumerate(pairs["bytes"]) for j, value in enumerate(row) if value}
    grouped = {}
    for (i, j), value in matrix.items():
        place = i // pairs["group"], j // pairs["group"]
        grouped[place] = grouped.get(place, 0) + value
    if shown != {place: value for place, value in grouped.items() if value}:
        yield "the map is not that of the reports"
    yield from judge_functions(page, reports)
    yield from judge_sites(browser, page, reports)
    yield from judge_verdict(browser, page, verdict, reports)
    yield from judge_order(browser)
    if sum(key.startswith("ranks.") and key.endswith(".bytes") for key in page) != len(reports):
        yield "the ranks are not those of the reports"


def judge(browser, page, reports, verdict, prefix):
    for width in WIDTHS:
        for scheme in ("light", "dark"):
            browser.show(page, width, scheme)
            found = list(judge_view(browser, width))
            if prefix:
                browser.save(f"{prefix}-{width}-{scheme}.png")
            found += list(judge_numbers(browser, reports, verdict)) + list(judge_use(browser, len(reports) > 24))
            found += list(complaints(browser))
            yield from (f"{width} {scheme}: {text}" for text in found)


def main():
    arguments = sys.argv[1:]
    most = 1 if arguments[0] == "--first" else 30
    arguments = arguments[most == 1:]
    prefix = arguments.pop(0).split("=", 1)[1] if arguments[0].startswith("--screenshot=") else None
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if not program:
        print("there is no chromium")
        return 77
    reports, verdict = [], None
    for name in arguments[1:]:
        with open(name, encoding="utf-8") as file:
            report = json.load(file)
        verdict = report.get("verdict") or verdict
        reports += report["details"] if report["kind"] == "job" else [report]
    signal.alarm(WAIT_S * 4)
    with tempfile.TemporaryDirectory() as folder:
        browser = Browser(program, folder)
        signal.signal(signal.SIGALRM, lambda *_: browser.close())
        try:
            browser.start()
            found = list(itertools.islice(judge(browser, arguments[0], reports, verdict, prefix), most))
        finally:
            browser.close()
    for text in found:
        print(text)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
