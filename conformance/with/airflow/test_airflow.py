"""Operators and the triggers of Airflow's provider for Azure. An operator does what a task does in a DAG."""

import asyncio
import itertools
import json
import os

import kew
import pytest
from airflow.providers.microsoft.azure.operators.asb import (
    ASBReceiveSubscriptionMessageOperator,
    AzureServiceBusCreateQueueOperator,
    AzureServiceBusDeleteQueueOperator,
    AzureServiceBusReceiveMessageOperator,
    AzureServiceBusSendMessageOperator,
    AzureServiceBusSubscriptionCreateOperator,
    AzureServiceBusSubscriptionDeleteOperator,
    AzureServiceBusTopicCreateOperator,
    AzureServiceBusTopicDeleteOperator,
    AzureServiceBusUpdateSubscriptionOperator,
)
from airflow.providers.microsoft.azure.triggers.message_bus import (
    AzureServiceBusQueueTrigger,
    AzureServiceBusSubscriptionTrigger,
)
from azure.servicebus.management import SqlRuleFilter

# The emulator's string, and that of TLS. Python's client for administration uses HTTPS with both.
STRINGS = {"amqp": "KEW_BUS_CONNECTION_STRING", "amqps": "KEW_BUS_CONNECTION_STRING_TLS"}
numbers = itertools.count()


@pytest.fixture(params=STRINGS, autouse=True)
def door(request, monkeypatch):
    connection = {"conn_type": "azure_service_bus", "schema": os.environ[STRINGS[request.param]]}
    monkeypatch.setenv("AIRFLOW_CONN_AZURE_SERVICE_BUS_DEFAULT", json.dumps(connection))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", kew.CA)
    return request.param


def do(operator, **settings):
    return operator(task_id=f"task-{next(numbers)}", **settings).execute({})


def received(operator, **settings):
    got = []
    do(operator, max_wait_time=10, message_callback=lambda message, context: got.append(str(message)), **settings)
    return got


def test_messages_of_a_queue(door):
    queue = f"airflow-{door}"
    do(AzureServiceBusCreateQueueOperator, queue_name=queue)
    do(AzureServiceBusSendMessageOperator, queue_name=queue, message="one")
    do(AzureServiceBusSendMessageOperator, queue_name=queue, message=["two", "three"], batch=True)
    got = []
    while len(got) < 3:
        more = received(AzureServiceBusReceiveMessageOperator, queue_name=queue, max_message_count=3)
        assert more
        got += more
    assert got == ["one", "two", "three"]
    assert kew.count("bus", queue) == 0
    do(AzureServiceBusDeleteQueueOperator, queue_name=queue)
    assert queue not in kew.run("bus", "list")


def test_messages_of_a_subscription(door):
    topic = f"airflow-topic-{door}"
    do(AzureServiceBusTopicCreateOperator, topic_name=topic)
    where = {"topic_name": topic, "subscription_name": "mail"}
    rule = SqlRuleFilter("sys.ContentType IS NULL OR color = 'red'")
    do(AzureServiceBusSubscriptionCreateOperator, filter_rule=rule, filter_rule_name="red", **where)
    assert "red" in kew.run("bus", "rule", "list", f"{topic}/subscriptions/mail")
    do(AzureServiceBusUpdateSubscriptionOperator, max_delivery_count=5, **where)
    assert '"max_delivery_count":5' in kew.run("bus", "show", "--json", f"{topic}/subscriptions/mail")
    kew.run("bus", "send", topic, "hello")
    assert received(ASBReceiveSubscriptionMessageOperator, max_message_count=1, **where) == ["hello"]
    do(AzureServiceBusSubscriptionDeleteOperator, **where)
    do(AzureServiceBusTopicDeleteOperator, topic_name=topic)


def first_event(trigger):
    async def run():
        return await asyncio.wait_for(anext(trigger.run()), kew.PATIENCE)

    return asyncio.run(run()).payload["message"]


def test_triggers():
    kew.run("bus", "send", "orders", "one")
    assert first_event(AzureServiceBusQueueTrigger(queues=["orders"], poll_interval=1, max_wait_time=5)) == "one"
    kew.run("bus", "send", "news", "two")
    trigger = AzureServiceBusSubscriptionTrigger(
        topics=["news"], subscription_name="mail", poll_interval=1, max_wait_time=5
    )
    assert first_event(trigger) == "two"
