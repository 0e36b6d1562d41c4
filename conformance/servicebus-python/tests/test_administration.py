"""Administration, which is over HTTPS only."""

import datetime
import os
import threading
import time

import pytest
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.servicebus import ServiceBusMessage as Message
from azure.servicebus.exceptions import MessagingEntityNotFoundError, ServiceBusError, ServiceBusQuotaExceededError
from azure.servicebus.management import AccessRights, AuthorizationRule, EntityStatus
from azure.servicebus.management import ServiceBusAdministrationClient as Client
from conftest import TLS, Door, drop, is_empty, missing, put, take

pytestmark = pytest.mark.skipif(not os.environ["KEW_BUS_HTTPS"], reason="no port 443")
DOOR = Door("amqps", os.environ["KEW_BUS_CONNECTION_STRING"])


def connect(text=DOOR.connection_string):
    return Client.from_connection_string(text, connection_verify=str(TLS / "ca.pem"), retry_total=0)


@pytest.fixture
def admin():
    with connect() as admin:
        yield admin


def test_a_queue_is_made_changed_and_deleted(admin):
    name = "X.Made.By/Python"
    hour = datetime.timedelta(hours=1)
    made = admin.create_queue(
        name, lock_duration=datetime.timedelta(seconds=30), max_delivery_count=4, requires_session=True,
        default_message_time_to_live=hour, dead_lettering_on_message_expiration=True, user_metadata="a < b & c",
        requires_duplicate_detection=True, duplicate_detection_history_time_window="PT5M",
    )
    assert made.requires_session and made.max_delivery_count == 4
    with pytest.raises(ResourceExistsError):
        admin.create_queue(name)
    queue = admin.get_queue(name)
    assert queue.name.lower() == name.lower() and queue.user_metadata == "a < b & c"
    assert queue.default_message_time_to_live == hour and queue.status == EntityStatus.ACTIVE
    assert queue.duplicate_detection_history_time_window == datetime.timedelta(minutes=5)
    queue.max_delivery_count = 9
    queue.status = EntityStatus.SEND_DISABLED
    admin.update_queue(queue)
    assert admin.get_queue(name).max_delivery_count == 9
    with DOOR.connect() as client:
        with pytest.raises(ServiceBusError, match="(?i)disabled"):
            put(client, name, Message("x", session_id="s"))
        queue.status = EntityStatus.ACTIVE
        admin.update_queue(queue)
        put(client, name, Message("x", session_id="s"), Message("y", session_id="s"))
        assert admin.get_queue_runtime_properties(name).active_message_count == 2
        queue.requires_session = False
        with pytest.raises(HttpResponseError):
            admin.update_queue(queue)
        admin.delete_queue(name)
        with missing(name):
            put(client, name, Message("x", session_id="s"))
    with pytest.raises(ResourceNotFoundError):
        admin.get_queue(name)
    with pytest.raises(ResourceNotFoundError):
        admin.delete_queue(name)


def test_links_that_are_there_hear_of_changes(admin):
    name = "x-changed-by-python"
    queue = admin.create_queue(name)

    def waiting_hears(change):
        """The error of a waiting receiver when the queue is changed."""
        with DOOR.connect() as client, client.get_queue_receiver(name) as receiver:
            assert is_empty(receiver)
            late = threading.Timer(0.3, change)
            late.start()
            began = time.monotonic()
            with pytest.raises(ServiceBusError) as told:
                receiver.receive_messages(1, max_wait_time=30)
            late.join()
            assert time.monotonic() - began < 20
            return told.value

    def set_status(status):
        queue.status = status
        admin.update_queue(queue)

    # The SDK does not show why a link was detached, and retries.
    with DOOR.connect(retry_total=1) as client, client.get_queue_sender(name) as sender:
        sender.send_messages(Message("before"))
        set_status(EntityStatus.SEND_DISABLED)
        with pytest.raises(ServiceBusError, match="(?i)disabled"):
            sender.send_messages(Message("meanwhile"))
        with client.get_queue_receiver(name) as receiver:
            assert str(drop(receiver)) == "before"
        set_status(EntityStatus.ACTIVE)
        sender.send_messages(Message("after"))
        with client.get_queue_receiver(name) as receiver:
            assert str(drop(receiver)) == "after"
        assert "isabled" in str(waiting_hears(lambda: set_status(EntityStatus.RECEIVE_DISABLED)))
        sender.send_messages(Message("kept"))
        set_status(EntityStatus.ACTIVE)
        with client.get_queue_receiver(name) as receiver:
            assert str(drop(receiver)) == "kept"
        assert isinstance(waiting_hears(lambda: admin.delete_queue(name)), MessagingEntityNotFoundError)


