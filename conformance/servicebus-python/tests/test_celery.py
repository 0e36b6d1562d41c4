"""Celery: tasks for a worker, which runs in this process."""

import pytest
from celery import Celery
from celery.contrib.testing.worker import start_worker
from conftest import assert_emptied, fresh


@pytest.fixture
def app(kombu_url):
    app = Celery("tasks", broker=kombu_url, backend="cache+memory://", set_as_current=False)
    app.conf.task_default_queue = fresh("x-celery")
    app.conf.task_acks_late = True
    app.conf.broker_transport_options = {"wait_time_seconds": 1, "use_lock_renewal": True}
    return app


def test_tasks_are_done(app):
    @app.task
    def add(one, other):
        return one + other

    @app.task(bind=True, max_retries=2, default_retry_delay=1)
    def third_time_lucky(self):
        if self.request.retries < 2:
            raise self.retry()
        return "done"

    with start_worker(app, perform_ping_check=False, shutdown_timeout=30):
        put_off = add.apply_async((1, 2), countdown=2)
        sums = [add.delay(number, 1) for number in range(20)]
        lucky = third_time_lucky.delay()
        assert [each.get(timeout=40) for each in sums] == list(range(1, 21))
        assert (lucky.get(timeout=40), put_off.get(timeout=40)) == ("done", 3)
    with app.connection().SimpleQueue(app.conf.task_default_queue) as queue:
        assert_emptied(queue.qsize)
