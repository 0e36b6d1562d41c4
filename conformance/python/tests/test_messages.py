"""Messages: send, receive, peek, update, delete, clear."""

import time
from datetime import datetime, timedelta, timezone

import pytest
from azure.core.exceptions import ResourceNotFoundError

from kew import PATIENCE_SECONDS

SECOND = timedelta(seconds=1)
WEEK = timedelta(days=7)


def contents(messages):
    return [message.content for message in messages]


def wait_until_received(queue, began):
    """Receives a message that was hidden for a second, at `began` or later, and checks that it was not early."""
    while time.monotonic() < began + PATIENCE_SECONDS:
        message = queue.receive_message(visibility_timeout=600)
        if message is not None:
            assert time.monotonic() - began > 0.9, "it was not hidden"
            return message
        time.sleep(0.02)
    raise AssertionError("the message did not become visible")


def test_send_answers_with_everything(queue):
    before = datetime.now(timezone.utc) - SECOND
    sent = queue.send_message("text")
    after = datetime.now(timezone.utc) + SECOND
    assert sent.id and sent.pop_receipt and sent.content == "text"
    assert before <= sent.inserted_on <= after
    assert sent.next_visible_on == sent.inserted_on
    assert sent.expires_on - sent.inserted_on == WEEK


def test_receive_answers_with_everything(queue):
    sent = queue.send_message("text")
    received = queue.receive_message(visibility_timeout=60)
    assert (received.id, received.content, received.dequeue_count) == (sent.id, "text", 1)
    assert received.inserted_on == sent.inserted_on
    assert received.expires_on == sent.expires_on
    assert received.pop_receipt and received.pop_receipt != sent.pop_receipt
    hidden = received.next_visible_on - datetime.now(timezone.utc)
    assert abs(hidden - timedelta(seconds=60)) < 20 * SECOND


def test_an_empty_queue_gives_nothing(queue):
    assert queue.receive_message() is None
    assert list(queue.receive_messages()) == []
    assert queue.peek_messages() == []
    queue.clear_messages()


def test_messages_come_oldest_first_and_once(queue):
    sent = [queue.send_message(str(number)).id for number in range(40)]
    received = list(queue.receive_messages(visibility_timeout=600))
    assert [message.id for message in received] == sent
    assert contents(received) == [str(number) for number in range(40)]
    assert len({message.pop_receipt for message in received}) == 40
    assert queue.receive_message() is None


def test_receive_in_pages(queue):
    for number in range(10):
        queue.send_message(str(number))
    pages = queue.receive_messages(messages_per_page=4, visibility_timeout=600).by_page()
    assert [contents(page) for page in pages] == [list("0123"), list("4567"), list("89")]


def test_receive_at_most(queue):
    for number in range(10):
        queue.send_message(str(number))
    batch = queue.receive_messages(messages_per_page=2, max_messages=5, visibility_timeout=600)
    assert contents(batch) == list("01234")
    batch = queue.receive_messages(messages_per_page=32, visibility_timeout=600)
    assert contents(batch) == list("56789")


def test_thirty_two_at_once(queue):
    for number in range(33):
        queue.send_message(str(number))
    page = next(queue.receive_messages(messages_per_page=32, visibility_timeout=600).by_page())
    assert len(list(page)) == 32


def test_a_message_comes_back_when_its_time_is_over(queue):
    queue.send_message("text")
    began = time.monotonic()
    first = queue.receive_message(visibility_timeout=1)
    # On a machine that stalls, it may be over already.
    assert queue.peek_messages() == [] or time.monotonic() - began > 0.9
    second = wait_until_received(queue, began)
    assert (second.id, second.dequeue_count) == (first.id, 2)
    assert second.pop_receipt != first.pop_receipt


def test_send_with_a_delay(queue):
    began = time.monotonic()
    sent = queue.send_message("later", visibility_timeout=1)
    assert sent.next_visible_on - sent.inserted_on == SECOND
    received = wait_until_received(queue, began)
    assert (received.id, received.dequeue_count) == (sent.id, 1)


def test_time_to_live_ends_a_message(queue, refused):
    deadline = time.monotonic() + PATIENCE_SECONDS
    held = None
    while held is None:
        # On a machine that stands still, it may be over before the next request.
        assert time.monotonic() < deadline, "the message did not come"
        queue.send_message("short", time_to_live=1)
        held = queue.receive_message(visibility_timeout=600)
    queue.send_message("stays")
    while True:
        # The receipt of an expired message is invalid, although its lease has not ended.
        try:
            held.pop_receipt = queue.update_message(held, visibility_timeout=600).pop_receipt
        except ResourceNotFoundError as error:
            assert error.error_code == "MessageNotFound"
            break
        assert time.monotonic() < deadline, "the message did not expire"
        time.sleep(0.05)
    assert contents(queue.peek_messages(max_messages=32)) == ["stays"]


def test_time_to_live_can_be_endless_or_long(queue):
    endless = queue.send_message("endless", time_to_live=-1)
    assert endless.expires_on == datetime(9999, 12, 31, 23, 59, 59, tzinfo=timezone.utc)
    long = queue.send_message("long", time_to_live=2**31 - 1)
    assert long.expires_on - long.inserted_on == timedelta(seconds=2**31 - 1)
    hidden = queue.send_message("hidden", time_to_live=-1, visibility_timeout=604800)
    assert hidden.next_visible_on - hidden.inserted_on == WEEK


