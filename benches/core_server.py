"""Each kew that is measured, killed and started again, and what it reports about itself."""

import http.client
import os
import re
import shutil
import signal
import sys
import time

from servers import start_kew
from stalls import Stalls

SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class Kew:
    """A kew and its data directory, which outlives the process."""

    def __init__(self, options, place, protocol):
        self.options = options
        self.place = place
        self.more = ["--bus-listen", "127.0.0.1:0" if protocol == "bus" else "none", *options.kew_option]
        self.server = None
        place.mkdir()

    def start(self):
        """Starts it, and notes when, and the time until it has answered the first request."""
        self.began = time.monotonic()
        self.server = start_kew(self.options, self.place, self.more)
        self.get("/health/ready")
        self.ready_seconds = time.monotonic() - self.began

    def kill(self):
        self.server.stop(signal.SIGKILL)

    def stop(self):
        if self.server:
            self.server.stop()

    def end(self):
        """Stops it for good, and removes its data: a hundred million messages take 28 GB."""
        self.stop()
        shutil.rmtree(self.place)

    @property
    def data_dir(self):
        return self.place / "kew"

    @property
    def pid(self):
        return self.server.process.pid

    def get(self, path):
        """The body of an answer."""
        connection = http.client.HTTPConnection(self.server.address, timeout=60)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read().decode()
        finally:
            connection.close()
        if answer.status != 200:
            raise SystemExit(f"{path}: {answer.status}\n{body}")
        return body

    def metrics(self):
        """Every sample: name, labels, value."""
        found = (SAMPLE.match(line) for line in self.get("/metrics").splitlines())
        return [(it[1], dict(LABEL.findall(it[2] or "")), float(it[3])) for it in found if it]

    def metric(self, name, **labels):
        """The sum of the samples with this name and these labels; None if there is none."""
        return total(self.metrics(), name, **labels)

    def memory(self):
        """Resident bytes: all, anonymous, and the most since the start."""
        with open(f"/proc/{self.pid}/status") as status:
            fields = dict(line.split(":", 1) for line in status)
        return [int(fields[name].split()[0]) * 1024 for name in ["VmRSS", "RssAnon", "VmHWM"]]

    def cpu_seconds(self):
        with open(f"/proc/{self.pid}/stat") as stat:
            fields = stat.read().rsplit(") ", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND

    def wait_until_idle(self, seconds=3):
        """Waits until it has used almost no processor time for so many seconds, or for half a minute."""
        quiet, used = 0, self.cpu_seconds()
        for _ in range(30):
            time.sleep(1)
            before, used = used, self.cpu_seconds()
            quiet = quiet + 1 if used - before <= 0.02 else 0
            if quiet == seconds:
                return

    def files(self):
        """The files of the data directory. Some may go away meanwhile."""
        for folder, _, names in os.walk(self.data_dir):
            yield from (os.path.join(folder, name) for name in names)

    def disk_bytes(self):
        """What the data directory takes on the disk."""
        total = 0
        for path in self.files():
            try:
                total += os.stat(path, follow_symlinks=False).st_blocks * 512
            except FileNotFoundError:
                pass
        return total

    def drop_caches(self):
        """Makes the next start read the data directory from the disk. It needs no rights."""
        for path in self.files():
            if os.path.isfile(path):
                drop_cache(path)


def drop_cache(path):
    """Makes the next reader of a file read it from the disk, unless a process runs it as its program."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def total(samples, name, **labels):
    """The sum of the samples with this name and these labels; None if there is none."""
    values = [value for other, has, value in samples if other == name and labels.items() <= has.items()]
    return sum(values) if values else None


class Servers:
    """Starts servers in directories of their own, and stops them at the end, however it comes."""

    def __init__(self, options, data):
        self.options, self.data, self.started = options, data, []
        # They take a hundredth of each core, which two builds would notice.
        self.stalls = None if options.paired else Stalls(data)

    def add(self, name, protocol, options=None):
        """One that is not started yet, and is stopped at the end also if it does not become ready."""
        kew = Kew(options or self.options, self.data / name, protocol)
        self.started.append(kew)
        return kew

    def start(self, name, protocol, options=None):
        kew = self.add(name, protocol, options)
        kew.start()
        return kew

    def stop(self):
        for kew in self.started:
            kew.stop()

    def close(self):
        self.stop()
        if self.stalls:
            self.stalls.stop()


def say(text):
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)
