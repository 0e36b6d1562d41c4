"""Compares kew with the null durable server and with Azurite, interleaved. `bus`: see compare_bus.py;
`topics`: see compare_topics.py; `bystander`: see bystander.py; `worker`: see compare_worker.py; `core`: see core.py.

Every round measures every server in every case for a short while, in a rotating order, so that other
load of the machine affects all of them. The result is the ratio within a round; its median and spread
are printed. All servers keep their data on the same filesystem.
"""

import argparse
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import bystander
import compare_bus
import compare_topics
import compare_worker
import core
from servers import ROOT, Server, add_common_options, finish_options, median, spread
from servers import start_kew, start_null

ACCOUNT = "devstoreaccount1"
CASES = [("put", 1), ("put", 16), ("cycle", 1), ("cycle", 16)]


def start_azurite(_options, data):
    azurite = azurite_installed()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ["node", str(azurite / "dist/src/queue/main.js"), "--queuePort", str(port)]
    command += ["--location", str(data / "azurite"), "--skipApiVersionCheck", "--silent"]
    command += ["--disableTelemetry"]
    server = Server("azurite", command, "successfully listens", data / "azurite.stderr")
    server.address = f"127.0.0.1:{port}"
    return server


def azurite_installed():
    """The folder of its package, which is installed if need be."""
    if not shutil.which("npm"):
        raise SystemExit("npm is needed to install Azurite; leave it out with --no-azurite")
    command = [ROOT / "conformance" / "environment", "azurite"]
    place = subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True).stdout
    return Path(place.strip()) / "node_modules" / "azurite"


def load(options, server, operation, connections):
    """Runs the load generator once; returns its measurements as numbers."""
    queue = f"bench-{operation}-{connections}"
    command = [str(options.bin / "kew-queue-load"), "--endpoint"]
    command += [f"http://{server.address}/{ACCOUNT}", "--queue", queue, "--op"]
    measure = command + [operation, "--concurrency", str(connections)]
    measure += ["--size", str(options.size), "--pid", str(server.process.pid)]
    measure += ["--seconds", str(options.seconds), "--warmup", str(options.warmup)]
    limit = 60 + 4 * (options.seconds + options.warmup)
    run = subprocess.run(measure, capture_output=True, text=True, timeout=limit)
    if run.returncode != 0:
        raise SystemExit(f"{server.name}, {operation} c={connections}:\n{run.stdout}{run.stderr}")
    if operation == "put":
        # Every round begins with an empty queue, for every server.
        subprocess.run(command + ["clear"], check=True, timeout=limit, capture_output=True)
    return parse(run.stdout)


def parse(text):
    result = {}
    for line in text.splitlines():
        head, *pairs = line.split()
        fields = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
        if head == "total":
            result["cpu_us"] = float(fields["server_cpu_us"])
            result["rss_mib"] = float(fields["server_rss_mib"])
        elif head.startswith("op="):
            # The last kind of request of a cycle is the delete: as many cycles were completed.
            result["rate"] = float(fields["ops/s"])
            result.setdefault("latency", {})[head[3:]] = (
                int(fields["p50_us"]),
                int(fields["p99_us"]),
            )
    return result


def compare(options, servers):
    results = {}
    for number in range(options.rounds):
        for at, (operation, connections) in enumerate(CASES):
            turn = (number + at) % len(servers)
            for server in servers[turn:] + servers[:turn]:
                measured = load(options, server, operation, connections)
                key = (operation, connections, server.name)
                results.setdefault(key, []).append(measured)
        print(f"round {number + 1} of {options.rounds} done", file=sys.stderr, flush=True)
    return results


def report(options, servers, results):
    for operation, connections in CASES:
        unit = "cycles" if operation == "cycle" else "puts"
        print(f"\n{operation}, {connections} connection(s), {options.size} B, {unit}/s")
        for server in servers:
            runs = results[operation, connections, server.name]
            rate = median(run["rate"] for run in runs)
            cpu = median(run["cpu_us"] for run in runs)
            rss = median(run["rss_mib"] for run in runs)
            text = f"  {server.name:8} {rate:8.0f}/s  server CPU {cpu:7.1f} us a request"
            text += f"  rss {rss:6.1f} MiB "
            for kind in runs[0]["latency"]:
                p50 = median(run["latency"][kind][0] for run in runs)
                p99 = median(run["latency"][kind][1] for run in runs)
                text += f"  {kind} p50 {p50:.0f} p99 {p99:.0f} us"
            print(text)
        ours = results[operation, connections, servers[0].name]
        for server in servers[1:]:
            theirs = results[operation, connections, server.name]
            ratios = [a["rate"] / b["rate"] for a, b in zip(ours, theirs)]
            print(f"  {servers[0].name} / {server.name}: {spread(ratios)}")
            kind = "delete" if operation == "cycle" else "put"
            tails = [a["latency"][kind][1] / b["latency"][kind][1] for a, b in zip(ours, theirs)]
            print(f"    {kind} p99 over {server.name}'s: {spread(tails)}")


def measure_start(options, data):
    """Starts kew repeatedly on an empty directory; prints start-up time and idle memory."""
    times, memory = [], []
    for number in range(options.starts):
        place = data / f"start-{number}"
        place.mkdir()
        server = start_kew(options, place)
        time.sleep(0.2)
        times.append(server.start_seconds * 1000)
        memory.append(server.resident_mib())
        server.stop()
        shutil.rmtree(place)
    print(f"\nstart with an empty directory, ms until ready: {spread(times)}")
    print(f"idle resident memory, MiB: {spread(memory)}")


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add_common_options(parser)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement (1)")
    parser.add_argument("--warmup", type=float, default=0.2, help="seconds before each (0.2)")
    parser.add_argument("--starts", type=int, default=9, help="starts to time; 0: none (9)")
    parser.add_argument("--no-azurite", action="store_true", help="leave Azurite out")
    parser.add_argument("--no-kew", action="store_true", help="compare only the yardsticks")
    return finish_options(parser, parser.parse_args())


def main():
    if sys.argv[1:2] == ["bus"]:
        return compare_bus.main(sys.argv[2:])
    if sys.argv[1:2] == ["topics"]:
        return compare_topics.main(sys.argv[2:])
    if sys.argv[1:2] == ["bystander"]:
        return bystander.main(sys.argv[2:])
    if sys.argv[1:2] == ["worker"]:
        return compare_worker.main(sys.argv[2:])
    if sys.argv[1:2] == ["core"]:
        return core.main(sys.argv[2:])
    options = parse_options()
    starters = [] if options.no_kew else [start_kew]
    starters += [start_null] + ([] if options.no_azurite else [start_azurite])
    # Under target/, where builds are: that is a disk, while the system's temporary directory may be in memory.
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.target) as place:
        data = Path(place)
        servers = []
        try:
            for start in starters:
                servers.append(start(options, data))
            results = compare(options, servers)
        finally:
            for server in servers:
                server.stop()
        report(options, servers, results)
        if options.json:
            rows = [
                {"op": op, "connections": c, "server": name, "rounds": runs}
                for (op, c, name), runs in results.items()
            ]
            options.json.write_text(json.dumps(rows, indent=1) + "\n")
        if options.starts >= 2 and not options.no_kew:
            measure_start(options, data)


if __name__ == "__main__":
    sys.exit(main())
