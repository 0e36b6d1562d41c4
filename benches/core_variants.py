"""Backlogs of Service Bus that need more for each message."""

import core_report as report
from core_load import SMALL, BusLoad
from core_report import Row, number
from core_rows import kills, memory_rows, ready_row, turn_rows
from core_server import say

# Rows for later steps of the plan, in Service Bus only: how the queue is created and filled.
VARIANTS = {
    "sessions": (["--sessions"], ["--sessions", "100000"]),
    "schedules": ([], ["--days-ahead", "365"]),
    "ids": (["--detect-duplicates", "--duplicate-window", "1d"], []),
}


def variant_rows(options, servers, name):
    """A backlog of Service Bus that needs more memory for each message."""
    create, fill = VARIANTS[name]
    kew = servers.start(f"bus-{name}", "bus")
    load = BusLoad(options, kew, create, fill)
    say(f"bus: filling with {options.messages:,} messages, {name}")
    filled = load.fill(options.messages)
    rows = [Row("puts a second of the fill", number(filled.rate))]
    if name == "ids":
        send_again(load)
    rows += memory_rows(kew, options.messages, factor=2)
    rows += turn_rows(kew, servers.stalls, "fill")
    bound = report.target_of(report.READY_MS_MAX, options.messages)
    rows.append(ready_row("ready after SIGKILL under puts", kills(options, kew, load), bound))
    kew.stop()
    for row in rows:
        row.what = f"{name}: {row.what}"
    return rows


def send_again(load):
    """The first messages, again: they are accepted, and dropped as duplicates."""
    after, load.next = load.next, 0
    more = ["--first", 0, "--count", SMALL, "--batch", 100]
    load.run(load.command("fill", more), load.limit(0))
    load.next = after
    load.check()
