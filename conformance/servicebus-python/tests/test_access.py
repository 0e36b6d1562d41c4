"""The rights of tokens."""

import base64
import hashlib
import hmac
import time
from urllib.parse import quote_plus

import pytest
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusAuthorizationError, ServiceBusError
from conftest import drop, fresh, put

REFUSED = (ServiceBusAuthenticationError, ServiceBusAuthorizationError)


def signature(door, path, seconds):
    """A connection string with a signature for this path, and without a key."""
    parts = dict(part.split("=", 1) for part in door.connection_string.rstrip(";").split(";"))
    resource = quote_plus(f"{parts['Endpoint'].rstrip('/')}/{path}")
    expiry = int(time.time()) + seconds
    digest = hmac.new(parts["SharedAccessKey"].encode(), f"{resource}\n{expiry}".encode(), hashlib.sha256)
    token = f"SharedAccessSignature sr={resource}&sig={quote_plus(base64.b64encode(digest.digest()))}"
    token += f"&se={expiry}&skn={parts['SharedAccessKeyName']}"
    rest = "UseDevelopmentEmulator=true;" if door.name == "amqp" else ""
    return f"Endpoint={parts['Endpoint']};SharedAccessSignature={token};{rest}"


def test_a_wrong_key_is_refused(door):
    wrong = door.connection_string.replace("SharedAccessKey=", "SharedAccessKey=x")
    with door.connect(wrong) as client, pytest.raises(REFUSED):
        put(client, "plain-1", "x")


def test_a_signature_is_good_for_its_queue_and_time(door):
    queue = fresh()
    with door.connect(signature(door, queue, 60)) as client:
        put(client, queue, "x")
        with client.get_queue_receiver(queue) as receiver:
            drop(receiver)
    with door.connect(signature(door, queue, 60)) as client, pytest.raises(ServiceBusError):
        put(client, fresh(), "x")
    with door.connect(signature(door, queue, -60)) as client, pytest.raises(REFUSED):
        put(client, queue, "x")
