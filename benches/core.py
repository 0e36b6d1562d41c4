"""Measures one kew with few messages and with many: rates, memory, turns, restarts and disk, beside their targets.

Each protocol has a server and a data directory of its own. The same figures at 1,000 messages and at many are taken in
turn, so that other load of the machine affects both. `--paired` compares two builds instead.
"""

import argparse
import json
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

import core_report as report
from core_load import BusLoad, QueueLoad
from core_report import MB, Row, number
from core_server import Kew, total
from servers import add_program_options, finish_programs, median, spread
from stalls import Stalls

LOADS = {"queue": QueueLoad, "bus": BusLoad}
SMALL = 1_000
OPERATIONS = ["put", "cycle"]
DISK_SECONDS_MAX = 60
# The long put/delete run: larger bodies, because so many of 64 bytes would not fill the four segments that are allowed.
CHURN_SIZE = 4096
CHURN_CYCLES_MAX = 500_000
# What the partition's thread does at once, by the wall clock and by its processor time: metric, row, and target in ms.
LONGEST = [
    ("turn", "longest turn", report.TURN_MS_MAX),
    ("turn_cpu", "most processor time of a turn", report.TURN_MS_MAX),
    ("snapshot_step", "longest step of a snapshot by the wall clock", report.SNAPSHOT_STEP_MS_MAX),
    ("snapshot_step_cpu", "most processor time of a step of a snapshot", report.SNAPSHOT_STEP_MS_MAX),
]
# Rows for later steps of the plan, in Service Bus only: how the queue is created and filled.
VARIANTS = {
    "sessions": (["--sessions"], ["--sessions", "100000"]),
    "schedules": ([], ["--days-ahead", "365"]),
    "ids": (["--detect-duplicates", "--duplicate-window", "1d"], []),
}


def parse_options(arguments):
    parser = argparse.ArgumentParser(prog="run core", description=__doc__.partition("\n")[0])
    add_program_options(parser)
    add = parser.add_argument
    add("--messages", type=int, default=1_000_000, help="of the large backlog (1000000)")
    add("--protocol", choices=LOADS, action="append", help="only this one")
    add("--rounds", type=int, help="of the comparison with 1,000 messages (5); with --paired, 15")
    add("--seconds", type=float, default=2.0, help="of each measurement of a round (2)")
    add("--concurrency", type=int, help="operations in progress (4); with --paired, 16 and 100 in Service Bus")
    add("--kills", type=int, default=3, help="restarts to time of each kind (3)")
    add("--keep-every", type=int, default=5_000, help="of the sparse deletion (5000)")
    add("--no-disk", action="store_true", help="no long put/delete run, no purge and no sparse deletion")
    add("--also", choices=VARIANTS, action="append", default=[], help="another row of Service Bus")
    add("--paired", type=Path, metavar="KEW", help="only compare with this build, at 1,000 messages")
    add("--write", action="store_true", help="replace the section of docs/performance.md")
    add("--strict", action="store_true", help="fail if a target is missed")
    add("--kew-option", action="append", default=[], help="another option of serve")
    options = parser.parse_args(arguments)
    finish_programs(options)
    options.rounds = options.rounds or (15 if options.paired else 5)
    if options.messages < SMALL:
        parser.error(f"--messages must be at least {SMALL}")
    if options.rounds < 2 or options.kills < 1:
        parser.error("--rounds must be at least 2, and --kills at least 1")
    if options.write and (options.paired or options.protocol):
        parser.error("--write needs both protocols, and no --paired")
    return options


def say(text):
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


class Servers:
    """Starts servers in directories of their own, and stops them at the end, however it comes."""

    def __init__(self, options, data):
        self.options, self.data, self.started = options, data, []
        # They take a hundredth of each core, which two builds would notice.
        self.stalls = None if options.paired else Stalls(data)

    def start(self, name, protocol, options=None):
        kew = Kew(options or self.options, self.data / name, protocol)
        # Stopped at the end also if it does not become ready.
        self.started.append(kew)
        kew.start()
        return kew

    def stop(self):
        for kew in self.started:
            kew.stop()

    def close(self):
        self.stop()
        if self.stalls:
            self.stalls.stop()


