"""The measured servers: how they are started, found and stopped; and statistics of the numbers."""

import os
import selectors
import signal
import statistics
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
READY_TIMEOUT_SECONDS = 60


class Server:
    """A process that is ready once it has printed a line with a certain text."""

    def __init__(self, name, command, ready, log_path, environment=None):
        self.name = name
        self.log_path = log_path
        self.facts = {}
        started = time.monotonic()
        with open(log_path, "wb") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
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


def start_kew(options, data, more=()):
    """Kew with its queue listener and `more` options."""
    command = [str(options.kew), "serve", "--data-dir", str(data / "kew")]
    command += ["--queue-listen", "127.0.0.1:0", *more]
    server = Server("kew", command, "KEW_READY=1", data / "kew.stderr")
    server.address = server.facts["KEW_QUEUE_LISTEN"].strip("'\"")
    return server


def start_null(options, data, more=()):
    command = [str(options.bin / "kew-null-server"), "--log", str(data / "null.log"), *more]
    server = Server("null", command, "NULL_READY=1", data / "null.stderr")
    server.address = server.facts["NULL_LISTEN"]
    return server


def add_program_options(parser):
    parser.add_argument("--kew", type=Path, help="the kew to measure (the release build)")
    parser.add_argument("--bin", type=Path, help="where the load generators are (the release build)")
    parser.add_argument("--json", type=Path, help="also write every measurement to this file")


def add_common_options(parser):
    parser.add_argument("--rounds", type=int, default=9, help="interleaved rounds (9)")
    parser.add_argument("--size", type=int, default=1024, help="bytes of text or body (1024)")
    add_program_options(parser)


def finish_programs(options):
    """Fills in the paths of the programs."""
    options.target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
    options.bin = options.bin or options.target / "release"
    options.kew = options.kew or options.bin / "kew"


def finish_options(parser, options):
    finish_programs(options)
    if options.rounds < 2:
        parser.error("--rounds must be at least 2, to have a spread")
    return options


def spread(values):
    """Median, quartiles and extremes as text."""
    values = sorted(values)
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{middle:.2f}  quartiles {low:.2f}..{high:.2f}  range {values[0]:.2f}..{values[-1]:.2f}"


def median(values):
    return statistics.median(list(values))
