"""The server that the script beside this has started, servers of a scenario's own, and clients."""

import itertools
import json
import os
import pathlib
import signal
import subprocess
import threading

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType

TLS = pathlib.Path(os.environ["KEW_TEST_TLS"])
NUMBERS = {}


def fresh(kind="plain"):
    """An empty queue of this kind, which no other scenario has, also not one of another process."""
    own = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
    step = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    counter = NUMBERS.setdefault(kind, itertools.count(own + 1, step))
    return f"{kind}-{next(counter)}"


def partner(queue, kind):
    """The queue of another kind that goes with it."""
    return f"{kind}-{queue.rsplit('-', 1)[1]}"


class Door:
    """One way to the server: what is given to the SDK."""

    def __init__(self, name, connection_string):
        self.name = name
        self.plain = connection_string

    @property
    def connection_string(self):
        if self.name == "amqp":
            return self.plain
        rest = self.plain.partition(";")[2].replace("UseDevelopmentEmulator=true;", "")
        return f"Endpoint=sb://{os.environ['KEW_BUS_HOST']}/;{rest}"

    @property
    def options(self):
        """No retries: an answer that one would cover up is shown."""
        options = {"retry_total": 0, "connection_verify": str(TLS / "ca.pem")}
        if self.name == "websockets":
            options["transport_type"] = TransportType.AmqpOverWebsocket
        return options

    def connect(self, connection_string=None, kind=ServiceBusClient, **options):
        text = connection_string or self.connection_string
        return kind.from_connection_string(text, **self.options, **options)


DOORS = ["amqp", "amqps"] + (["websockets"] if os.environ["KEW_BUS_HTTPS"] else [])


@pytest.fixture(params=DOORS)
def door(request):
    return Door(request.param, os.environ["KEW_BUS_CONNECTION_STRING"])


@pytest.fixture
def client(door):
    with door.connect() as client:
        yield client


class Server:
    """One that a scenario kills."""

    def __init__(self, directory):
        self.data = directory / "data"
        self.config = directory / "Config.json"
        queues = [
            {"Name": "plain"},
            {"Name": "session", "Properties": {"RequiresSession": True}},
            {"Name": "unique", "Properties": {"RequiresDuplicateDetection": True}},
        ]
        namespace = {"Name": "sbemulatorns", "Queues": queues}
        self.config.write_text(json.dumps({"UserConfig": {"Namespaces": [namespace]}}))
        self.process = None

    def start(self):
        command = [os.environ["KEW_BINARY"], "serve", "--data-dir", self.data, "--import", self.config]
        command += ["--queue-listen", "127.0.0.1:0", "--bus-listen", "127.0.0.1:0"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("KEW_")}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
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

    def kill(self):
        if self.process:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(30)
            self.process.stdout.close()
            self.process = None

    def connect(self):
        return Door("amqp", self.connection_string).connect()


@pytest.fixture
def killable(tmp_path):
    server = Server(tmp_path).start()
    yield server
    server.kill()


def put(client, queue, *messages):
    with client.get_queue_sender(queue) as sender:
        sender.send_messages([message_of(message) for message in messages])


def message_of(message):
    return ServiceBusMessage(message) if isinstance(message, (str, bytes)) else message


def take(receiver, count=1):
    messages = []
    while len(messages) < count:
        found = receiver.receive_messages(count - len(messages), max_wait_time=20)
        assert found, f"{len(messages)} of {count} messages"
        messages += found
    return messages


def drop(receiver):
    """Takes a message and completes it."""
    (message,) = take(receiver)
    receiver.complete_message(message)
    return message


def is_empty(receiver):
    return receiver.receive_messages(1, max_wait_time=0.5) == []


def texts(messages):
    return [str(message) for message in messages]
