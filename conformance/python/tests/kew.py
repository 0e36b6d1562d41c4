"""Runs kew as a process on a free port."""

import os
import pathlib
import selectors
import signal
import subprocess
import time

# The folder that `kew tls init` made.
TLS = pathlib.Path(os.environ["KEW_TEST_TLS"])
# It keeps its log, which the suite checks at its end.
BINARY = os.environ["KEW_BINARY"]
LOGS = pathlib.Path(os.environ["KEW_SERVER_LOGS"])
PATIENCE_SECONDS = 30

# The SDK's options for scenarios about the server: the test must see answers that a retry would hide. One
# scenario uses the SDK's defaults.
NO_RETRIES = {"retry_total": 0}


class Server:
    """A server over one data directory, which can be stopped, killed and started again."""

    def __init__(self, data_dir, listen="127.0.0.1:0", options=()):
        self.data_dir = data_dir
        self.options = options
        self.listen = listen
        self.process = None
        self.facts = {}

    def start(self):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("KEW_")}
        command = [BINARY, "serve", "--data-dir", str(self.data_dir)]
        command += ["--queue-listen", self.listen]
        command += ["--tls-cert", str(TLS / "server.pem")]
        command += ["--tls-key", str(TLS / "server.key")]
        command += self.options
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env=environment,
        )
        self.facts = self._read_facts()
        return self

    def _read_facts(self):
        facts, buffered = {}, b""
        output = self.process.stdout
        deadline = time.monotonic() + PATIENCE_SECONDS
        with selectors.DefaultSelector() as selector:
            selector.register(output, selectors.EVENT_READ)
            while True:
                left = deadline - time.monotonic()
                chunk = None
                if left > 0 and selector.select(left):
                    chunk = os.read(output.fileno(), 65536)
                if not chunk:
                    self.process.kill()
                    self.process.wait(PATIENCE_SECONDS)
                    output.close()
                    # The end of the suite shows its log.
                    raise AssertionError("kew did not become ready")
                *lines, buffered = (buffered + chunk).split(b"\n")
                for line in lines:
                    name, _, value = line.decode().partition("=")
                    facts[name] = value.strip("'")
                    if name == "KEW_READY":
                        return facts

    @property
    def connection_string(self):
        return self.facts["KEW_QUEUE_CONNECTION_STRING"]

    @property
    def port(self):
        return int(self.facts["KEW_QUEUE_LISTEN"].rpartition(":")[2])

    def stop(self):
        """Asks it to stop, as an operator would; it must end cleanly."""
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(PATIENCE_SECONDS)
        self.process.stdout.close()
        assert status == 0, f"kew ended with status {status}"

    def kill(self):
        """Kills it like a crash."""
        (LOGS / f"{self.process.pid}.killed").touch()
        self.process.kill()
        status = self.process.wait(PATIENCE_SECONDS)
        self.process.stdout.close()
        assert status == -signal.SIGKILL, f"kew ended by itself with status {status}"

    def close(self):
        if self.process is not None and not self.process.stdout.closed:
            self.stop()
