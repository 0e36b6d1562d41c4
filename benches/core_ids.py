"""The ids of a day, which a queue of Service Bus remembers to drop duplicates. A simulated clock writes them.

The example `fill_directory` of `kew-broker` sends them to a partition in its own process, whose clock begins a day ago,
and purges the messages. A server is then started on that directory.
"""

import re
import subprocess
import time

from core_load import BusLoad
from core_report import MB, Row, number
from core_rows import memory_rows, restart_rows, turn_rows
from core_server import say

NAME = "day-of-ids"
DAY_SECONDS = 86_400
# A thousand a second.
COUNT = 86_400_000


def program(options):
    return options.bin / "examples" / "fill_directory"


def missing_program(options):
    """What to do if the program is not there; None if it is."""
    path = program(options)
    if path.exists():
        return None
    return f"{path} does not exist: run cargo build --release --locked -p kew-broker --example fill_directory"


def day_of_ids_rows(options, servers):
    """A server that remembers the ids of a day, and has no messages but those that are put meanwhile."""
    kew = servers.add(f"bus-{NAME}", "bus")
    rows = fill(options, kew)
    kew.start()
    rows.append(Row("ready, first start", f"{number(1000 * kew.ready_seconds)} ms"))
    load = BusLoad(options, kew, create=None)
    load.check()
    send_again(load, options.ids)
    put = load.put(options.seconds, options.concurrency or 4)
    rows.append(Row("puts a second", number(put.rate)))
    rows.append(Row("put p99.9", f"{number(put.p999_ms)} ms"))
    rows += memory_rows(kew, options.ids, factor=2)
    rows += turn_rows(kew, servers.stalls, "start and puts")
    rows += restart_rows(options, kew, load, options.ids)
    send_again(load, options.ids)
    kew.end()
    return rows


def fill(options, kew):
    """Writes the data directory, as fast as one process can."""
    count = options.ids
    say(f"bus: writing {count:,} ids by a simulated clock")
    began = time.monotonic()
    command = [str(program(options)), str(kew.data_dir), "ids", str(count)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600 + count / 5_000)
    if ran.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{ran.stdout}{ran.stderr}")
    took = time.monotonic() - began
    peak_mb = int(re.search(r"^VmHWM:\s*(\d+)", ran.stdout, re.MULTILINE)[1]) * 1024 / MB
    rate = f"{number(count / took)}; the program had {number(peak_mb)} MB at most"
    return [
        Row("ids", f"{count:,} in a day: {number(count / DAY_SECONDS)} a second by a simulated clock"),
        Row("ids a second as they were written", rate),
        Row("disk after the fill", f"{number(kew.disk_bytes() / MB)} MB"),
    ]


def send_again(load, count):
    """The newest id, and one of half a day ago: both messages are accepted, and dropped as duplicates."""
    for at in [count - 1, count // 2]:
        # As `fill_directory` writes them.
        load.admin("send", "bench", "again", "--message-id", f"order {at:012}")
    load.check()
