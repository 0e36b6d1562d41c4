"""Which credentials allow access, and how clients find the service."""

import base64
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.core.exceptions import ClientAuthenticationError, ResourceNotFoundError
from azure.storage.queue import QueueClient

import emulator
from kew import NO_RETRIES

ACCOUNT = "devstoreaccount1"


def endpoint(server):
    parts = dict(p.split("=", 1) for p in server.connection_string.rstrip(";").split(";"))
    return parts["QueueEndpoint"].rstrip("/")


def test_a_wrong_key(server, name):
    wrong = AzureNamedKeyCredential(ACCOUNT, base64.b64encode(b"wrong" * 12).decode())
    with QueueClient(endpoint(server), name, credential=wrong, **NO_RETRIES) as queue:
        with pytest.raises(ClientAuthenticationError) as caught:
            queue.create_queue()
    assert caught.value.status_code == 403
    assert caught.value.error_code == "AuthenticationFailed"
    assert "string to sign" in caught.value.additional_info["authenticationerrordetail"]


def test_an_unknown_account(server, name, refused):
    url = endpoint(server).replace(ACCOUNT, "nobody")
    key = AzureNamedKeyCredential("nobody", base64.b64encode(b"key" * 20).decode())
    with QueueClient(url, name, credential=key, **NO_RETRIES) as queue:
        with refused(404, "ResourceNotFound", ResourceNotFoundError):
            queue.create_queue()


def status_of(url, headers):
    request = urllib.request.Request(url, headers={"x-ms-version": "2026-10-06", **headers})
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, response.headers
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers


def test_no_credential(server):
    status, headers = status_of(f"{endpoint(server)}?comp=list", {})
    assert (status, headers["x-ms-error-code"]) == (401, "NoAuthenticationInformation")
    assert "Bearer" in headers["WWW-Authenticate"]


def test_a_credential_in_the_wrong_form(server):
    url = f"{endpoint(server)}?comp=list"
    date = {"x-ms-date": "Sat, 21 Nov 2026 00:00:00 GMT"}
    for value in ["nonsense", "SharedKey nonsense", "SharedKey devstoreaccount1"]:
        status, headers = status_of(url, {"Authorization": value, **date})
        code = headers["x-ms-error-code"]
        assert (status, code) == (400, "InvalidAuthenticationInfo"), value


def test_a_request_from_long_ago(server):
    url = f"{endpoint(server)}?comp=list"
    signature = base64.b64encode(bytes(32)).decode()
    status, headers = status_of(
        url,
        {
            "Authorization": f"SharedKey {ACCOUNT}:{signature}",
            "x-ms-date": "Fri, 01 Jan 2021 00:00:00 GMT",
        },
    )
    assert (status, headers["x-ms-error-code"]) == (403, "AuthenticationFailed")


def test_odd_metadata_names_are_signed_alike(queue):
    # The SDK sorts these headers in an order of its own, which is not that of their bytes.
    metadata = {"a_b": "1", "ab": "2", "a_": "3", "aB1": "4", "a1": "5", "a_1": "6"}
    queue.set_queue_metadata(metadata)
    kept = queue.get_queue_properties().metadata
    assert {key.lower() for key in kept} == {key.lower() for key in metadata}


def test_odd_query_values_are_signed_alike(service, name):
    service.create_queue(name)
    for prefix in ["a+b", "a b", "a%2Bb", "a/b", "ä", "a=b&c=d", "'", "~"]:
        assert list(service.list_queues(name_starts_with=prefix)) == [], prefix


def test_the_sdk_as_it_comes(server, name):
    with QueueClient.from_connection_string(server.connection_string, name) as queue:
        queue.create_queue()
        queue.send_message("text")
        received = queue.receive_message()
        assert received.content == "text"
        queue.delete_message(received)
        assert queue.get_queue_properties().approximate_message_count == 0


def is_free(port):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def test_the_connection_string_of_emulators(tmp_path):
    if is_free(emulator.PORT):
        emulator.check(tmp_path / "data")
        return
    # Another program has the port, but not in a network of our own.
    command = ["unshare", "--map-root-user", "--net", sys.executable, emulator.__file__]
    ended = subprocess.run(
        [*command, str(tmp_path / "data")], capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 0, (
        f"port {emulator.PORT} is in use, and in a network namespace the scenario failed:\n"
        f"{ended.stdout}{ended.stderr}"
    )
