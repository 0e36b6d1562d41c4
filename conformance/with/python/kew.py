"""The server that the script has started, and Kew's own command line, which looks at it from outside."""

import json
import os
import subprocess
import time
from pathlib import Path

PATIENCE = 30
CA = str(Path(os.environ["KEW_TEST_TLS"]) / "ca.pem")


def run(*arguments):
    return subprocess.run(
        [os.environ["KEW_BINARY"], *arguments], check=True, capture_output=True, text=True, timeout=PATIENCE
    ).stdout


def count(service, name):
    """How many messages the server has there, with the locked ones."""
    counts = json.loads(run(service, "show", "--json", name))
    return counts.get("active_messages", counts.get("approximate_message_count"))


def eventually(condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, condition
        time.sleep(0.05)
