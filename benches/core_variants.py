"""Backlogs of Service Bus that need more for each message."""

import core_ids
from core_ids import day_of_ids_rows
from core_load import SMALL, BusLoad
from core_report import Row, number
from core_rows import memory_rows, restart_rows, turn_rows
from core_server import say

# How the queue is created and filled.
VARIANTS = {
    "sessions": (["--sessions"], ["--sessions", "100000"]),
    "schedules": ([], ["--days-ahead", "365"]),
    "ids": (["--detect-duplicates", "--duplicate-window", "1d"], []),
}
ALSO = [*VARIANTS, core_ids.NAME]


def also_rows(options, servers, name):
    """The rows that an `--also` adds, each with its name."""
    rows = day_of_ids_rows(options, servers) if name == core_ids.NAME else variant_rows(options, servers, name)
    for row in rows:
        row.what = f"{name}: {row.what}"
    return rows


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
    rows += restart_rows(options, kew, load, options.messages)
    kew.end()
    return rows


def send_again(load):
    """The first messages, again: they are accepted, and dropped as duplicates."""
    after, load.next = load.next, 0
    more = ["--first", 0, "--count", SMALL, "--batch", 100]
    load.run(load.command("fill", more), load.limit(0))
    load.next = after
    load.check()