def in_turn(options, sides, small, concurrency):
    """Measures puts and cycles of both sides in each round, in turn; returns lists by operation and side.

    The loads in `small` have 1,000 messages before each measurement.
    """
    results = {}
    for round_number in range(options.rounds):
        for at, operation in enumerate(OPERATIONS):
            for load in small:
                load.reset(SMALL)
            order = list(enumerate(sides))
            for side, load in order if (round_number + at) % 2 == 0 else reversed(order):
                figures = getattr(load, operation)(options.seconds, concurrency)
                results.setdefault((operation, side), []).append(figures)
        say(f"round {round_number + 1} of {options.rounds} done")
    return results


def compare_backlogs(options, small, large):
    """Rates and tails behind many messages, beside those behind few."""
    results = in_turn(options, [large, small], [small], options.concurrency or 4)
    rows = []
    for operation in OPERATIONS:
        pairs = list(zip(results[operation, 0], results[operation, 1]))
        many, few = (median(run.rate for run in results[operation, side]) for side in [0, 1])
        ratio = median(a.rate / b.rate for a, b in pairs)
        rows.append(
            Row.at_least(
                f"{operation}s a second, times that at {SMALL:,} messages",
                ratio,
                report.RATIO_MIN,
                f"{number(many)} / {number(few)}: {ratio:.2f}",
            )
        )
        many, few = (median(run.p999_ms for run in results[operation, side]) for side in [0, 1])
        tail = median(a.p999_ms / b.p999_ms for a, b in pairs)
        figure = f"{number(many)} / {number(few)} ms: {tail:.2f}"
        what = f"{operation} p99.9, times that at {SMALL:,} messages"
        rows.append(Row(what, figure, f"≤ {report.TAIL_RATIO_MAX}", tail <= report.TAIL_RATIO_MAX))
        cost = median(a.cpu_us / max(b.cpu_us, 0.1) for a, b in pairs)
        rows.append(Row(f"server CPU of a {operation}, times that at {SMALL:,} messages", f"{cost:.2f}"))
    return rows


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


def empty_rows(options, servers, protocol, load_of):
    """Ready times without messages: of an empty directory, and after a kill under cycles."""
    fresh = []
    for at in range(5):
        kew = servers.start(f"{protocol}-empty-{at}", protocol)
        fresh.append(kew.ready_seconds)
        kew.stop()
    kew = servers.start(f"{protocol}-cycles", protocol)
    load, killed = load_of(options, kew), []
    # Queue Storage creates its queue with the first load.
    load.fill(SMALL)
    for number_of_kill in range(options.kills):
        load.purge()
        extra = load.kill_cycles(1.0 + 0.4 * number_of_kill)
        kew.start()
        load.check(extra)
        killed.append(kew.ready_seconds)
    kew.stop()
    bound = report.READY_EMPTY_MS_MAX
    return [
        ready_row("ready, empty directory", fresh, bound),
        ready_row("ready after SIGKILL under cycles, no backlog", killed, bound),
    ]


def measure_protocol(options, servers, protocol):
    """All rows of one protocol."""
    load_of, count = LOADS[protocol], options.messages
    rows = empty_rows(options, servers, protocol, load_of)
    kew = servers.start(f"{protocol}-large", protocol)
    load = load_of(options, kew)
    say(f"{protocol}: filling with {count:,} messages")
    filled = load.fill(count)
    rows.append(Row("puts a second of the fill", number(filled.rate)))
    rows.append(Row("put p99.9 of the fill", f"{number(filled.p999_ms)} ms"))
    rows.append(Row("longest put of the fill", f"{number(filled.longest_ms)} ms"))
    rows += memory_rows(kew, count)
    # The plan has no target here: beside live data lies what is kept to drain a full disk.
    disk = f"{number(kew.disk_bytes() / MB)} MB; {number(load.live_bytes() / MB)} MB live"
    rows.append(Row("disk after the fill", disk))
    small_kew = servers.start(f"{protocol}-small", protocol)
    small = load_of(options, small_kew)
    small.fill(SMALL)
    rows += compare_backlogs(options, small, load)
    small_kew.stop()
    rows += turn_rows(kew, servers.stalls, "fill, puts and cycles")
    say(f"{protocol}: killing the server {2 * options.kills} times under load")
    bound = report.target_of(report.READY_MS_MAX, count)
    rows.append(ready_row("ready after SIGKILL under puts", kills(options, kew, load), bound))
    rows.append(ready_row("the same with a cold page cache", kills(options, kew, load, is_cold=True), None))
    if not options.no_disk:
        load.purge()
        rows.append(disk_row(kew, load, "a purge"))
        rows += turn_rows(kew, servers.stalls, "restart and purge")
    kew.stop()
    if not options.no_disk:
        rows += sparse_rows(options, servers, protocol)
        rows += churn_rows(options, servers, protocol)
    return rows