def test_a_full_queue_takes_no_more_until_something_is_taken_out(admin):
    name = "x-filled-by-python"
    admin.create_queue(name, max_size_in_megabytes=1)
    with DOOR.connect() as client, client.get_queue_sender(name) as sender:
        with pytest.raises(ServiceBusQuotaExceededError):
            for _ in range(10):
                sender.send_messages([Message(b"x" * 100_000)] * 5)
        with client.get_queue_receiver(name) as receiver:
            for message in take(receiver, 5):
                receiver.complete_message(message)
        sender.send_messages(Message("fits"))
    admin.delete_queue(name)


def test_queues_are_listed_in_pages(admin):
    names = [queue.name for queue in admin.list_queues() if not queue.name.lower().startswith("x")]
    assert len(names) == len(set(names)) and {"plain-1", "plain-100", "session-50"} <= set(names)
    counts = {queue.name: queue.total_message_count for queue in admin.list_queues_runtime_properties()}
    assert counts["hop-2"] == 0


def test_what_lasts_for_ever_comes_back(admin):
    with_defaults = admin.create_queue("x-with-defaults")
    admin.update_queue(with_defaults)
    assert admin.get_queue("x-with-defaults").auto_delete_on_idle > datetime.timedelta(days=10_000_000)
    admin.delete_queue("x-with-defaults")


def test_a_queue_forwards_to_one_that_is_there(admin):
    admin.create_queue("x-forwards-from", forward_to="plain-99")
    assert admin.get_queue("x-forwards-from").forward_to.endswith("plain-99")
    with pytest.raises(HttpResponseError):
        admin.create_queue("x-forwards-nowhere", forward_to="absent")
    admin.delete_queue("x-forwards-from")


def test_rules_of_a_queue(admin):
    key = "bm9ib2R5IGtub3dzIHRoaXMga2V5LCBvZiBjb3Vyc2U="
    rule = AuthorizationRule(
        type="SharedAccessAuthorizationRule", claim_type="SharedAccessKey", claim_value="None",
        rights=[AccessRights.SEND], key_name="senders", primary_key=key, secondary_key=key,
    )
    admin.create_queue("x-ruled-by-python", authorization_rules=[rule])
    (found,) = admin.get_queue("x-ruled-by-python").authorization_rules
    assert (found.key_name, found.rights) == ("senders", [AccessRights.SEND])
    endpoint = DOOR.connection_string.partition(";")[0]
    with DOOR.connect(f"{endpoint};SharedAccessKeyName=senders;SharedAccessKey={key}") as client:
        put(client, "x-ruled-by-python", "x")
        with pytest.raises(ServiceBusError):
            client.get_queue_receiver("x-ruled-by-python").receive_messages(1, max_wait_time=20)
    admin.delete_queue("x-ruled-by-python")


def test_the_namespace(admin):
    assert admin.get_namespace_properties().name == "sbemulatorns"
    with connect(DOOR.connection_string.replace("SharedAccessKey=", "SharedAccessKey=x")) as stranger:
        with pytest.raises(ClientAuthenticationError):
            stranger.get_queue("plain-1")
