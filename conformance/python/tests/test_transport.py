"""Connections and retries."""

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.core.exceptions import HttpResponseError
from azure.storage.queue import ExponentialRetry, QueueClient

from doors import OVER_HTTP
from front import Front


def through(door, front, name, **options):
    credential = AzureNamedKeyCredential(door.account, door.key)
    url = door.url(front.port)
    return QueueClient(url, name, credential=credential, **{**door.options, **options})


def test_many_requests_share_one_connection(door, queue, refused):
    with Front(door.server.port) as front, through(door, front, queue.queue_name) as client:
        for number in range(20):
            client.send_message(str(number))
            message = client.receive_message()
            client.delete_message(message)
            # An error keeps the connection too.
            with refused(404, "MessageNotFound"):
                client.delete_message(message)
        assert front.connections == 1


# The busy server has no TLS.
@OVER_HTTP
def test_a_busy_server_is_asked_again(door, queue):
    # retry_total=0 of the other scenarios would override a policy.
    door.options.pop("retry_total")
    quick = ExponentialRetry(initial_backoff=0, increment_base=0, retry_total=3, random_jitter_range=0)
    with Front(door.server.port, busy=2) as front:
        with through(door, front, queue.queue_name, retry_policy=quick) as client:
            client.send_message("text")
        assert front.connections == 3
    assert queue.get_queue_properties().approximate_message_count == 1


# The busy server has no TLS.
@OVER_HTTP
def test_a_busy_server_and_no_patience(door, queue):
    with Front(door.server.port, busy=1) as front:
        with through(door, front, queue.queue_name) as client:
            with pytest.raises(HttpResponseError) as caught:
                client.send_message("text")
    assert (caught.value.status_code, caught.value.error_code) == (503, "ServerBusy")
