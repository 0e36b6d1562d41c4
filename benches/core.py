"""Measures one kew with few messages and with many: rates, memory, turns, restarts and disk, beside their targets.

Each protocol has a server and a data directory of its own. The same figures at 1,000 messages and at many are taken in
turn, so that other load of the machine affects both. `--paired` compares two builds instead.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
from pathlib import Path

import core_ids
import core_offline as offline
import core_page as page
import core_report as report
from core_load import LOADS, OPERATIONS, SMALL, in_turn
from core_paired import compare_builds, pairs_of, print_pairs
from core_report import MB, Row, number
from core_rows import disk_row, memory_rows, ready_row, restart_rows, turn_rows
from core_server import Servers, drop_cache, say
from core_variants import ALSO, also_rows
from servers import add_program_options, finish_programs, median

# The long put/delete run: larger bodies, because so many of 64 bytes would not fill the four segments that are allowed.
CHURN_SIZE = 4096
CHURN_CYCLES_MAX = 500_000


def parse_options(arguments):
    # No option has a short form: ./run looks for some by their whole names.
    description = __doc__.partition("\n")[0]
    parser = argparse.ArgumentParser(prog="run core", description=description, allow_abbrev=False)
    add_program_options(parser)
    add = parser.add_argument
    add("--messages", type=int, default=1_000_000, help="of the large backlog (1000000)")
    add("--protocol", choices=LOADS, action="append", help="only this one")
    add("--rounds", type=int, default=5, help="of the comparison with 1,000 messages, or of a start with --paired (5)")
    add("--seconds", type=float, default=2.0, help="of each measurement of a round (2)")
    add("--concurrency", type=int, help="operations in progress (4); with --paired, 16 and 100 in Service Bus")
    add("--kills", type=int, default=3, help="restarts to time of each kind (3)")
    add("--keep-every", type=int, default=5_000, help="of the sparse deletion (5000)")
    add("--no-disk", action="store_true", help="no long put/delete run, no purge and no sparse deletion")
    add("--also", choices=ALSO, action="append", default=[], help="more rows of Service Bus")
    add("--offline", action="store_true", help="fill Queue Storage without a server: 100,000,000 puts take hours")
    add("--all-rows", action="store_true", help="all rows that --also can add")
    add("--ids", type=int, default=core_ids.COUNT, help="of day-of-ids (86400000, a thousand a second)")
    add("--paired", type=Path, metavar="KEW", help="only compare with this build, at 1,000 messages")
    add("--starts", type=int, default=3, help="of both builds with --paired (3)")
    add("--write", action="store_true", help="write the block of this size, or of the pairs, in docs/performance.md")
    add("--commit", help="of the build to measure, for --write (that of this tree)")
    add("--paired-commit", metavar="COMMIT", help="of the other build, for --write: binaries do not tell it")
    add("--strict", action="store_true", help="fail if a target is missed")
    add("--kew-option", action="append", default=[], help="another option of serve")
    options = parser.parse_args(arguments)
    options.is_another_build = options.kew is not None
    finish_programs(options)
    options.also = ALSO if options.all_rows else list(dict.fromkeys(options.also))
    if problem := problem_of(options):
        parser.error(problem)
    if options.write:
        # Before a run of hours, not after it.
        page.check()
    page.note_builds(options)
    return options


def problem_of(options):
    """What is wrong with the options; None if nothing is."""
    if options.messages < SMALL:
        return f"--messages must be at least {SMALL}"
    if options.ids < core_ids.COUNT_MIN:
        return f"--ids must be at least {core_ids.COUNT_MIN}"
    if options.rounds < 2 or options.kills < 1 or options.starts < 1:
        return "--rounds must be at least 2, and --kills and --starts at least 1"
    if options.write and options.protocol:
        return "--write needs both protocols: leave out --protocol"
    if not options.paired and (options.offline or core_ids.NAME in options.also):
        return offline.missing_program(options)
    return None


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


def empty_rows(options, servers, protocol, load_of):
    """Ready times without messages: of an empty directory, and after a kill under cycles."""
    warm = fresh_starts(options, servers, f"{protocol}-empty", protocol, Path.read_bytes)
    cold = fresh_starts(options, servers, f"{protocol}-cold", protocol, drop_cache)
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
        ready_row("ready, empty directory", warm, bound),
        ready_row("the same with the program not in the page cache", cold, None),
        ready_row("ready after SIGKILL under cycles, no backlog", killed, bound),
    ]


def fresh_starts(options, servers, name, protocol, prepare):
    """The times of starts in empty directories, after something was done with the program's file."""
    times = []
    for at in range(5):
        prepare(Path(options.kew))
        # A start syncs, and would wait for what others have written.
        os.sync()
        kew = servers.start(f"{name}-{at}", protocol)
        times.append(kew.ready_seconds)
        kew.stop()
    return times


