// SPDX-License-Identifier: BSD-3-Clause
// The script of the report's page: the list of its parts, exact numbers, tables in other orders, and the
// map of pairs.
(function () {
    "use strict";
    function scaled(value, steps) {
        for (var i = 0; i < steps.length - 1 && value < steps[i][0]; i++) {
        }
        var shown = value / steps[i][0];
        return shown.toFixed(steps[i][0] === 1 || shown >= 99.95 ? 0 : shown >= 9.995 ? 1 : 2) + steps[i][1];
    }

    function bytes(value) {
        return scaled(value, [[Math.pow(2, 40), " TiB"], [Math.pow(2, 30), " GiB"], [Math.pow(2, 20), " MiB"],
            [1024, " KiB"], [1, " B"]]);
    }

    function grouped(text) {
        return String(text).replace(/\B(?=(\d{3})+$)/g, ",");
    }

    function list() {
        var nav = document.querySelector("nav");
        document.querySelectorAll("main > section").forEach(function (section) {
            var link = document.createElement("a");
            link.href = "#" + section.id;
            link.textContent = section.querySelector("h2").textContent;
            nav.appendChild(link);
        });
    }

    function exact() {
        var box = document.getElementById("exact");
        box.parentNode.hidden = false;
        box.addEventListener("change", function () {
            document.querySelectorAll("data").forEach(function (number) {
                if (!number.dataset.short)
                    number.dataset.short = number.textContent;
                number.textContent = box.checked ? grouped(number.value) + (number.dataset.u ? " " + number.dataset.u : "")
                    : number.dataset.short;
            });
        });
    }

    // The key of a cell in sorting: its number, or else its text.
    function key(row, column) {
        var cell = row.cells[column], number = cell.querySelector("data");
        return number ? Number(number.value) : /^-?\d+$/.test(cell.textContent) ? Number(cell.textContent)
            : cell.textContent;
    }

    function order(table, column, header) {
        var body = table.tBodies[0], rows = Array.from(body.rows);
        var down = header.getAttribute("aria-sort") !== "descending";
        rows.sort(function (a, b) {
            var x = key(a, column), y = key(b, column);
            return (x < y ? -1 : x > y ? 1 : 0) * (down ? -1 : 1);
        });
        rows.forEach(function (row) { body.appendChild(row); });
        Array.from(header.parentNode.cells).forEach(function (other) { other.removeAttribute("aria-sort"); });
        header.setAttribute("aria-sort", down ? "descending" : "ascending");
    }

    function sortable() {
        document.querySelectorAll("table.sortable").forEach(function (table) {
            Array.from(table.tHead.rows[0].cells).forEach(function (header, column) {
                var button = document.createElement("button");
                button.type = "button";
                button.textContent = header.textContent;
                header.textContent = "";
                header.appendChild(button);
                button.addEventListener("click", function () { order(table, column, header); });
            });
        });
    }

    function map() {
        var canvas = document.getElementById("heat"), pairs = document.getElementById("pairs");
        if (!canvas)
            return;
        var data = JSON.parse(pairs.textContent), side = data.side, ink = canvas.getContext("2d");
        var said = document.getElementById("cell"), picked = null, most = 0, least = Infinity;
        var edge = 40, cell = 1;

        data.bytes.forEach(function (row) {
            row.forEach(function (value) {
                most = Math.max(most, value);
                least = value ? Math.min(least, value) : least;
            });
        });

        function colours() {
            var style = getComputedStyle(document.documentElement);
            return ["--h0", "--h1", "--h2", "--h3", "--h4", "--soft", "--pick"].map(function (name) {
                return style.getPropertyValue(name).trim();
            });
        }

        function channels(hex) {
            return [1, 3, 5].map(function (at) { return parseInt(hex.substr(at, 2), 16); });
        }

        function shade(value, ramp) {
            if (!value)
                return ramp[0];
            var place = most > least ? Math.log(value / least) / Math.log(most / least) * 3 : 3;
            var low = Math.min(2, Math.floor(place));
            var a = channels(ramp[low + 1]), b = channels(ramp[low + 2]), part = place - low;
            return "rgb(" + a.map(function (from, i) { return Math.round(from + (b[i] - from) * part); }) + ")";
        }

        function ranks(index) {
            var first = index * data.group, last = Math.min(data.size, first + data.group) - 1;
            return first === last ? "rank " + first : "ranks " + first + " to " + last;
        }

        function tick() {
            var steps = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512], i = 0;
            while (steps[i] * cell < 30 && i < steps.length - 1)
                i++;
            return steps[i];
        }

        function labels(ramp) {
            var step = tick();
            ink.fillStyle = ramp[5];
            ink.font = "12px system-ui, sans-serif";
            for (var i = 0; i < side; i += step) {
                ink.textAlign = "center";
                ink.textBaseline = "bottom";
                ink.fillText(i * data.group, edge + (i + .5) * cell, edge - 5);
                ink.textAlign = "right";
                ink.textBaseline = "middle";
                ink.fillText(i * data.group, edge - 6, edge + (i + .5) * cell);
            }
            ink.textAlign = "left";
            ink.textBaseline = "top";
            ink.fillText("to rank", edge, 4);
            ink.save();
            ink.translate(4, edge);
            ink.rotate(-Math.PI / 2);
            ink.textAlign = "right";
            ink.fillText("from rank", 0, 0);
            ink.restore();
        }

        function draw() {
            var ratio = window.devicePixelRatio || 1, width = canvas.clientWidth, ramp = colours();
            cell = (width - edge - 1) / side;
            canvas.width = width * ratio;
            canvas.height = width * ratio;
            canvas.style.height = width + "px";
            ink.setTransform(ratio, 0, 0, ratio, 0, 0);
            ink.clearRect(0, 0, width, width);
            var gap = cell >= 6 ? 1 : 0;
            for (var from = 0; from < side; from++) {
                for (var to = 0; to < side; to++) {
                    ink.fillStyle = shade(data.bytes[from][to], ramp);
                    ink.fillRect(edge + to * cell, edge + from * cell, cell - gap + (gap ? 0 : .5),
                        cell - gap + (gap ? 0 : .5));
                }
            }
            labels(ramp);
            if (picked) {
                ink.strokeStyle = ramp[6];
                ink.lineWidth = 2;
                ink.strokeRect(edge + picked[1] * cell - 1, edge + picked[0] * cell - 1, Math.max(cell, 4) + 1,
                    Math.max(cell, 4) + 1);
            }
        }

        function pick(from, to) {
            picked = [Math.max(0, Math.min(side - 1, from)), Math.max(0, Math.min(side - 1, to))];
            var sent = data.bytes[picked[0]][picked[1]], messages = data.messages[picked[0]][picked[1]];
            said.textContent = ranks(picked[0]) + " → " + ranks(picked[1]) + ": " + (messages ? bytes(sent) + " in " +
                grouped(messages) + (messages === 1 ? " message" : " messages") : "nothing");
            draw();
        }

        function point(event) {
            var box = canvas.getBoundingClientRect();
            var to = Math.floor((event.clientX - box.left - edge) / cell);
            var from = Math.floor((event.clientY - box.top - edge) / cell);
            if (from >= 0 && to >= 0 && from < side && to < side && (!picked || picked[0] !== from || picked[1] !== to))
                pick(from, to);
        }

        function key(event) {
            var moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
            var move = moves[event.key], far = event.shiftKey ? 8 : 1;
            if (!move && event.key !== "Home")
                return;
            event.preventDefault();
            if (event.key === "Home" || !picked)
                pick(0, 0);
            else
                pick(picked[0] + far * move[0], picked[1] + far * move[1]);
        }

        canvas.addEventListener("pointermove", point);
        canvas.addEventListener("pointerdown", point);
        canvas.addEventListener("keydown", key);
        window.addEventListener("resize", draw);
        if (window.matchMedia)
            window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
        draw();
    }

    list();
    exact();
    sortable();
    map();
}());