def test_peek_changes_nothing(queue):
    sent = queue.send_message("text")
    for _ in range(3):
        (peeked,) = queue.peek_messages()
        assert (peeked.id, peeked.content, peeked.dequeue_count) == (sent.id, "text", 0)
        assert peeked.pop_receipt is None and peeked.next_visible_on is None
        assert (peeked.inserted_on, peeked.expires_on) == (sent.inserted_on, sent.expires_on)
    assert queue.receive_message().dequeue_count == 1


def test_peek_shows_the_first_visible_ones(queue):
    for number in range(5):
        queue.send_message(str(number))
    queue.receive_message(visibility_timeout=600)
    assert contents(queue.peek_messages()) == ["1"]
    assert contents(queue.peek_messages(max_messages=3)) == ["1", "2", "3"]
    assert contents(queue.peek_messages(max_messages=32)) == ["1", "2", "3", "4"]


def test_update_replaces_the_content(queue):
    queue.send_message("old")
    received = queue.receive_message(visibility_timeout=600)
    updated = queue.update_message(received, content="new", visibility_timeout=0)
    assert updated.pop_receipt != received.pop_receipt
    again = queue.receive_message(visibility_timeout=600)
    assert (again.id, again.content, again.dequeue_count) == (received.id, "new", 2)
    assert (again.inserted_on, again.expires_on) == (received.inserted_on, received.expires_on)


def test_update_of_the_visibility_alone_keeps_the_content(queue):
    queue.send_message("kept")
    received = queue.receive_message(visibility_timeout=600)
    before = datetime.now(timezone.utc)
    # With id and receipt: given a whole message, the SDK sends its old content again.
    updated = queue.update_message(received.id, received.pop_receipt, visibility_timeout=60)
    assert abs(updated.next_visible_on - before - timedelta(seconds=60)) < 20 * SECOND
    queue.update_message(received.id, updated.pop_receipt, visibility_timeout=0)
    assert contents(queue.peek_messages()) == ["kept"]


def test_update_can_empty_the_content(queue):
    queue.send_message("full")
    received = queue.receive_message(visibility_timeout=600)
    queue.update_message(received.id, received.pop_receipt, content="", visibility_timeout=0)
    assert queue.receive_message().content == ""


def test_update_counts_from_now(queue):
    queue.send_message("text")
    received = queue.receive_message(visibility_timeout=600)
    began = time.monotonic()
    queue.update_message(received.id, received.pop_receipt, visibility_timeout=1)
    again = wait_until_received(queue, began)
    assert again.dequeue_count == 2


def test_the_receipt_of_a_send_is_good_at_once(queue):
    sent = queue.send_message("first")
    updated = queue.update_message(sent, content="second", visibility_timeout=0)
    assert contents(queue.peek_messages()) == ["second"]
    queue.delete_message(sent.id, updated.pop_receipt)
    assert queue.peek_messages() == []


def test_a_late_receipt_is_good_as_long_as_nobody_receives(queue):
    queue.send_message("text")
    received = queue.receive_message(visibility_timeout=1)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not queue.peek_messages():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    queue.delete_message(received)
    assert queue.peek_messages() == []


def test_delete_twice(queue, refused):
    queue.send_message("text")
    received = queue.receive_message()
    queue.delete_message(received)
    with refused(404, "MessageNotFound", ResourceNotFoundError):
        queue.delete_message(received)


def test_a_receipt_ends_with_the_next_receive(queue, refused):
    queue.send_message("text")
    began = time.monotonic()
    first = queue.receive_message(visibility_timeout=1)
    second = wait_until_received(queue, began)
    for operation in [
        lambda: queue.delete_message(first),
        lambda: queue.update_message(first, content="stolen", visibility_timeout=0),
    ]:
        with refused(404, "MessageNotFound", ResourceNotFoundError):
            operation()
    queue.update_message(second, visibility_timeout=0)
    assert contents(queue.peek_messages()) == ["text"]


def test_a_receipt_ends_with_an_update(queue, refused):
    queue.send_message("text")
    first = queue.receive_message()
    old = first.pop_receipt
    new = queue.update_message(first.id, old, visibility_timeout=60).pop_receipt
    with refused(404, "MessageNotFound", ResourceNotFoundError):
        queue.delete_message(first.id, old)
    queue.delete_message(first.id, new)


def test_a_receipt_of_another_message_is_not_good(queue, refused):
    first, second = queue.send_message("1"), queue.send_message("2")
    with refused(404, "MessageNotFound", ResourceNotFoundError):
        queue.delete_message(first.id, second.pop_receipt)
    assert contents(queue.peek_messages(max_messages=32)) == ["1", "2"]


def test_clear_takes_hidden_messages_too(queue, refused):
    for _ in range(3):
        queue.send_message("text")
    held = queue.receive_message(visibility_timeout=600)
    queue.send_message("later", visibility_timeout=600)
    queue.clear_messages()
    assert queue.get_queue_properties().approximate_message_count == 0
    with refused(404, "MessageNotFound", ResourceNotFoundError):
        queue.delete_message(held)
    queue.send_message("new")
    assert contents(queue.receive_messages()) == ["new"]


def test_queues_are_apart(service, name, refused):
    one, two = (service.create_queue(f"{name}-{suffix}") for suffix in "ab")
    with one, two:
        sent = one.send_message("one")
        assert two.receive_message() is None
        with refused(404, "MessageNotFound", ResourceNotFoundError):
            two.delete_message(sent)
        assert contents(one.peek_messages()) == ["one"]