def filled_load(options, servers, name, protocol):
    """The load on a server with all messages, rows about the fill, and what the server has done: *fill* or *start*."""
    load_of, count = LOADS[protocol], options.messages
    if protocol == "queue" and options.offline:
        kew = servers.add(name, protocol)
        row = offline.write(options, kew, "messages", count)
        kew.start()
        load = load_of(options, kew)
        load.count = count
        load.check()
        return load, [row], "start"
    load = load_of(options, servers.start(name, protocol))
    filled = load.fill(count)
    rows = [
        Row("puts a second of the fill", number(filled.rate)),
        Row("put p99.9 of the fill", f"{number(filled.p999_ms)} ms"),
        Row("longest put of the fill", f"{number(filled.longest_ms)} ms"),
    ]
    return load, rows, "fill"


def measure_protocol(options, servers, protocol):
    """All rows of one protocol."""
    load_of, count = LOADS[protocol], options.messages
    rows = empty_rows(options, servers, protocol, load_of)
    say(f"{protocol}: filling with {count:,} messages")
    load, filled, began_with = filled_load(options, servers, f"{protocol}-large", protocol)
    kew = load.kew
    rows += filled
    rows += memory_rows(kew, count)
    # The plan has no target here: beside live data lies what is kept to drain a full disk.
    disk = f"{number(kew.disk_bytes() / MB)} MB; {number(load.live_bytes() / MB)} MB live"
    rows.append(Row("disk after the fill", disk))
    small_kew = servers.start(f"{protocol}-small", protocol)
    small = load_of(options, small_kew)
    small.fill(SMALL)
    rows += compare_backlogs(options, small, load)
    small_kew.stop()
    rows += turn_rows(kew, servers.stalls, f"{began_with}, puts and cycles")
    say(f"{protocol}: killing the server {2 * options.kills} times under load")
    rows += restart_rows(options, kew, load, count)
    if not options.no_disk:
        load.purge()
        rows.append(disk_row(kew, load, "a purge"))
        rows += turn_rows(kew, servers.stalls, "restart and purge")
    kew.end()
    if not options.no_disk:
        rows += sparse_rows(options, servers, protocol)
        rows += churn_rows(options, servers, protocol)
    return rows


def sparse_rows(options, servers, protocol):
    """Disk after all but a few messages were deleted, one after the other."""
    say(f"{protocol}: deleting all but every {options.keep_every:,}th of {options.messages:,} messages")
    load, _, began_with = filled_load(options, servers, f"{protocol}-sparse", protocol)
    kew = load.kew
    load.drain(options.keep_every)
    rows = [disk_row(kew, load, f"deleting all but every {options.keep_every:,}th")]
    rows += turn_rows(kew, servers.stalls, f"{began_with} and deletion")
    kew.end()
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
    kew.end()
    return rows


def measure_all(options, servers):
    results = {}
    for protocol in options.protocol or LOADS:
        results[protocol] = measure_protocol(options, servers, protocol)
        if protocol == "bus":
            for name in options.also:
                results[protocol] += also_rows(options, servers, name)
        title = f"{report.NAMES[protocol]}, {options.messages:,} messages of 64 bytes"
        report.print_rows(title, results[protocol])
    return results


def run_paired(options, arguments, servers):
    """Measures this build beside another one; returns what --json writes, missed targets, and the block to write."""
    results = compare_builds(options, servers)
    pairs = list(pairs_of(results))
    print_pairs(options, pairs)
    found = {
        f"{protocol}, {operation}": [[vars(run) for run in side] for side in sides]
        for (protocol, operation), sides in results.items()
    }
    return found, 0, page.pairs(options, arguments, pairs)


def run_backlogs(options, arguments, servers):
    """Measures this build with many messages; returns the same."""
    results = measure_all(options, servers)
    missed = sum(row.is_met is False for rows in results.values() for row in rows)
    if missed:
        print(f"{missed} figures miss their targets", file=sys.stderr)
    found = {protocol: [vars(row) for row in rows] for protocol, rows in results.items()}
    return found, missed, page.backlog(options, arguments, results)


def main(arguments):
    # An end by a signal stops the servers and removes their data, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    options = parse_options(arguments)
    # Under target/, where builds are: that is a disk, while the system's temporary directory may be in memory.
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.target) as place:
        servers = Servers(options, Path(place))
        try:
            run = run_paired if options.paired else run_backlogs
            found, missed, block = run(options, arguments, servers)
        finally:
            servers.close()
    if options.json:
        options.json.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    if options.write:
        page.write(*block)
    return 1 if missed and options.strict else 0
