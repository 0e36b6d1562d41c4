"""The load on one kew, by one protocol. Both protocols have the same methods, and both count what must be there.

A wrong answer, or a wrong count of messages, ends the run.
"""

import contextlib
import json
import subprocess
import time

from compare_bus import bus_address
from core_server import say

# Most loads have messages with this many bytes of body.
SIZE = 64
# The plan counts so many bytes beside each body as live: framing, and the event.
FRAMING = 48
# A small backlog, beside which a large one and another build are measured.
SMALL = 1_000
OPERATIONS = ["put", "cycle"]
# The length of each program of a long run. The load generator of Service Bus takes at most 100.
CHURN_SECONDS = 10


class Figures:
    """What one load measured: operations a second, latencies in ms, and the server's CPU for each operation in us."""

    def __init__(self, count, rate, p999_ms, longest_ms, cpu_us):
        self.count, self.rate = count, rate
        self.p999_ms, self.longest_ms = p999_ms, longest_ms
        self.cpu_us = cpu_us


class Load:
    """What both protocols share."""

    def __init__(self, options, kew, size=SIZE):
        self.options = options
        self.kew = kew
        # Bytes of each body.
        self.size = size
        # How many messages the queue has.
        self.count = 0

    def run(self, command, limit):
        """Runs a program that must succeed; returns its output."""
        ran = subprocess.run(command, capture_output=True, text=True, timeout=limit)
        if ran.returncode != 0:
            raise SystemExit(f"{' '.join(command)}\n{ran.stdout}{ran.stderr}")
        return ran.stdout

    def check(self, extra=0):
        """Compares the server's count with ours. `extra` messages may be there that were not acknowledged."""
        found = self.messages()
        if found is None or not self.count <= found <= self.count + extra:
            raise SystemExit(f"{self.kew.place.name}: {found} messages are there, and not {self.count} (+{extra})")
        self.count = int(found)

    def messages(self):
        return self.kew.metric(self.MESSAGES)

    def limit(self, count):
        """Seconds after which a program that handles so many messages has failed."""
        return 120 + count / 500

    def reset(self, count):
        """Brings the queue back to so many messages if it has grown to twice as many, and lets the server settle."""
        if self.count > 2 * count:
            self.purge()
            self.fill(count)
            self.kew.wait_until_idle(1)

    def churn(self, cycles):
        """Cycles, until there were so many at least; returns how many there were."""
        done = 0
        while done < cycles:
            more = self.cycle(CHURN_SECONDS, self.CONCURRENCY).count
            if more == 0:
                raise SystemExit(f"{self.kew.place.name}: no cycle ended within {CHURN_SECONDS} s")
            done += more
        return done

    def under_load(self, command, seconds):
        """Kills the server while a program runs, and returns what the program prints."""
        with contextlib.ExitStack() as stack:
            pipe = subprocess.PIPE
            loading = stack.enter_context(subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True))
            stack.callback(loading.kill)
            time.sleep(seconds)
            if loading.poll() is not None:
                raise SystemExit(f"{' '.join(command)} ended before the kill:\n{loading.communicate()}")
            self.kew.kill()
            output, _ = loading.communicate(timeout=60)
        return output


class QueueLoad(Load):
    """Queue Storage."""

    MESSAGES = "kew_messages"
    FILLERS, CONCURRENCY = 32, 16

    def command(self, operation, concurrency, more=()):
        command = [str(self.options.bin / "kew-queue-load"), "--op", operation, "--queue", "bench"]
        command += ["--endpoint", f"http://{self.kew.server.address}/devstoreaccount1"]
        command += ["--concurrency", str(concurrency), "--size", str(self.size), "--pid", str(self.kew.pid)]
        return [*command, *(str(it) for it in more)]

    def parse(self, output):
        """The fields of each line, by operation."""
        parsed = {}
        for line in output.splitlines():
            head, *pairs = line.split()
            fields = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
            if head == "total" or head.startswith("op="):
                parsed[head.removeprefix("op=")] = fields
        return parsed

    def figures(self, parsed, operation):
        """Of one operation. CPU of a cycle is that of its three requests."""
        line, total = parsed[operation], parsed["total"]
        requests = 3 if operation == "cycle" else 1
        p999_ms, longest_ms = int(line["p999_us"]) / 1000, int(line["max_us"]) / 1000
        cpu_us = float(total["server_cpu_us"]) * requests
        return Figures(int(line["ops"]), float(line["ops/s"]), p999_ms, longest_ms, cpu_us)

    def measure(self, operation, concurrency, more, limit):
        parsed = self.parse(self.run(self.command(operation, concurrency, more), limit))
        return self.figures(parsed, operation)

    def fill(self, count):
        limit = self.limit(count)
        figures = self.measure("put", self.FILLERS, ["--count", count, "--seconds", limit], limit + 60)
        if figures.count != count:
            raise SystemExit(f"{figures.count} puts were accepted, and not {count}")
        self.count += count
        self.check()
        return figures

    def put(self, seconds, concurrency):
        figures = self.measure("put", concurrency, ["--seconds", seconds], self.limit(0))
        self.count += figures.count
        self.check()
        return figures

    def cycle(self, seconds, concurrency):
        figures = self.measure("cycle", concurrency, ["--seconds", seconds], self.limit(0))
        self.check()
        return figures

    def kill(self, seconds):
        """Kills the server under puts; returns after the load has ended."""
        output = self.under_load(self.command("put", self.CONCURRENCY, ["--seconds", 60]), seconds)
        self.count += int(self.parse(output)["put"]["ops"])
        return self.CONCURRENCY

    def kill_cycles(self, seconds):
        """The same under cycles in an empty queue."""
        self.under_load(self.command("cycle", self.CONCURRENCY, ["--seconds", 60]), seconds)
        return self.CONCURRENCY

    def purge(self):
        self.run(self.command("clear", 1), self.limit(self.count))
        self.count = 0
        self.check()

    def drain(self, keep_every):
        """Deletes all but some."""
        # The kept messages are hidden meanwhile. They must not come back before the drain ends.
        more = ["--keep-every", keep_every, "--batch", 32, "--visibility", 604_800]
        more += ["--seconds", self.limit(self.count)]
        command = self.command("drain", self.CONCURRENCY, more)
        parsed = self.parse(self.run(command, self.limit(self.count) + 60))
        received, deleted = int(parsed["get"]["msgs"]), int(parsed["delete"]["ops"])
        if received != self.count:
            raise SystemExit(f"{received} messages were received, and not {self.count}")
        self.count -= deleted
        self.check()

    def live_bytes(self):
        return self.count * (self.size + FRAMING)


