"""Servers and queues for the scenarios. A client is made from the connection string, without retries."""

import contextlib
import itertools
import re

import pytest
from azure.core.exceptions import HttpResponseError
from azure.storage.queue import QueueClient, QueueServiceClient

from doors import DOORS, Door, resolve_localhost
from issuer import Issuer
from kew import Server

resolve_localhost()
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def issuer(tmp_path_factory):
    """The issuer whose tokens that server accepts."""
    return Issuer(tmp_path_factory.mktemp("issuer"))


@pytest.fixture(scope="session")
def server(tmp_path_factory, issuer):
    """The server that most scenarios share."""
    server = Server(tmp_path_factory.mktemp("data"), options=issuer.options).start()
    yield server
    server.close()


@pytest.fixture
def restartable(tmp_path):
    """A server of the scenario's own, which it may stop, kill and start."""
    server = Server(tmp_path / "data").start()
    yield server
    server.close()


@pytest.fixture(params=DOORS.values(), ids=DOORS.keys())
def door(request, server):
    """One way to that server, then the others."""
    return Door(server, *request.param)


@pytest.fixture
def service(door):
    text = door.connection_string
    with QueueServiceClient.from_connection_string(text, **door.options) as service:
        yield service


@pytest.fixture
def name(request):
    """A queue name that no other scenario has."""
    readable = re.sub("[^a-z0-9]+", "-", request.node.name.lower())[:40].strip("-")
    return f"{readable}-{next(_numbers)}"


@pytest.fixture
def absent(door, name):
    """A client of a queue that does not exist."""
    text = door.connection_string
    with QueueClient.from_connection_string(text, name, **door.options) as queue:
        yield queue


@pytest.fixture
def queue(absent):
    """A client of a new, empty queue."""
    absent.create_queue()
    return absent


@contextlib.contextmanager
def _refused(status, code, kind=HttpResponseError):
    with pytest.raises(kind) as caught:
        yield caught
    error = caught.value
    assert error.error_code == code, error
    assert error.status_code == status, error
    headers = error.response.headers
    assert headers["x-ms-error-code"] == code
    assert headers["x-ms-request-id"]
    assert headers["x-ms-version"]


@pytest.fixture
def refused():
    """Expects an error with this status and code, as the SDK shows it."""
    return _refused
