"""Compares listeners of kew-worker with loops written by hand on the load generators' clients, interleaved.

Every round drains the same queue of each service with both, in a rotating order, and one ratio belongs to one
round. Then it measures how fast an idle listener wakes up, and how many requests an idle one costs.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from compare_bus import bus_address, start_bus
from servers import add_common_options, finish_options, median, spread

DRAINERS = ["listener", "loop"]


def parse_options(arguments):
    parser = argparse.ArgumentParser(prog="run worker", description=__doc__.partition("\n")[0])
    add_common_options(parser)
    parser.add_argument("--messages", type=int, default=10_000, help="of Queue Storage in each drain (10000)")
    parser.add_argument("--bus-messages", type=int, default=40_000, help="of Service Bus in each drain (40000)")
    parser.add_argument("--concurrency", type=int, default=16, help="requests in progress, and tasks (16)")
    parser.add_argument("--batch", type=int, default=32, help="messages of a receive (32)")
    parser.add_argument("--wake-ups", type=int, default=300, help="of each kind of push (300)")
    parser.add_argument("--tasks", type=int, default=100, help="of the idle listener and the naive loop (100)")
    parser.add_argument("--idle-seconds", type=int, default=20, help="of each idle measurement (20)")
    parser.add_argument("--ratio-bound", type=float, default=0.9, help="least median of listener / loop (0.9)")
    parser.add_argument("--bound-ms", type=float, default=20.0, help="for p99 of a wake-up, in milliseconds (20)")
    parser.add_argument("--idle-bound", type=float, default=50.0, help="least ratio of naive loop / back-off (50)")
    parser.add_argument("--kew-option", action="append", default=[], help="another option of serve")
    return finish_options(parser, parser.parse_args(arguments))


def measure(options, server, arguments):
    """Runs one measurement; returns its result."""
    command = [str(options.bin / "kew-worker-bench"), *arguments]
    command += ["--queue-address", server.address, "--bus-address", bus_address(server)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if ran.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{ran.stdout}{ran.stderr}")
    return json.loads(ran.stdout)


def compare_drains(options, server):
    counts = {"queue": options.messages, "bus": options.bus_messages}
    results = {}
    for number in range(options.rounds):
        for service, count in counts.items():
            turn = number % len(DRAINERS)
            for by in DRAINERS[turn:] + DRAINERS[:turn]:
                arguments = ["drain", "--service", service, "--by", by, "--count", str(count)]
                arguments += ["--size", str(options.size), "--batch", str(options.batch)]
                arguments += ["--concurrency", str(options.concurrency)]
                result = measure(options, server, arguments)
                results.setdefault((service, by), []).append(result)
        print(f"round {number + 1} of {options.rounds} done", file=sys.stderr, flush=True)
    return results


def report_drains(options, results):
    """Prints rates and ratios; returns those below the bound."""
    failures = []
    for service in ["queue", "bus"]:
        print(f"\ndrain, {service}, {options.size} B, {options.concurrency} x {options.batch} messages")
        for by in DRAINERS:
            runs = results[service, by]
            rate, cpu = (median(run[key] for run in runs) for key in ["rate", "client_cpu_us"])
            print(f"  {by:10} {rate:8.0f}/s  CPU client {cpu:6.1f} us a message")
        pairs = list(zip(results[service, "listener"], results[service, "loop"]))
        ratios = [a["rate"] / b["rate"] for a, b in pairs]
        print(f"  listener / loop: {spread(ratios)}")
        costs = [a["client_cpu_us"] / max(b["client_cpu_us"], 0.1) for a, b in pairs]
        print(f"    client CPU a message: {spread(costs)}")
        if median(ratios) < options.ratio_bound:
            failures.append(f"{service}: {median(ratios):.2f} of the loop's rate is below {options.ratio_bound}")
    return failures


def compare_wakes(options, server):
    """Prints the times of wake-ups; returns those above the bound."""
    failures, rows = [], {}
    print("\nwake-up of an idle listener, from the announcement until its handler begins, ms")
    for service in ["queue", "bus"]:
        for push in ["local", "bus"]:
            arguments = ["wake", "--service", service, "--push", push, "--count", str(options.wake_ups)]
            row = rows[f"{service}, {push}"] = measure(options, server, arguments)
            times = "  ".join(f"{it} {row[it + '_ms']:7.2f}" for it in ["p50", "p90", "p99", "max"])
            print(f"  {service:6} push {push:6} {times}  ({row['count']} wake-ups)", flush=True)
            if row["p99_ms"] > options.bound_ms:
                failures.append(f"wake-up of {service}, push {push}: p99 is {row['p99_ms']:.1f} ms, above {options.bound_ms:.0f}")
    return failures, rows


def compare_idle(options, server):
    """Prints the requests of an idle hour; returns what is above the bounds."""
    print(f"\nrequests of an empty queue in an hour, scaled from {options.idle_seconds} s, with {options.tasks} tasks at first")
    rows = {}
    for by in ["loop", "back-off", "push"]:
        arguments = ["idle", "--by", by, "--tasks", str(options.tasks), "--seconds", str(options.idle_seconds)]
        row = rows[by] = measure(options, server, arguments)
        print(
            f"  {by:9} {row['per_hour']:9.0f}  (until idle {row['until_idle']},"
            f" then {row['requests']} in {row['seconds']:.1f} s)",
            flush=True,
        )
    ratio = rows["loop"]["per_hour"] / max(rows["back-off"]["per_hour"], 1)
    print(f"  loop / back-off: {ratio:.1f}")
    failures = []
    if ratio < options.idle_bound:
        failures.append(f"back-off: 1/{ratio:.1f} of the naive loop's requests, above 1/{options.idle_bound:.0f}")
    if rows["push"]["requests"] > 0:
        failures.append(f"push: {rows['push']['requests']} requests while idle, above 0")
    return failures, rows


def main(arguments):
    options = parse_options(arguments)
    # Under target/, where builds are: that is a disk, while the system's temporary directory may be in memory.
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.target) as place:
        server = start_bus(options, Path(place))
        try:
            results = compare_drains(options, server)
            failures = report_drains(options, results)
            slow, wakes = compare_wakes(options, server)
            costly, idle = compare_idle(options, server)
        finally:
            server.stop()
    failures += slow + costly
    if options.json:
        rows = [{"service": service, "by": by, "rounds": runs} for (service, by), runs in results.items()]
        options.json.write_text(json.dumps({"drain": rows, "wake": wakes, "idle": idle}, indent=1) + "\n")
    for failure in failures:
        print(f"out of bounds: {failure}", file=sys.stderr)
    return 1 if failures else 0
