"""The same messages over every transport that the SDK has, all on one port."""

import json
import os
import subprocess
import threading

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType

KEY = "SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE"


@pytest.fixture(scope="module")
def door(tmp_path_factory):
    """The port of a server with a certificate, and the authority that signed it."""
    place = tmp_path_factory.mktemp("transports")
    config = place / "Config.json"
    namespace = {"Name": "sbemulatorns", "Queues": [{"Name": "transports"}]}
    config.write_text(json.dumps({"UserConfig": {"Namespaces": [namespace]}}))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KEW_")}
    kew = os.environ["KEW_BINARY"]
    subprocess.run([kew, "tls", "init", "--dir", place], env=environment, check=True)
    command = [kew, "serve", "--ephemeral", "--import", config, "--queue-listen", "127.0.0.1:0"]
    command += ["--bus-listen", "127.0.0.1:0"]
    command += ["--tls-cert", place / "server.pem", "--tls-key", place / "server.key"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    deadline = threading.Timer(60, process.kill)
    deadline.start()
    facts = {}
    for line in process.stdout:
        name, _, value = line.strip().partition("=")
        facts[name] = value
        if name == "KEW_READY":
            break
    deadline.cancel()
    assert "KEW_READY" in facts, "the server did not start"
    yield facts["KEW_BUS_LISTEN"].rpartition(":")[2], str(place / "ca.pem")
    process.terminate()
    assert process.wait(30) == 0
    process.stdout.close()


@pytest.mark.parametrize("is_plain", [False, True], ids=["tls", "plain"])
@pytest.mark.parametrize("transport", list(TransportType), ids=lambda transport: transport.name)
def test_messages_over_every_transport(door, transport, is_plain):
    port, authority = door
    flag = ";UseDevelopmentEmulator=true" if is_plain else ""
    options = {"transport_type": transport, "connection_verify": authority, "retry_total": 0}
    # Without it the SDK connects to 443 for WebSockets, and to 5671 for TLS.
    options["custom_endpoint_address"] = f"sb://localhost:{port}"
    text = f"Endpoint=sb://localhost:{port};{KEY}{flag}"
    # The second one does not fit into one frame.
    bodies = [b"hello", os.urandom(200_000)]
    with ServiceBusClient.from_connection_string(text, **options) as client:
        with client.get_queue_sender("transports") as sender:
            for body in bodies:
                sender.send_messages(ServiceBusMessage(body))
        with client.get_queue_receiver("transports") as receiver:
            for body in bodies:
                [message] = receiver.receive_messages(max_wait_time=20)
                assert b"".join(message.body) == body
                receiver.complete_message(message)
