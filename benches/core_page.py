"""The section of docs/performance.md about the core."""

import os
import platform
import re
import subprocess
import time

from core_report import NAMES
from servers import ROOT

PAGE = ROOT / "docs" / "performance.md"
HEADING = "## A large backlog"
BEFORE = "## On your machine"
# What follows it in the section is written by hand, and stays.
END = "<!-- End of what run core --write replaces -->"


def first_line(path, prefix):
    with open(path) as file:
        found = (line for line in file if line.startswith(prefix))
        return next(found, "=unknown").partition(":" if "proc" in path else "=")[2].strip().strip('"')


def output(*command):
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return ran.stdout.strip() if ran.returncode == 0 else "unknown"


def described(options):
    """The machine, the versions, the commit and the date."""
    memory_kib = int(first_line("/proc/meminfo", "MemTotal").split()[0])
    commit = output("git", "rev-parse", "--short=7", "HEAD")
    if output("git", "status", "--porcelain", "--untracked-files=no"):
        commit += " with changes"
    day = time.strftime("%d %B %Y", time.gmtime()).lstrip("0")
    return (
        f"on {day} at commit {commit} ({output(str(options.kew), '--version')}, {output('rustc', '--version')}), on "
        f"{os.cpu_count()} cores of {first_line('/proc/cpuinfo', 'model name')} ({platform.machine()}) with "
        f"{memory_kib / 2**20:.0f} GiB, {first_line('/etc/os-release', 'PRETTY_NAME')}, Linux {platform.release()}"
    )


def wrapped(text, width=120):
    lines, line = [], ""
    for word in text.split():
        if len(line) + len(word) + 1 > width:
            lines.append(line)
            line = ""
        line = f"{line} {word}".strip()
    return "\n".join([*lines, line])


def section(options, command, results):
    """The section, of rows by protocol."""
    by_what = {protocol: {row.what: row for row in found} for protocol, found in results.items()}
    whats = list(dict.fromkeys(row.what for found in results.values() for row in found))
    intro = (
        f"Measured with `{command}` {described(options)}. Bodies have 64 bytes, and 4,096 in the long put/delete "
        "run. Service Bus is filled in batches of 100, each of which counts as one put for latencies. Live data is the "
        "bodies as stored, and 48 bytes each. The targets are those of the next core ([core.md](core.md)), and a "
        "figure that misses its target says so."
    )
    lines = [HEADING, "", wrapped(intro), ""]
    lines.append("| what | target | " + " | ".join(NAMES[it] for it in results) + " |")
    lines.append("| --- | --- |" + " --- |" * len(results))
    for what in whats:
        found = [by_what[protocol].get(what) for protocol in results]
        targets = dict.fromkeys(row.target for row in found if row)
        cells = [row.cell() if row else "–" for row in found]
        lines.append(f"| {what} | {'; '.join(it for it in targets if it)} | " + " | ".join(cells) + " |")
    missed = sum(row.is_met is False for found in results.values() for row in found)
    judged = sum(row.is_met is not None for found in results.values() for row in found)
    lines += ["", wrapped(f"{judged - missed} of {judged} figures with a target meet it, {missed} miss it."), "", END]
    return "\n".join(lines) + "\n"


def write(options, command, results):
    """Replaces the first part of the section, or adds it."""
    PAGE.write_text(replaced(PAGE.read_text(), section(options, command, results)))


def replaced(text, new):
    if HEADING not in text:
        return text.replace(f"{BEFORE}\n", f"{new}\n{BEFORE}\n", 1)
    old = re.compile(rf"^{re.escape(HEADING)}\n.*?^{re.escape(END)}\n", re.MULTILINE | re.DOTALL)
    text, count = old.subn(lambda _: new, text, count=1)
    if count == 0:
        raise SystemExit(f"{PAGE}: {HEADING} has no line {END}, so what is written by hand would go")
    return text
