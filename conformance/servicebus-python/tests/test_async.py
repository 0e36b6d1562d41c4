"""The asynchronous clients, over the same wire."""

import asyncio
import datetime

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION
from azure.servicebus import ServiceBusMessage as Message
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import MessageSizeExceededError
from conftest import fresh, missing


# The asynchronous clients have no WebSockets without another library.
pytestmark = pytest.mark.parametrize("door", ["amqp", "amqps"], indirect=True)


async def take(receiver, count):
    messages = []
    while len(messages) < count:
        found = await receiver.receive_messages(count - len(messages), max_wait_time=60)
        assert found
        messages += found
    return messages


def test_messages(door):
    async def scenario():
        queue = fresh()
        async with door.connect(kind=ServiceBusClient) as client:
            async with client.get_queue_sender(queue) as sender:
                await sender.send_messages([Message(str(number)) for number in range(20)])
            async with client.get_queue_receiver(queue) as receiver:
                messages = await take(receiver, 20)
                assert [str(message) for message in messages] == [str(number) for number in range(20)]
                await asyncio.gather(*[receiver.complete_message(message) for message in messages])
                assert await receiver.peek_messages(5) == []
            with missing("absent"):
                await client.get_queue_receiver("absent").receive_messages(1, max_wait_time=20)

    asyncio.run(scenario())


def test_a_received_message_is_sent_again(door):
    async def scenario():
        queue = fresh()
        async with door.connect(kind=ServiceBusClient) as client:
            async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
                await sender.send_messages(Message("x"))
                (message,) = await take(receiver, 1)
                await sender.send_messages(message)
                await sender.send_messages([message, message])
                now = datetime.datetime.now(datetime.timezone.utc)
                assert len(await sender.schedule_messages(message, now)) == 1
                await receiver.complete_message(message)
                again = await take(receiver, 4)
                assert {str(message) for message in again} == {"x"}
                assert len({message.lock_token for message in again} - {message.lock_token}) == 4
                with pytest.raises(MessageSizeExceededError):
                    await sender.send_messages(Message(b"x" * (1 << 20)))
                await sender.send_messages(Message("small"))

    asyncio.run(scenario())


def test_sessions(door):
    async def scenario():
        queue = fresh("session")
        async with door.connect(kind=ServiceBusClient) as client:
            async with client.get_queue_sender(queue) as sender:
                await sender.send_messages(Message("x", session_id="s"))
            async with client.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION) as receiver:
                assert receiver.session.session_id == "s"
                await receiver.session.set_state(b"state")
                assert await receiver.session.get_state() == b"state"
                (message,) = await take(receiver, 1)
                await receiver.complete_message(message)

    asyncio.run(scenario())
