"""Data directories that a program writes without a server, many times as fast as clients could.

The example `fill_directory` of `kew-broker` carries out commands in its own process. A server is then started on the
directory.
"""

import re
import subprocess
import time

from core_report import MB, Row, number


def program(options):
    return options.bin / "examples" / "fill_directory"


def missing_program(options):
    """What to do if the program is not there; None if it is."""
    path = program(options)
    if path.exists():
        return None
    return f"{path} does not exist: run cargo build --release --locked -p kew-broker --example fill_directory"


def write(options, kew, what, count):
    """Writes so many `messages` or `ids`; returns a row about it."""
    began = time.monotonic()
    command = [str(program(options)), str(kew.data_dir), what, str(count)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600 + count / 5_000)
    if ran.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{ran.stdout}{ran.stderr}")
    rate = number(count / (time.monotonic() - began))
    peak_mb = int(re.search(r"^VmHWM:\s*(\d+)", ran.stdout, re.MULTILINE)[1]) * 1024 / MB
    return Row(f"{what} a second as they were written", f"{rate}; the program had {number(peak_mb)} MB at most")
