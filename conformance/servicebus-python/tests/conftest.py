"""A server with queues of a configuration file, and clients made from its connection string."""

import json
import os
import signal
import subprocess
import threading

import pytest
from azure.servicebus import ServiceBusClient

QUEUES = {
    name: {"LockDuration": "PT5S", "MaxDeliveryCount": 3}
    for name in ["send", "batch", "large", "abandon", "letters", "lost", "delete", "props", "peek"]
    + ["schedule", "defer", "renew", "purge", "kill", "wait", "release"]
}
QUEUES["sessions"] = {"RequiresSession": True, "LockDuration": "PT5S"}


class Server:
    def __init__(self, directory):
        self.data = directory / "data"
        self.config = directory / "Config.json"
        queues = [{"Name": name, "Properties": properties} for name, properties in QUEUES.items()]
        namespace = {"Name": "sbemulatorns", "Queues": queues}
        text = json.dumps({"UserConfig": {"Namespaces": [namespace]}})
        self.config.write_text("// Queues of the scenarios.\n" + text)
        self.process = None

    def start(self):
        command = [os.environ["KEW_BINARY"], "serve", "--data-dir", self.data, "--import", self.config]
        command += ["--queue-listen", "127.0.0.1:0", "--bus-listen", "127.0.0.1:0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        deadline = threading.Timer(60, self.process.kill)
        deadline.start()
        facts = {}
        for line in self.process.stdout:
            name, _, value = line.strip().partition("=")
            facts[name] = value.strip("'")
            if name == "KEW_READY":
                break
        deadline.cancel()
        assert "KEW_READY" in facts, "the server did not start"
        self.connection_string = facts["KEW_BUS_CONNECTION_STRING"]
        return self

    def stop(self, how=signal.SIGTERM):
        if self.process:
            self.process.send_signal(how)
            self.process.wait(30)
            self.process.stdout.close()
            self.process = None


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("server")).start()
    yield server
    server.stop()


@pytest.fixture
def restartable(tmp_path):
    server = Server(tmp_path).start()
    yield server
    server.stop(signal.SIGKILL)


@pytest.fixture
def client(server):
    with connect(server) as client:
        yield client


def connect(server):
    return ServiceBusClient.from_connection_string(server.connection_string, retry_total=0)
