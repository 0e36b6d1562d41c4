"""What was accepted outlives a kill of the server."""

import datetime

from azure.servicebus import ServiceBusMessage as Message
from azure.servicebus import ServiceBusSubQueue
from conftest import drop, is_empty, put, take, texts


def test_everything_is_there_after_a_kill(killable):
    later = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1)
    with killable.connect() as client:
        put(client, "plain", *[str(number) for number in range(20)])
        with client.get_queue_receiver("plain") as receiver:
            letter, deferred, locked = take(receiver, 3)
            receiver.dead_letter_message(letter, reason="why")
            receiver.defer_message(deferred)
            assert str(locked) == "2"
        with client.get_queue_sender("plain") as sender:
            (number,) = sender.schedule_messages(Message("scheduled"), later)
        put(client, "unique", Message("first", message_id="a"))
        put(client, "session", Message("x", session_id="s"))
        with client.get_queue_receiver("session", session_id="s") as receiver:
            receiver.session.set_state(b"so far")
    killable.kill()
    killable.start()
    with killable.connect() as client:
        with client.get_queue_receiver("plain") as receiver:
            # One is locked still.
            assert texts(take(receiver, 17)) == [str(number) for number in range(3, 20)]
            assert is_empty(receiver)
            (again,) = receiver.receive_deferred_messages(deferred.sequence_number)
            assert str(again) == "1"
            scheduled = receiver.peek_messages(1, sequence_number=number)
            assert [(str(message), message.state.name) for message in scheduled] == [("scheduled", "SCHEDULED")]
        with client.get_queue_receiver("plain", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as letters:
            assert drop(letters).dead_letter_reason == "why"
        put(client, "unique", Message("second", message_id="a"))
        with client.get_queue_receiver("unique") as receiver:
            assert str(drop(receiver)) == "first"
            assert is_empty(receiver)
        with client.get_queue_receiver("session", session_id="s") as receiver:
            assert receiver.session.get_state() == b"so far"
            drop(receiver)
