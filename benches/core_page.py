"""The blocks of docs/performance.md that `run core --write` writes.

There is a block for each number of messages, and one for each build that was measured beside this one. A block lies
between two markers that name it, and replaces only the block with the same name. All other text of the page is written
by hand, and stays.
"""

import os
import platform
import re
import shlex
import subprocess
import time

from core_load import SMALL
from core_report import NAMES
from servers import ROOT

PAGE = ROOT / "docs" / "performance.md"
HEADING = "## A large backlog"
MARKER = re.compile(r"^<!-- (?:Begin|End) of run core: (.+) -->$", re.MULTILINE)
BLOCK = re.compile(
    r"^<!-- Begin of run core: (?P<name>[^\n]+) -->\n.*?^<!-- End of run core: (?P=name) -->\n",
    re.MULTILINE | re.DOTALL,
)
SIZE = re.compile(r"([\d,]+) messages")


def first_line(path, prefix):
    with open(path) as file:
        found = (line for line in file if line.startswith(prefix))
        return next(found, "=unknown").partition(":" if "proc" in path else "=")[2].strip().strip('"')


def output(*command):
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return ran.stdout.strip() if ran.returncode == 0 else "unknown"


def version(kew):
    return output(str(kew), "--version")


def short(commit):
    """A commit as this repository writes it; as it was given if it is of another one."""
    found = output("git", "rev-parse", "--verify", "--quiet", "--short=7", f"{commit}^{{commit}}")
    return commit if found == "unknown" else found


def tree():
    """The commit of this tree, and whether programs may differ from it: documents do not matter."""
    commit = short("HEAD")
    changes = output("git", "status", "--porcelain", "--untracked-files=no", "--", ".", ":(exclude)*.md")
    return commit + (" with changes" if changes not in ("", "unknown") else "")


def note_builds(options):
    """Notes in the options which builds are measured. Call it before a run, in which commits and files can change."""
    options.measured = described(options)
    options.other = other_build(options) if options.paired else None


def other_build(options):
    other = version(options.paired)
    return other + (f" at commit {short(options.paired_commit)}" if options.paired_commit else "")


def measured_build(options):
    if options.commit:
        return f"at commit {short(options.commit)}"
    if options.is_another_build:
        return f"with the binary `{shown(options.kew)}` and the benchmarks of commit {tree()}"
    return f"at commit {tree()}"


def described(options):
    """The machine, the versions, the commit and the date."""
    memory_kib = int(first_line("/proc/meminfo", "MemTotal").split()[0])
    day = time.strftime("%d %B %Y", time.gmtime()).lstrip("0")
    return (
        f"on {day} {measured_build(options)} ({version(options.kew)}, {output('rustc', '--version')}), on "
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


def shown(argument):
    """An argument, or a path. Of an absolute path, the last part: other machines have other directories."""
    return re.sub(r"(^|=)/(?:.*/)?(?=[^/])", r"\1", str(argument))


def command_line(arguments):
    return shlex.join(["benches/run", "core", *map(shown, arguments)])


def table(heads, rows):
    """A table in Markdown."""
    lines = [" | ".join(cells) for cells in [heads, ["---"] * len(heads), *rows]]
    return "\n".join(f"| {line} |" for line in lines)


def backlog(options, arguments, results):
    """The name and the text of the block of one number of messages, from rows by protocol."""
    intro = (
        f"Measured with `{command_line(arguments)}` {options.measured}. Bodies have 64 bytes, and 4,096 in the long "
        "put/delete run. Service Bus is filled in batches of 100, each of which counts as one put for latencies. Live "
        "data is the bodies as stored, and 48 bytes each. The targets are those of the next core "
        "([core.md](core.md)), and a figure that misses its target says so."
    )
    all_rows = [row for found in results.values() for row in found]
    missed = sum(row.is_met is False for row in all_rows)
    judged = sum(row.is_met is not None for row in all_rows)
    end = f"{judged - missed} of {judged} figures with a target meet it, {missed} miss it."
    return f"{options.messages:,} messages", "\n\n".join([wrapped(intro), backlog_table(results), end])


def backlog_table(results):
    """A line for each figure, with a cell for each protocol."""
    by_what = {protocol: {row.what: row for row in found} for protocol, found in results.items()}
    lines = []
    for what in dict.fromkeys(row.what for found in results.values() for row in found):
        found = [by_what[protocol].get(what) for protocol in results]
        targets = dict.fromkeys(row.target for row in found if row)
        cells = [row.cell() if row else "–" for row in found]
        lines.append([what, "; ".join(it for it in targets if it), *cells])
    return table(["what", "target", *(NAMES[it] for it in results)], lines)


def pairs(options, arguments, found):
    """The name and the text of the block of this build beside another one, from `core_paired.Pair`s."""
    intro = (
        f"Measured with `{command_line(arguments)}` {options.measured}. The other build is {options.other}, the binary "
        f"`{shown(options.paired)}`. Both builds had {SMALL:,} messages of 64 bytes of each service. They took turns "
        f"in {options.rounds} rounds of {options.seconds:g} s, after each of {options.starts} starts of both. A ratio is "
        "this build's figure divided by the other's in the same round: the median, with its quartiles. A higher rate "
        "is better, and so is less CPU. One start can differ from the next by a tenth in all its rounds."
    )
    rows = [[pair.what, pair.values(), pair.ratio()] for pair in found]
    heads = ["what", "this build / the other", "ratio (quartiles)"]
    return f"beside {options.other}", "\n\n".join([wrapped(intro), table(heads, rows)])


def write(name, text):
    """Replaces the block of this name, or adds it."""
    PAGE.write_text(placed(PAGE.read_text(), name, text))


def check():
    """Ends the program if a block could not be written."""
    placed(PAGE.read_text(), "check", "")


def placed(page, name, text):
    """The page with this block in it."""
    title = name[:1].upper() + name[1:]
    block = f"<!-- Begin of run core: {name} -->\n\n### {title}\n\n{text}\n\n<!-- End of run core: {name} -->\n"
    there = list(BLOCK.finditer(page))
    if MARKER.findall(page) != [it["name"] for it in there for _ in ["Begin", "End"]]:
        raise SystemExit(f"{PAGE}: a block lacks its begin or end marker, so nothing is written; add the marker")
    for it in there:
        if it["name"] == name:
            return page[: it.start()] + block + page[it.end() :]
    later = next((it for it in there if order(it["name"]) > order(name)), None)
    if later:
        return f"{page[: later.start()]}{block}\n{page[later.start() :]}"
    end = there[-1].end() if there else end_of_intro(page)
    return f"{page[:end]}\n{block}{page[end:]}"


def order(name):
    """Sizes come first, by number. Other builds follow as they were added."""
    size = SIZE.fullmatch(name)
    return int(size[1].replace(",", "")) if size else float("inf")


def end_of_intro(page):
    """Where the first block goes: behind the first paragraph of the section."""
    section = re.search(rf"^{re.escape(HEADING)}\n\n.+?\n(?=\n|\Z)", page, re.MULTILINE | re.DOTALL)
    if not section:
        raise SystemExit(f"{PAGE}: there is no section {HEADING} with a paragraph, so a block has no place")
    return section.end()
