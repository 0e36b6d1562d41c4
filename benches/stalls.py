"""How long the machine ran nothing, not even a thread that comes before all others.

A process for each core sleeps for two milliseconds at a time, with the scheduling class SCHED_FIFO. If it wakes up late, the
core did not run: the host of a virtual machine gave it to somebody else. No program on the machine can be quicker than
that, so a long turn of a partition counts only beside the longest stall.
"""

import json
import os
import subprocess
import sys
import time

SLEEP_SECONDS = 0.002
# Shorter ones are not worth a line.
STALL_SECONDS_MIN = 0.005
PRIORITY = 50


class Stalls:
    """Watches every core until it is stopped."""

    def __init__(self, place):
        self.paths, self.processes = [], []
        for core in sorted(os.sched_getaffinity(0)):
            self.paths.append(place / f"stalls-{core}")
            command = [sys.executable, __file__, str(core), str(self.paths[-1])]
            # It ends with its input, however this process ends.
            self.processes.append(subprocess.Popen(command, stdin=subprocess.PIPE))

    def since(self, began):
        """The stalls in seconds that ended after a reading of the monotonic clock; None if they cannot be seen."""
        if any(process.poll() is not None for process in self.processes):
            return None
        lines = [json.loads(line) for path in self.paths if path.exists() for line in path.read_text().splitlines()]
        return [took for ended, took in lines if ended >= began]

    def stop(self):
        for process in self.processes:
            process.stdin.close()
            process.wait()


def watch(core, path):
    """Writes a line for each stall: when it ended, and how long it was."""
    os.sched_setaffinity(0, {core})
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
    except PermissionError:
        # Without the right to that class it would see its own waits behind other programs.
        return
    os.set_blocking(sys.stdin.fileno(), False)
    with open(path, "w", buffering=1) as file:
        before = time.monotonic()
        while sys.stdin.buffer.raw.read(1) is None:
            time.sleep(SLEEP_SECONDS)
            now = time.monotonic()
            late, before = now - before - SLEEP_SECONDS, now
            if late >= STALL_SECONDS_MIN:
                print(json.dumps([now, late]), file=file)


if __name__ == "__main__":
    watch(int(sys.argv[1]), sys.argv[2])
