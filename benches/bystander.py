"""Measures honest clients of kew alone, and beside clients that send the most expensive known input.

One client of each protocol does one thing after another: a cycle over AMQP, a receive over HTTP, a put to
Queue Storage. The slowest hundredth of its operations must stay below the bound beside every attack.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from compare_bus import bus_address, run, start_bus
from servers import add_program_options, finish_programs

PROTOCOLS = ["amqp", "http", "queue"]
ATTACKS = 10
BUSY = "busy"  # one connection that sends all it can; the others are attacks
# The rules of the topic of the attack `rules`. Each looks for 900 characters in a text that has nearly that.
RULES = 400
PATTERN = "'%" + "_" * 900 + "b%'"


def parse_options(arguments):
    parser = argparse.ArgumentParser(prog="run bystander", description=__doc__.partition("\n")[0])
    add_program_options(parser)
    parser.add_argument("--seconds", type=float, default=5.0, help="beside each attack (5)")
    parser.add_argument("--attackers", type=int, default=4, help="connections of each attack (4)")
    parser.add_argument("--deliveries", type=int, default=60_000, help="of each attacker (60000)")
    parser.add_argument("--attack", action="append", default=[], help="only this one, or several")
    parser.add_argument("--bound-ms", type=float, default=50.0, help="for p99, in milliseconds (50)")
    parser.add_argument("--busy-factor", type=float, default=2.0, help="for p99 beside a busy connection (2)")
    parser.add_argument("--kew-option", action="append", default=[], help="another option of serve")
    options = parser.parse_args(arguments)
    finish_programs(options)
    return options


def expensive_topic():
    """A topic whose rules take as long as rules can."""
    rules = [
        {
            "Name": f"r{number}",
            "Properties": {"FilterType": "Sql", "SqlFilter": {"SqlExpression": f"p LIKE {PATTERN}"}},
        }
        for number in range(RULES)
    ]
    return {"Name": "bench-rules", "Subscriptions": [{"Name": "s", "Rules": rules}]}


def measure(options, server):
    arguments = ["bystander", "--address", bus_address(server)]
    arguments += ["--queue", f"http://{server.address}/devstoreaccount1"]
    arguments += ["--seconds", str(options.seconds), "--attackers", str(options.attackers)]
    arguments += ["--deliveries", str(options.deliveries)]
    arguments += [part for attack in options.attack for part in ["--attack", attack]]
    # An operation that takes longer ends with a failure, and so does a server that no longer answers.
    limit = (ATTACKS + 1) * (options.seconds + 60)
    return json.loads(run(options, arguments, limit))["runs"]


def report(runs):
    print(f"{'attack':16}{'MiB sent':>9}" + "".join(f"{it + ' p50/p99/max ms':>28}" for it in PROTOCOLS))
    for row in runs:
        line = f"{row['attack']:16}{row['sent_bytes'] / 2**20:9.1f}"
        for protocol in PROTOCOLS:
            p50, p99, most = (row[protocol][key] / 1000 for key in ["p50_us", "p99_us", "max_us"])
            line += f"{p50:10.2f}{p99:9.2f}{most:9.2f}"
        print(line)


def too_slow(options, runs):
    """The values above the bound."""
    return [
        f"{protocol} beside '{row['attack']}': p99 is {row[protocol]['p99_us'] / 1000:.1f} ms"
        for row in runs
        for protocol in PROTOCOLS
        if row[protocol]["p99_us"] > options.bound_ms * 1000
    ]


def held_back(options, runs):
    """The values beside a busy connection that are too far above those of a client alone."""
    rows = {row["attack"]: row for row in runs}
    if BUSY not in rows:
        return []
    pairs = [(it, rows[BUSY][it]["p99_us"], rows["none"][it]["p99_us"]) for it in PROTOCOLS]
    return [
        f"{protocol} beside a busy connection: p99 is {busy / alone:.1f} times that alone"
        for protocol, busy, alone in pairs
        if busy > options.busy_factor * alone
    ]


def main(arguments):
    options = parse_options(arguments)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.target) as place:
        data = Path(place)
        server = start_bus(options, data, entities=2, topics=[expensive_topic()])
        try:
            runs = measure(options, server)
        finally:
            server.stop()
    report(runs)
    if options.json:
        options.json.write_text(json.dumps(runs, indent=1) + "\n")
    slow = too_slow(options, runs)
    for line in slow:
        print(f"above the bound of {options.bound_ms:.0f} ms: {line}", file=sys.stderr)
    held = held_back(options, runs)
    for line in held:
        print(f"above the bound of {options.busy_factor:.1f}: {line}", file=sys.stderr)
    return 1 if slow or held else 0
