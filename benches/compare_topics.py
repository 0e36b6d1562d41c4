"""Compares topics of kew with exchanges of RabbitMQ: publish, receive every copy under a lock, complete it.

A case is how many subscriptions there are, and how many of them get each message. If not all do, kew's have
a correlation filter on a property, and RabbitMQ's queues are bound to a topic exchange by a routing key and
to a headers exchange by a header. Every round measures every server in a rotating order. The result is the
ratio within a round, of completed copies a second and of the server's CPU for each.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from compare_bus import Rival, bus_address, measure, run
from rabbitmq import RabbitMq
from servers import add_common_options, finish_options, median, spread, start_kew

EXCHANGES = ["topic", "headers"]


def case_of(text):
    """Subscriptions, and how many of them match."""
    subscriptions, _, matching = text.partition(":")
    try:
        case = int(subscriptions), int(matching or subscriptions)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: expected SUBSCRIPTIONS or SUBSCRIPTIONS:MATCHING")
    if not 1 <= case[1] <= case[0] <= 2000:
        raise argparse.ArgumentTypeError(f"{text!r}: expected 1 to 2000, and no more that match")
    return case


def start_topic(options, data, case):
    """Kew with the topic of a case."""
    place = data / "kew-{}-{}".format(*case)
    place.mkdir()
    config = place / "config.json"
    config.write_text(run(options, ["config", *arguments_of(case)]))
    return start_kew(options, place, ["--bus-listen", "127.0.0.1:0", "--import", str(config), *options.kew_option])


def arguments_of(case):
    return ["--subscriptions", str(case[0]), "--matching", str(case[1])]


def rivals_of(options, case, kew, rabbit):
    rivals = [Rival("kew", kew, bus_address(kew), ["--topic", "bench-topic"])]
    if rabbit is None:
        return rivals
    native = ["--protocol", "amqp091", "--user", "guest", "--password", "guest"]
    for kind in EXCHANGES:
        topic = "{}-{}-{}".format(kind, *case)
        declare = ["declare-exchange", "--topic", topic, "--exchange-type", kind, *arguments_of(case)]
        run(options, [*declare, "--address", rabbit.address, *native])
        name = f"rabbit-{kind}"
        rivals.append(Rival(name, rabbit, rabbit.address, [*native, "--topic", topic]))
    return rivals


def compare(options, case, rivals):
    mode = ["fan-out", "--matching", str(case[1]), "--in-flight", str(options.in_flight)]
    mode += ["--size", str(options.size), "--seconds", str(options.seconds), "--warmup", str(options.warmup)]
    results = {rival.name: [] for rival in rivals}
    for number in range(options.rounds):
        turn = number % len(rivals)
        for rival in rivals[turn:] + rivals[:turn]:
            results[rival.name].append(measure(options, rival, mode))
    return results


def report(options, case, results):
    print(f"\n{case[0]} subscriptions, {case[1]} get each message, {options.size} B", flush=True)
    for name, runs in results.items():
        rate, cpu = (median(runs_of) for runs_of in zip(*((run["rate"], run["server"]["cpu_us"]) for run in runs)))
        print(f"  {name:15} {rate:8.0f} copies/s  server CPU a copy {cpu:6.1f} us")
    ours = results["kew"]
    for name in [name for name in results if name != "kew"]:
        pairs = list(zip(ours, results[name]))
        print(f"  kew / {name}: {spread(a['rate'] / b['rate'] for a, b in pairs)}")
        costs = (a["server"]["cpu_us"] / max(b["server"]["cpu_us"], 0.1) for a, b in pairs)
        print(f"    server CPU a copy: {spread(costs)}", flush=True)


def parse_options(arguments):
    parser = argparse.ArgumentParser(prog="run topics", description=__doc__.partition("\n")[0])
    add_common_options(parser)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement (2)")
    parser.add_argument("--warmup", type=float, default=0.5, help="seconds before each (0.5)")
    parser.add_argument("--in-flight", type=int, default=100, help="publishes that may wait (100)")
    parser.add_argument(
        "--case",
        type=case_of,
        action="append",
        metavar="SUBSCRIPTIONS[:MATCHING]",
        help="may be given several times (1, 10, 10:1, 64, 64:6, 64:1)",
    )
    parser.add_argument("--kew-option", action="append", default=[], help="another option of serve")
    parser.add_argument("--no-rabbitmq", action="store_true", help="leave RabbitMQ out")
    return finish_options(parser, parser.parse_args(arguments))


def main(arguments):
    options = parse_options(arguments)
    # Under target/, where builds are: that is a disk, while the system's temporary directory may be in memory.
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.target) as place:
        data = Path(place)
        rabbit = None if options.no_rabbitmq else RabbitMq(options, data)
        rows = []
        try:
            for case in options.case or [case_of(it) for it in ["1", "10", "10:1", "64", "64:6", "64:1"]]:
                kew = start_topic(options, data, case)
                try:
                    results = compare(options, case, rivals_of(options, case, kew, rabbit))
                finally:
                    kew.stop()
                report(options, case, results)
                rows += [
                    {"subscriptions": case[0], "matching": case[1], "server": name, "rounds": runs}
                    for name, runs in results.items()
                ]
        finally:
            if rabbit:
                rabbit.stop()
        if options.json:
            options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
