"""Celery's own worker, started as a user starts it. One process sends tasks, and another does them."""

import importlib
import os
import signal
import subprocess
import sys

import kew
import pytest


def parts(connection):
    return dict(part.split("=", 1) for part in connection.split(";") if part)


def storage(variable):
    account = parts(os.environ[variable])
    return f"azurestoragequeues://{account['AccountKey']}@{account['QueueEndpoint']}"


def service_bus():
    if not os.environ["KEW_BUS_HTTPS"]:
        pytest.skip("Celery creates its queues by port 443")
    rule = parts(os.environ["KEW_BUS_CONNECTION_STRING"])
    return f"azureservicebus://{rule['SharedAccessKeyName']}:{rule['SharedAccessKey']}@{os.environ['KEW_BUS_NAME']}"


URLS = {
    "storage-http": lambda: storage("KEW_QUEUE_CONNECTION_STRING"),
    "storage-https": lambda: storage("KEW_QUEUE_CONNECTION_STRING_TLS"),
    "service-bus": service_bus,
}


@pytest.mark.parametrize("broker", URLS)
def test_a_worker_does_tasks(broker, tmp_path, monkeypatch):
    queue = f"celery-{broker}"
    monkeypatch.setenv("BROKER_URL", URLS[broker]())
    monkeypatch.setenv("RESULTS", str(tmp_path))
    monkeypatch.setenv("QUEUE", queue)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", kew.CA)
    worker = subprocess.Popen(
        [sys.executable, "-m", "celery", "-A", "tasks", "worker", "--concurrency", "2", "--loglevel", "warning"],
        stdout=subprocess.DEVNULL,
    )
    try:
        sys.modules.pop("tasks", None)
        tasks = importlib.import_module("tasks")
        sums = [tasks.add.delay(number, 1) for number in range(10)]
        lucky = tasks.third_time_lucky.delay()
        put_off = tasks.add.apply_async((1, 2), countdown=2)
        assert [each.get(timeout=60) for each in sums] == list(range(1, 11))
        assert lucky.get(timeout=60) == "done"
        assert put_off.get(timeout=60) == 3
        service = "bus" if broker == "service-bus" else "queue"
        kew.eventually(lambda: kew.count(service, queue) == 0)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(timeout=60) == 0
    finally:
        worker.kill()
        worker.wait()