class BusLoad(Load):
    """Service Bus. Messages have numbers in their order, so each receive shows what is lost, doubled or misplaced."""

    MESSAGES = "kew_bus_messages"
    FILLERS, CONCURRENCY = 8, 100

    def __init__(self, options, kew, create=(), fill=(), size=SIZE):
        super().__init__(options, kew, size)
        self.fill_options = list(fill)
        # The numbers of the oldest message, and of the next one to send.
        self.oldest = self.next = 0
        # Without options of `create`, the queue is there.
        if create is not None:
            # Above what any backlog here takes; the default of 1 GiB is full with 4.5 million messages.
            self.admin("create", "bench", "--max-size", "1048576MiB", *create)

    def admin(self, *arguments, limit=60):
        text = self.kew.server.facts["KEW_BUS_CONNECTION_STRING"].strip("'\"")
        self.run([str(self.options.kew), "bus", *arguments, "--connection-string", text], limit)

    def command(self, mode, more=()):
        command = [str(self.options.bin / "kew-bus-load"), mode, "--queue", "bench"]
        command += ["--address", bus_address(self.kew.server), "--pid", str(self.kew.pid)]
        return [*command, *(str(it) for it in more)]

    def measure(self, mode, more, limit, latency):
        result = json.loads(self.run(self.command(mode, more), limit))
        spread, server = result[latency], result["server"]
        p999_ms, longest_ms = spread["p999_us"] / 1000, spread["max_us"] / 1000
        return Figures(result["messages"], result["rate"], p999_ms, longest_ms, server["cpu_us"])

    def send(self, more, limit):
        more = ["--first", self.next, "--size", self.size, *more, *self.fill_options]
        figures = self.measure("fill", more, limit, "settled")
        self.next += figures.count
        self.count += figures.count
        self.check()
        return figures

    def fill(self, count):
        more = ["--count", count, "--batch", 100, "--in-flight", self.FILLERS]
        figures = self.send(more, self.limit(count))
        if figures.count != count:
            raise SystemExit(f"{figures.count} messages were accepted, and not {count}")
        return figures

    def put(self, seconds, concurrency):
        return self.send(["--seconds", seconds, "--in-flight", concurrency], self.limit(0))

    def cycle(self, seconds, concurrency):
        more = ["--first", self.next, "--oldest", self.oldest, "--size", self.size]
        more += ["--seconds", seconds, "--in-flight", concurrency]
        figures = self.measure("backlog-cycle", more, self.limit(0), "cycle")
        self.next += figures.count
        self.oldest += figures.count
        self.check()
        return figures

    def kill(self, seconds):
        """Kills the server under puts; returns after the load has ended."""
        more = ["--first", self.next, "--size", self.size, "--in-flight", self.CONCURRENCY, "--seconds", 60]
        command = self.command("fill", [*more, *self.fill_options, "--until-lost"])
        self.count += json.loads(self.under_load(command, seconds))["messages"]
        return self.CONCURRENCY

    def kill_cycles(self, seconds):
        """The same under cycles in an empty queue."""
        more = ["--in-flight", self.CONCURRENCY, "--size", self.size, "--seconds", 60]
        self.under_load(self.command("cycle", more), seconds)
        # The cycle stops sending while the queue holds ten times as many.
        return 10 * self.CONCURRENCY

    def check(self, extra=0):
        super().check(extra)
        # After a kill, messages are there whose answers were lost.
        self.next = self.oldest + self.count

    def purge(self):
        self.admin("purge", "bench", "--yes", "--with-locked", limit=self.limit(self.count))
        self.oldest, self.count = self.next, 0
        self.check()

    def drain(self, keep_every):
        """Completes all but some, which are deferred."""
        more = ["--oldest", self.oldest, "--count", self.count, "--keep-every", keep_every]
        drained = json.loads(self.run(self.command("drain", more), self.limit(self.count)))
        self.oldest, self.count = self.next, drained["kept"]
        Load.check(self)

    def live_bytes(self):
        # The size counts 128 for each message beside its bytes.
        return self.kew.metric("kew_bus_queue_size_bytes") + self.count * (FRAMING - 128)


LOADS = {"queue": QueueLoad, "bus": BusLoad}


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
