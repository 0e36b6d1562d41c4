"""An application of FastStream: handlers of a queue and of a subscription."""

import asyncio
import os

import kew
import pytest
from faststream import AckPolicy
from faststream_azure_servicebus import ServiceBusBroker

DOORS = {
    "amqp": {"connection_string": os.environ["KEW_BUS_CONNECTION_STRING"]},
    "amqps": {"connection_string": os.environ["KEW_BUS_CONNECTION_STRING_TLS"], "connection_verify": kew.CA},
}


async def expect(got, *wanted):
    missing = set(wanted)
    while missing:
        missing.discard(await asyncio.wait_for(got.get(), kew.PATIENCE))


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    "to, source, entity",
    [
        ({"queue": "orders"}, {"queue": "orders"}, "orders"),
        ({"topic": "news"}, {"topic": "news", "subscription": "mail"}, "news/subscriptions/mail"),
    ],
    ids=["queue", "topic"],
)
def test_a_handler_gets_what_is_published(door, to, source, entity):
    async def application():
        broker = ServiceBusBroker(**DOORS[door])
        got = asyncio.Queue()
        refused = []

        @broker.subscriber(**source, max_wait_time=1, ack_policy=AckPolicy.NACK_ON_ERROR)
        async def handle(body: dict) -> None:
            if body["number"] == 2 and not refused:
                refused.append(body)
                raise ValueError("not yet")
            await got.put(body["number"])

        await broker.start()
        try:
            await broker.publish({"number": 1}, **to)
            await broker.publish_batch({"number": 2}, {"number": 3}, **to)
            await expect(got, 1, 2, 3)
            await asyncio.to_thread(kew.eventually, lambda: kew.count("bus", entity) == 0)
        finally:
            await broker.stop()
        assert refused

    asyncio.run(application())


@pytest.mark.parametrize("door", DOORS)
def test_a_request_gets_its_reply(door):
    async def application():
        broker = ServiceBusBroker(**DOORS[door])

        @broker.subscriber(queue="orders", max_wait_time=1)
        async def handle(body: dict) -> dict:
            return {"answer": body["value"] * 2}

        await broker.start()
        try:
            reply = await broker.request({"value": 21}, queue="orders", reply_to="other-orders", timeout=kew.PATIENCE)
            assert await reply.decode() == {"answer": 42}
        finally:
            await broker.stop()

    asyncio.run(application())


def test_what_a_handler_cannot_do_becomes_a_dead_letter():
    async def application():
        broker = ServiceBusBroker(**DOORS["amqp"])

        @broker.subscriber(queue="orders", max_wait_time=1)
        async def handle(body: dict) -> None:
            raise ValueError("never")

        await broker.start()
        try:
            await broker.publish({"number": 1}, queue="orders")
            await asyncio.to_thread(kew.eventually, lambda: '"dead_letters":1' in kew.run("bus", "show", "--json", "orders"))
        finally:
            await broker.stop()

    asyncio.run(application())
