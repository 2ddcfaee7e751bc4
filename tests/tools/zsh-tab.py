#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Types a line and a tab into a zsh on a terminal, and prints what the line has become.

  zsh-tab.py FABRAIL LINE"""
import os
import pty
import re
import select
import sys
import tempfile
import time

fabrail, line = sys.argv[1:]
with tempfile.TemporaryDirectory() as home:
    result = os.path.join(home, "result")
    with open(os.path.join(home, ".zshrc"), "w", encoding="utf-8") as file:
        file.write(f"""PS1='ready> '; unsetopt prompt_sp; autoload -Uz compinit; compinit -u -D
source <({fabrail} --completion=zsh)
show() {{ print -r -- "$BUFFER" >{result}.new; mv {result}.new {result}; exit }}
zle -N show; bindkey '^X' show; bindkey '^I' complete-word
""")
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(HOME=home, ZDOTDIR=home, TERM="dumb")
        os.execvp("zsh", ["zsh", "-i"])

    def read_until(pattern, limit_s):
        text, until = b"", time.monotonic() + limit_s
        while time.monotonic() < until and not re.search(pattern, text):
            if select.select([terminal], [], [], 0.2)[0]:
                try:
                    text += os.read(terminal, 4096)
                except OSError:
                    break

    read_until(rb"ready> ", 30)
    os.write(terminal, line.encode() + b"\t")
    time.sleep(1)
    os.write(terminal, b"\x18")
    until = time.monotonic() + 20
    while not os.path.exists(result) and time.monotonic() < until:
        read_until(rb"$^", 0.2)
    if os.path.exists(result):
        with open(result, encoding="utf-8") as file:
            print(file.read(), end="")
    os.close(terminal)
    os.waitpid(pid, 0)
