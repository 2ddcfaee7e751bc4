#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Prints the commands that documents show, one a line, each once, with where it stands: "shown", a tab, and the
command for those of fenced blocks marked sh, of indented lines and lines after a prompt, and of the examples of
manual pages; "named" for those of two words and more within a sentence. A command may be both.

  commands.py DOCUMENT..."""
import re
import sys

# Words that begin a command. Others in code spans are lines of output, settings, functions and files.
WORDS = r"""(?:\./configure|contrib/[a-z/-]+|doc/[a-z]+|tests/(?:bench|programs|rig)/[a-z-]+|\.\./\.\./tests/[a-z/-]+
    |fabrail|mpirun|mpiexec|srun|sbatch|salloc|make|pip|python3|docker|apptainer|conda|spack|eb|nsys|mknod|man|export
    |addr2line|autoreconf|source|[A-Z_]+=(?:"[^"]*"|\S+)\ (?:make|mpirun|mpiexec|srun|fabrail|program|\./\S+))"""
COMMAND = re.compile(rf"{WORDS}\s+\S", re.X)


def of_manual(text):
    """The examples of a page, without the marks of roff."""
    examples = re.search(r"^\.SH EXAMPLES\n\.nf\n(.*?)^\.fi", text, re.M | re.S)
    rest = re.findall(r"^\.nf\n((?:\t.*\n)+)\.fi", text, re.M)
    lines = (examples.group(1) if examples else "") + "".join(rest)
    return [line.strip() for line in lines.replace("\\-", "-").splitlines()]


def of_markdown(text):
    """Commands of blocks and indented lines, and those of sentences."""
    shown, named = [], []
    for kind, block in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S):
        lines = block.splitlines()
        shown += lines if kind == "sh" else [line[2:] for line in lines if line.startswith("$ ")]
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    shown += [line for line in re.findall(r"^ {4,}(\S.*)$", prose, re.M) if COMMAND.match(line)]
    for span in re.findall(r"`([^`\n]+(?:\n[^`\n]+)?)`", prose):
        span = " ".join(span.split())
        if COMMAND.match(span):
            named.append(span)
    return shown, named


def main():
    seen = set()
    for name in sys.argv[1:]:
        with open(name, encoding="utf-8") as file:
            text = file.read()
        shown, named = of_markdown(text) if name.endswith(".md") else (of_manual(text), [])
        for where, commands in (("shown", shown), ("named", named)):
            for command in commands:
                command = re.sub(r"(^|\s+)#\s.*", "", command).strip()
                if command and (where, command) not in seen:
                    seen.add((where, command))
                    print(f"{where}\t{command}")


main()
