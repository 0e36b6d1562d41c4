"""Compares kew's Service Bus with RabbitMQ and the null durable stream, interleaved.

Every round measures every broker in every case for a short while, in a rotating order. The result is
the ratio within a round; its median and spread are printed. All of them keep their data on the same
filesystem, and one load generator drives all.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from rabbitmq import RabbitMq
from servers import add_common_options, finish_options, median, spread, start_kew, start_null

ENTITY_COUNT = 10_000


class Rival:
    """A server, and the load generator's options for it."""

    def __init__(self, name, server, address, arguments):
        self.name = name
        self.server = server
        self.arguments = ["--address", address, "--pid", str(server.process.pid), *arguments]


def start_bus(options, data, entities=0, topics=()):
    """Kew with the queues of the load generator, and with these topics."""
    config = data / "config.json"
    content = json.loads(run(options, ["config", "--entities", str(entities)]))
    content["UserConfig"]["Namespaces"][0].setdefault("Topics", []).extend(topics)
    config.write_text(json.dumps(content))
    more = ["--bus-listen", "127.0.0.1:0", "--import", str(config), *options.kew_option]
    return start_kew(options, data, more)


def bus_address(server):
    return server.facts["KEW_BUS_LISTEN"]


def start_all(options, data, servers):
    """The other brokers; the started ones are in `servers`, also if something fails."""
    servers.append(start_bus(options, data))
    rivals = [Rival("kew", servers[-1], bus_address(servers[-1]), [])]
    servers.append(start_null(options, data, ["--stream"]))
    rivals.append(Rival("null", servers[-1], servers[-1].address, ["--protocol", "null"]))
    if options.no_rabbitmq:
        return rivals
    servers.append(RabbitMq(options, data))
    rabbit = servers[-1]
    who = ["--user", "guest", "--password", "guest"]
    native = ["--protocol", "amqp091", *who]
    for kind in ["classic", "quorum"]:
        declare = ["declare", "--queue", kind, "--queue-type", kind]
        run(options, [*declare, "--address", rabbit.address, *native])
    # The plugin for AMQP 1.0 has addresses of its own, and never settles after the receiver.
    plugin = ["--auth", "plain", *who, "--settles", "first", "--queue", "/amq/queue/classic"]
    rivals.append(Rival("rabbit-1.0", rabbit, rabbit.address, plugin))
    for kind in ["classic", "quorum"]:
        name = f"rabbit-0.9.1-{kind}"
        rivals.append(Rival(name, rabbit, rabbit.address, [*native, "--queue", kind]))
    return rivals


