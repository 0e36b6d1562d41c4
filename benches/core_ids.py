"""The ids of a day, which a queue of Service Bus remembers to drop duplicates.

They are written by a simulated clock that begins a day ago, and their messages are purged.
"""

import core_offline as offline
from core_load import BusLoad
from core_report import MB, Row, number
from core_rows import memory_rows, restart_rows, turn_rows
from core_server import say

NAME = "day-of-ids"
DAY_SECONDS = 86_400
# A thousand a second.
COUNT = 86_400_000
# They are written 4,096 at a time. Fewer than this would all be about to be forgotten.
COUNT_MIN = 10_000


def day_of_ids_rows(options, servers):
    """A server that remembers the ids of a day, and has no messages but those that are put meanwhile."""
    kew = servers.add(f"bus-{NAME}", "bus")
    a_second = number(options.ids / DAY_SECONDS)
    rows = [Row("ids", f"{options.ids:,} in a day: {a_second} a second by a simulated clock")]
    say(f"bus: writing {options.ids:,} ids by a simulated clock")
    rows.append(offline.write(options, kew, "ids", options.ids))
    rows.append(Row("disk after the fill", f"{number(kew.disk_bytes() / MB)} MB"))
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
    rows += restart_rows(options, kew, load)
    send_again(load, options.ids)
    kew.end()
    return rows


def send_again(load, count):
    """The newest id, and one of half a day ago: both messages are accepted, and dropped as duplicates."""
    for at in [count - 1, count // 2]:
        # As `fill_directory` writes them.
        load.admin("send", "bench", "again", "--message-id", f"order {at:012}")
    load.check()
