"""An application of Celery, as a worker finds it. BROKER_URL names the broker."""

import os

from celery import Celery

app = Celery("tasks", broker=os.environ["BROKER_URL"], backend=f"file://{os.environ['RESULTS']}")
app.conf.task_default_queue = os.environ["QUEUE"]
app.conf.broker_connection_retry_on_startup = True
if os.environ["BROKER_URL"].startswith("azureservicebus"):
    app.conf.task_acks_late = True
    app.conf.broker_transport_options = {"peek_lock_seconds": 60, "use_lock_renewal": True, "wait_time_seconds": 1}


@app.task
def add(one, other):
    return one + other


@app.task(bind=True, max_retries=2, default_retry_delay=1)
def third_time_lucky(self):
    if self.request.retries < 2:
        raise self.retry()
    return "done"
