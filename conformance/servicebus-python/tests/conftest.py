"""The server that the script beside this has started, servers for single scenarios, and clients."""

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import threading
import time

import certifi
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType
from azure.servicebus.exceptions import ServiceBusAuthenticationError

TLS = pathlib.Path(os.environ["KEW_TEST_TLS"])
# The folder that has a file for each queue that a scenario has taken.
TAKEN = pathlib.Path(os.environ["KEW_BUS_TAKEN"])
# As servicebus.sh configures them.
QUEUES_OF_A_KIND = 100


def fresh(kind="plain"):
    """An empty queue of this kind, which no other scenario has, also not one of another process."""
    for number in range(1, QUEUES_OF_A_KIND + 1):
        with contextlib.suppress(FileExistsError):
            (TAKEN / f"{kind}-{number}").touch(exist_ok=False)
            return f"{kind}-{number}"
    raise AssertionError(f"all {QUEUES_OF_A_KIND} queues of the kind {kind} are taken")


def partner(queue, kind):
    """The related queue of another kind."""
    return f"{kind}-{queue.rsplit('-', 1)[1]}"


class Door:
    """One way to the server: the options of the SDK's client."""

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
        """No retries: the test must see answers that a retry would hide."""
        options = {"retry_total": 0, "connection_verify": str(TLS / "ca.pem")}
        if self.name == "websockets":
            options["transport_type"] = TransportType.AmqpOverWebsocket
        return options

    def connect(self, connection_string=None, kind=ServiceBusClient, **options):
        text = connection_string or self.connection_string
        return kind.from_connection_string(text, **{**self.options, **options})


DOORS = ["amqp", "amqps"] + (["websockets"] if os.environ["KEW_BUS_HTTPS"] else [])


@pytest.fixture(params=DOORS)
def door(request):
    return Door(request.param, os.environ["KEW_BUS_CONNECTION_STRING"])


@pytest.fixture
def client(door):
    with door.connect() as client:
        yield client


@pytest.fixture
def kombu_url(monkeypatch):
    """The options of Celery and Kombu. They find the server as with a name server, and with a certificate store that
    contains its authority."""
    if not os.environ["KEW_BUS_HTTPS"]:
        pytest.skip("Kombu creates its queues by port 443")
    # A name that does not end in .net would mean a namespace in the cloud.
    name = os.environ["KEW_BUS_NAME"]
    resolve = socket.getaddrinfo

    def resolve_here(host, *arguments, **named):
        return resolve(os.environ["KEW_BUS_HOST"] if host == name else host, *arguments, **named)

    monkeypatch.setattr(socket, "getaddrinfo", resolve_here)
    monkeypatch.setattr(certifi, "where", lambda: str(TLS / "ca.pem"))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(TLS / "ca.pem"))
    parts = dict(part.split("=", 1) for part in os.environ["KEW_BUS_CONNECTION_STRING"].split(";") if part)
    return f"azureservicebus://{parts['SharedAccessKeyName']}:{parts['SharedAccessKey']}@{name}"


def assert_emptied(count):
    """Waits until a queue is empty, without even a locked message: the SDK settles without waiting for the
    answer."""
    deadline = time.monotonic() + 30
    while (left := count()) > 0:
        assert time.monotonic() < deadline, f"{left} messages are left"


class Server:
    """A server that a scenario stops, kills and restarts in the same place."""

    QUEUES = [
        {"Name": "plain"},
        {"Name": "brief", "Properties": {"LockDuration": "PT5S"}},
        {"Name": "session", "Properties": {"RequiresSession": True}},
        {"Name": "unique", "Properties": {"RequiresDuplicateDetection": True}},
    ]
    TOPICS = [
        {
            "Name": "unique-topic",
            "Properties": {"RequiresDuplicateDetection": True},
            "Subscriptions": [{"Name": "one"}, {"Name": "two"}],
        },
    ]

    def __init__(self):
        restarting = pathlib.Path(__file__).parents[2] / "restarting"
        command = [restarting, json.dumps(self.QUEUES), json.dumps(self.TOPICS)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.connection_string = self.hear()

    def hear(self):
        deadline = threading.Timer(60, self.process.kill)
        deadline.start()
        line = self.process.stdout.readline().strip()
        deadline.cancel()
        assert line, "the server did not start, or did not end well"
        return line

    def restart(self, name):
        self.process.stdin.write(f"{name}\n")
        self.process.stdin.flush()
        assert self.hear() == "ready"

    def end(self):
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()

    def connect(self, **options):
        return Door("amqp", self.connection_string).connect(**options)


@pytest.fixture
def killable():
    server = Server()
    yield server
    server.end()


@contextlib.contextmanager
def missing(name):
    """Expects that an entity is missing. Like Azure, Kew reports that when a token is put for it, and this SDK shows it
    as a failed authentication."""
    with pytest.raises(ServiceBusAuthenticationError) as refused:
        yield
    failure = refused.value.inner_exception
    assert failure.status_code == 404, failure
    assert f"/{name.lower()}' could not be found" in str(failure.status_description).lower(), failure


def put(client, queue, *messages):
    with client.get_queue_sender(queue) as sender:
        sender.send_messages([message_of(message) for message in messages])


def message_of(message):
    return ServiceBusMessage(message) if isinstance(message, (str, bytes)) else message


def take(receiver, count=1):
    messages = []
    while len(messages) < count:
        found = receiver.receive_messages(count - len(messages), max_wait_time=60)
        assert found, f"{len(messages)} of {count} messages"
        messages += found
    return messages


def drop(receiver):
    """Receives a message and completes it."""
    (message,) = take(receiver)
    receiver.complete_message(message)
    return message


def is_empty(receiver):
    return receiver.receive_messages(1, max_wait_time=0.5) == []


def texts(messages):
    return [str(message) for message in messages]
