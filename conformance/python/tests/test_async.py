"""The asynchronous client, which sends requests in another way (it signs through yarl)."""

import asyncio

import pytest
from azure.core.exceptions import ResourceExistsError, ResourceNotFoundError
from azure.storage.queue.aio import QueueClient, QueueServiceClient


def test_messages(door, name):
    async def scenario():
        text = door.connection_string
        async with QueueClient.from_connection_string(text, name, **door.options) as queue:
            await queue.create_queue(metadata={"colour": "green"})
            await queue.set_queue_metadata({"FooBar": "a  b", "a_b": "1", "ab": "2"})
            for content in ["1", "<&> 🐦", "x" * 65536]:
                await queue.send_message(content)
            peeked = await queue.peek_messages(max_messages=32)
            received = [m async for m in queue.receive_messages(visibility_timeout=600)]
            assert [m.content for m in peeked] == [m.content for m in received]
            assert received[1].content == "<&> 🐦"
            updated = await queue.update_message(received[0], content="new", visibility_timeout=0)
            with pytest.raises(ResourceNotFoundError) as caught:
                await queue.delete_message(received[0].id, received[0].pop_receipt)
            assert caught.value.error_code == "MessageNotFound"
            await queue.delete_message(received[0].id, updated.pop_receipt)
            properties = await queue.get_queue_properties()
            assert properties.approximate_message_count == 2
            await queue.clear_messages()
            with pytest.raises(ResourceExistsError):
                await queue.create_queue()
            await queue.delete_queue()

    asyncio.run(scenario())


def test_lists(door, name):
    async def scenario():
        text = door.connection_string
        async with QueueServiceClient.from_connection_string(text, **door.options) as service:
            for end in "cab":
                await service.create_queue(f"{name}-{end}")
            for prefix in [f"{name}-", "a+b", "a b", "ä", "a=b&c=d"]:
                pages = service.list_queues(name_starts_with=prefix, results_per_page=2).by_page()
                found = [queue.name async for page in pages async for queue in page]
                expected = [f"{name}-{end}" for end in "abc"] if prefix == f"{name}-" else []
                assert found == expected

    asyncio.run(scenario())


def test_many_at_once(door, name):
    async def scenario():
        text = door.connection_string
        async with QueueClient.from_connection_string(text, name, **door.options) as queue:
            await queue.create_queue()
            await asyncio.gather(*(queue.send_message(str(number)) for number in range(64)))
            pages = queue.receive_messages(messages_per_page=32, visibility_timeout=600)
            assert sorted([int(message.content) async for message in pages]) == list(range(64))

    asyncio.run(scenario())
