"""Rows about one server: memory, turns, disk, and restarts."""

import statistics
import time

import core_report as report
from core_report import MB, Row, number
from core_server import total

DISK_SECONDS_MAX = 60
# What the partition's thread does at once, by the wall clock and by its processor time: metric, row, and target in ms.
LONGEST = [
    ("turn", "longest turn", report.TURN_MS_MAX),
    ("turn_cpu", "most processor time of a turn", report.TURN_MS_MAX),
    ("snapshot_step", "longest step of a snapshot by the wall clock", report.SNAPSHOT_STEP_MS_MAX),
    ("snapshot_step_cpu", "most processor time of a step of a snapshot", report.SNAPSHOT_STEP_MS_MAX),
]


def memory_rows(kew, messages, factor=1):
    """Memory while idle, and the most so far."""
    kew.wait_until_idle()
    resident, anonymous, peak = kew.memory()
    bound = report.target_of(report.MEMORY_MB_MAX, messages)
    bound = bound and bound * factor
    figure = f"{number(resident / MB)} MB (anonymous {number(anonymous / MB)})"
    return [
        Row.at_most("memory, idle", resident / MB, bound, "MB", figure),
        Row.at_most("memory, peak", peak / MB, bound, "MB"),
    ]


def turn_rows(kew, stalls, during):
    """The longest turns and steps of snapshots since the process started, and stalls of the machine meanwhile."""
    # One page: turns go on between two.
    page = kew.metrics()
    rows = [longest_row(page, *longest, during) for longest in LONGEST]
    return [*rows, stall_row(stalls.since(kew.began), during)]


def longest_row(page, name, what, bound_ms, during):
    what = f"{what}, {during}"
    longest = total(page, f"kew_partition_{name}_max_seconds")
    if longest is None:
        # An older build has no such metric.
        return Row(what, "not reported")
    count = total(page, f"kew_partition_{name}_seconds_count")
    if count == 0:
        return Row(what, "none")
    short = total(page, f"kew_partition_{name}_seconds_bucket", le=f"{bound_ms / 1000:g}")
    figure = f"{number(longest * 1000)} ms; {count - short:,.0f} of {count:,.0f} above {bound_ms} ms"
    return Row.at_most(what, longest * 1000, bound_ms, "ms", figure)


def stall_row(stalls, during):
    what = f"longest stall of the machine, {during}"
    if stalls is None:
        return Row(what, "not seen: it takes the right to SCHED_FIFO")
    long = sum(took * 1000 > report.TURN_MS_MAX for took in stalls)
    return Row(what, f"{number(max(stalls, default=0) * 1000)} ms; {long} above {report.TURN_MS_MAX} ms")


def disk_row(kew, load, after):
    """The data directory, as soon as it is small enough, or after a minute."""
    began = time.monotonic()
    live = load.live_bytes()
    bound = report.disk_bytes_max(live)
    while (found := kew.disk_bytes()) > bound and time.monotonic() - began < DISK_SECONDS_MAX:
        time.sleep(1)
    waited = time.monotonic() - began
    figure = f"{number(found / MB)} MB after {waited:.0f} s; {number(live / MB)} MB live"
    return Row.at_most(f"disk after {after}", found / MB, bound / MB, "MB", figure)


def restart_rows(options, kew, load, messages=None):
    """Ready times after kills under puts, with a warm page cache and with a cold one. Targets are for so many messages."""
    bound = messages and report.target_of(report.READY_MS_MAX, messages)
    return [
        ready_row("ready after SIGKILL under puts", kills(options, kew, load), bound),
        ready_row("the same with a cold page cache", kills(options, kew, load, is_cold=True), None),
    ]


def ready_row(what, times, bound):
    times_ms = [1000 * it for it in times]
    figure = f"{number(statistics.median(times_ms))} ms (longest {number(max(times_ms))})"
    return Row.at_most(what, max(times_ms), bound, "ms", figure)


def kills(options, kew, load, is_cold=False):
    """Kills the server under puts; returns the times until it is ready again, with every acknowledged message."""
    times = []
    for number_of_kill in range(options.kills):
        # Moments that lie differently between two snapshots.
        extra = load.kill(1.0 + 0.4 * number_of_kill)
        if is_cold:
            kew.drop_caches()
        kew.start()
        load.check(extra)
        times.append(kew.ready_seconds)
    return times
