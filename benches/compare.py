"""Compares kew with the null durable server and with Azurite, interleaved.

Every round measures every server in every case for a short while, in an order that rotates, so
that whatever else the machine does falls on all of them. What counts is the ratio within a round;
its median and spread are printed. All servers keep their data on the same filesystem.
"""

import argparse
import contextlib
import json
import os
import selectors
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
AZURITE_VERSION = "3.37.0"
PEERS = ROOT / "benches" / "peers"
AZURITE = PEERS / "node_modules" / "azurite"
ACCOUNT = "devstoreaccount1"
CASES = [("put", 1), ("put", 16), ("cycle", 1), ("cycle", 16)]
READY_TIMEOUT_SECONDS = 60


class Server:
    """A process that is ready once it has printed a line with a certain text."""

    def __init__(self, name, command, ready, log_path):
        self.name = name
        self.log_path = log_path
        self.facts = {}
        started = time.monotonic()
        with open(log_path, "wb") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log
            )
        try:
            self._wait_until(ready, started)
        except BaseException:
            self.stop(signal.SIGKILL)
            raise
        self.start_seconds = time.monotonic() - started

    def _wait_until(self, ready, started):
        output = self.process.stdout
        buffered = b""
        with selectors.DefaultSelector() as selector:
            selector.register(output, selectors.EVENT_READ)
            while True:
                left = started + READY_TIMEOUT_SECONDS - time.monotonic()
                if left <= 0 or not selector.select(left):
                    raise SystemExit(f"{self.name} was not ready in {READY_TIMEOUT_SECONDS} s")
                chunk = os.read(output.fileno(), 65536)
                if not chunk:
                    log = self.log_path.read_text(errors="replace")
                    raise SystemExit(f"{self.name} ended before it was ready:\n{log}")
                buffered += chunk
                *lines, buffered = buffered.split(b"\n")
                for line in lines:
                    text = line.decode()
                    key, _, value = text.partition("=")
                    self.facts[key] = value
                    if ready in text:
                        return

    def resident_mib(self):
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        return float("nan")

    def stop(self, how=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


def start_kew(options, data):
    command = [str(options.kew), "serve", "--data-dir", str(data / "kew")]
    command += ["--queue-listen", "127.0.0.1:0"]
    server = Server("kew", command, "KEW_READY=1", data / "kew.stderr")
    server.address = server.facts["KEW_QUEUE_LISTEN"].strip("'\"")
    return server


def start_null(options, data):
    command = [str(options.bin / "kew-null-server"), "--log", str(data / "null.log")]
    server = Server("null", command, "NULL_READY=1", data / "null.stderr")
    server.address = server.facts["NULL_LISTEN"]
    return server


def start_azurite(_options, data):
    install_azurite()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ["node", str(AZURITE / "dist/src/queue/main.js"), "--queuePort", str(port)]
    command += ["--location", str(data / "azurite"), "--skipApiVersionCheck", "--silent"]
    command += ["--disableTelemetry"]
    server = Server("azurite", command, "successfully listens", data / "azurite.stderr")
    server.address = f"127.0.0.1:{port}"
    return server


def install_azurite():
    with contextlib.suppress(OSError, ValueError):
        if json.loads((AZURITE / "package.json").read_text())["version"] == AZURITE_VERSION:
            return
    if not shutil.which("npm"):
        raise SystemExit("npm is needed to install Azurite; leave it out with --no-azurite")
    PEERS.mkdir(exist_ok=True)
    print(f"installing azurite {AZURITE_VERSION} into {PEERS.relative_to(ROOT)}", flush=True)
    command = ["npm", "install", "--prefix", str(PEERS), "--no-save", "--no-audit", "--no-fund"]
    command += ["--ignore-scripts", "--loglevel=error", f"azurite@{AZURITE_VERSION}"]
    subprocess.run(command, check=True, cwd=PEERS, stdin=subprocess.DEVNULL)


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


def spread(values):
    """Median, quartiles and extremes as text."""
    values = sorted(values)
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{middle:.2f}  quartiles {low:.2f}..{high:.2f}  range {values[0]:.2f}..{values[-1]:.2f}"


def median(values):
    return statistics.median(list(values))


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
    """Starts kew on an empty directory again and again; prints start-up time and idle memory."""
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
    parser.add_argument("--rounds", type=int, default=9, help="interleaved rounds (9)")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement (1)")
    parser.add_argument("--warmup", type=float, default=0.2, help="seconds before each (0.2)")
    parser.add_argument("--size", type=int, default=1024, help="characters of text (1024)")
    parser.add_argument("--starts", type=int, default=9, help="starts to time; 0: none (9)")
    parser.add_argument("--no-azurite", action="store_true", help="leave Azurite out")
    parser.add_argument("--no-kew", action="store_true", help="compare only the yardsticks")
    parser.add_argument("--kew", type=Path, help="the kew to measure (the release build)")
    parser.add_argument("--json", type=Path, help="also write every measurement to this file")
    options = parser.parse_args()
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
    options.target = target
    options.bin = target / "release"
    options.kew = options.kew or options.bin / "kew"
    if options.rounds < 2:
        parser.error("--rounds must be at least 2, to have a spread")
    return options


def main():
    options = parse_options()
    starters = [] if options.no_kew else [start_kew]
    starters += [start_null] + ([] if options.no_azurite else [start_azurite])
    # Under target/, where builds are: a disk, while the system's temporary directory may be memory.
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
    main()