def sparse_rows(options, servers, protocol):
    """Disk after all but a few messages were deleted, one after the other."""
    kew = servers.start(f"{protocol}-sparse", protocol)
    load = LOADS[protocol](options, kew)
    say(f"{protocol}: deleting all but every {options.keep_every:,}th of {options.messages:,} messages")
    load.fill(options.messages)
    load.drain(options.keep_every)
    rows = [disk_row(kew, load, f"deleting all but every {options.keep_every:,}th")]
    rows += turn_rows(kew, servers.stalls, "fill and deletion")
    kew.stop()
    return rows


def churn_rows(options, servers, protocol):
    """Disk after many messages have passed through a small backlog, one after the other."""
    kew = servers.start(f"{protocol}-churn", protocol)
    load = LOADS[protocol](options, kew, size=CHURN_SIZE)
    load.fill(SMALL)
    before = kew.metric("kew_log_appended_bytes_total")
    cycles = min(options.messages // 4, CHURN_CYCLES_MAX)
    say(f"{protocol}: putting and deleting {cycles:,} messages of {CHURN_SIZE:,} bytes beside {SMALL:,}")
    done = load.churn(cycles)
    row = disk_row(kew, load, "a long put/delete run")
    written = kew.metric("kew_log_appended_bytes_total") - before
    row.figure += f"; {done:,} cycles took {number(written / MB)} MB of log"
    rows = [row, *turn_rows(kew, servers.stalls, "long put/delete run")]
    kew.stop()
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


def compare_builds(options, servers):
    """Pairs of this build and another: rate and CPU at a small backlog."""
    other = argparse.Namespace(**{**vars(options), "kew": options.paired})
    results = {}
    for protocol in options.protocol or LOADS:
        load_of = LOADS[protocol]
        concurrency = options.concurrency or load_of.CONCURRENCY
        sides = []
        for name, build in [("this", options), ("other", other)]:
            kew = servers.start(f"{protocol}-{name}", protocol, build)
            sides.append(load_of(build, kew))
            sides[-1].fill(SMALL)
        found = in_turn(options, sides, sides, concurrency)
        for operation in OPERATIONS:
            results[f"{protocol}, {operation}"] = found[operation, 0], found[operation, 1]
        servers.stop()
    for name, (ours, theirs) in results.items():
        print(f"\n{name}: this build / {options.paired}")
        for what, pick in [("rate", lambda run: run.rate), ("server CPU", lambda run: run.cpu_us)]:
            values = [median(map(pick, side)) for side in [ours, theirs]]
            # A short run may take less than a tick of the processor's clock.
            ratios = [pick(a) / max(pick(b), 0.1) for a, b in zip(ours, theirs)]
            print(f"  {what:10} {values[0]:10.1f} / {values[1]:10.1f}   ratio {spread(ratios)}")
    return {
        name: [[vars(run) for run in side] for side in sides] for name, sides in results.items()
    }


def measure_all(options, servers):
    results = {}
    for protocol in options.protocol or LOADS:
        results[protocol] = measure_protocol(options, servers, protocol)
        if protocol == "bus":
            for name in options.also:
                results[protocol] += variant_rows(options, servers, name)
        title = f"{report.NAMES[protocol]}, {options.messages:,} messages of 64 bytes"
        report.print_rows(title, results[protocol])
    return results


def main(arguments):
    # An end by a signal stops the servers and removes their data, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    options = parse_options(arguments)
    # Under target/, where builds are: that is a disk, while the system's temporary directory may be in memory.
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.target) as place:
        servers = Servers(options, Path(place))
        try:
            if options.paired:
                found = compare_builds(options, servers)
                results = {}
            else:
                results = measure_all(options, servers)
                found = {it: [vars(row) for row in rows] for it, rows in results.items()}
        finally:
            servers.close()
    if options.json:
        options.json.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    if options.write:
        report.write(options, " ".join(["benches/run core", *arguments]), results)
    missed = sum(row.is_met is False for rows in results.values() for row in rows)
    if missed:
        print(f"{missed} figures miss their targets", file=sys.stderr)
    return 1 if missed and options.strict else 0