def run(options, arguments, limit=180):
    """Runs the load generator; returns its output."""
    command = [str(options.bin / "kew-bus-load"), *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    if ran.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{ran.stdout}{ran.stderr}")
    return ran.stdout


def measure(options, rival, mode):
    return json.loads(run(options, [*mode, *rival.arguments]))


def cases(options):
    """The measured values, by name."""
    size = ["--size", str(options.size)]
    times = ["--seconds", str(options.seconds), "--warmup", str(options.warmup)]
    named = {
        f"cycle, {count} in flight": ["cycle", "--in-flight", str(count), *size, *times]
        for count in options.in_flight
    }
    named["latency"] = ["latency", "--count", str(options.latencies), *size]
    return named


def compare(options, rivals):
    results = {}
    for number in range(options.rounds):
        for at, (name, mode) in enumerate(cases(options).items()):
            turn = (number + at) % len(rivals)
            for rival in rivals[turn:] + rivals[:turn]:
                results.setdefault((name, rival.name), []).append(measure(options, rival, mode))
        print(f"round {number + 1} of {options.rounds} done", file=sys.stderr, flush=True)
    return results


def report(options, rivals, results):
    names = [rival.name for rival in rivals]
    for case in cases(options):
        print(f"\n{case}, {options.size} B")
        (report_latency if case == "latency" else report_cycle)(case, names, results)


def report_cycle(case, names, results):
    for name in names:
        runs = results[case, name]
        part = lambda *path: median(pick(run, path) for run in runs)
        print(
            f"  {name:20} {part('rate'):8.0f}/s"
            f"  CPU server {part('server', 'cpu_us'):6.1f} client {part('client', 'cpu_us'):5.1f} us"
            f"  settled p50 {part('settled', 'p50_us'):7.0f} p99 {part('settled', 'p99_us'):7.0f} us"
            f"  arrived p50 {part('arrived', 'p50_us'):7.0f} p99 {part('arrived', 'p99_us'):7.0f} us"
            f"  rss {part('server', 'rss_mib'):5.0f} MiB"
        )
    for other in names[1:]:
        pairs = list(zip(results[case, names[0]], results[case, other]))
        print(f"  kew / {other}: {spread(a['rate'] / b['rate'] for a, b in pairs)}")
        costs = (a["server"]["cpu_us"] / max(b["server"]["cpu_us"], 0.1) for a, b in pairs)
        print(f"    server CPU a message: {spread(costs)}")


def report_latency(case, names, results):
    for name in names:
        for what in ["settled", "arrived", "settled_to_arrived"]:
            p50 = [run[what]["p50_us"] for run in results[case, name]]
            p99 = [run[what]["p99_us"] for run in results[case, name]]
            print(f"  {name:20} {what:20} p50 us: {spread(p50)}   p99: {median(p99):.0f}")


def pick(run, path):
    for key in path:
        run = (run or {}).get(key, float("nan"))
    return run


def measure_many(options, data):
    """The cost of many idle connections, entities and sessions in kew."""
    for name, entities, mode in [
        ("connections", 0, ["idle-connections", "--count", str(options.connections)]),
        (
            "waiting receivers",
            0,
            ["idle-connections", "--state", "receiving", "--count", str(options.connections)],
        ),
        ("entities", ENTITY_COUNT, ["entities", "--count", str(ENTITY_COUNT)]),
        ("sessions", 0, ["sessions"]),
    ]:
        place = data / name.replace(" ", "-")
        place.mkdir()
        server = start_bus(options, place, entities)
        try:
            result = json.dumps(measure(options, Rival("kew", server, bus_address(server), []), mode))
        except SystemExit as failure:
            result = f"FAILED: {failure}"
        finally:
            server.stop()
        print(f"\n{name}: {result}", flush=True)


def parse_options(arguments):
    parser = argparse.ArgumentParser(prog="run bus", description=__doc__.partition("\n")[0])
    add_common_options(parser)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement (2)")
    parser.add_argument("--warmup", type=float, default=0.5, help="seconds before each (0.5)")
    parser.add_argument("--in-flight", type=int, nargs="+", default=[1, 100, 1000])
    parser.add_argument("--latencies", type=int, default=200, help="messages a round (200)")
    parser.add_argument("--connections", type=int, default=10_000, help="idle ones (10000)")
    parser.add_argument("--kew-option", action="append", default=[], help="another option of serve")
    parser.add_argument("--no-rabbitmq", action="store_true", help="leave RabbitMQ out")
    parser.add_argument("--no-many", action="store_true", help="no connections, entities, sessions")
    return finish_options(parser, parser.parse_args(arguments))


def main(arguments):
    options = parse_options(arguments)
    # Under target/, where builds are: that is a disk, while the system's temporary directory may be in memory.
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.target) as place:
        data = Path(place)
        servers = []
        try:
            rivals = start_all(options, data, servers)
            results = compare(options, rivals)
        finally:
            for server in servers:
                server.stop()
        report(options, rivals, results)
        if options.json:
            rows = [
                {"case": case, "server": name, "rounds": runs}
                for (case, name), runs in results.items()
            ]
            options.json.write_text(json.dumps(rows, indent=1) + "\n")
        if not options.no_many:
            measure_many(options, data)
