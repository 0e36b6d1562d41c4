"""qpid-proton with a broker, over a socket: the example of kew-amqp, or kew itself."""

import sys
import time
import traceback

from proton import ConnectionException, Delivery, Message, Timeout
from proton import symbol, timestamp, ulong
from proton.handlers import MessagingHandler
from proton.reactor import Container, SenderOption
from proton.utils import BlockingConnection, LinkDetached, SendException

PORT = int(sys.argv[1])
URL = f"amqp://127.0.0.1:{PORT}"
# Every operation on kew needs a rule and its key, and its queues have these names.
IS_KEW = len(sys.argv) > 2
USER, PASSWORD = sys.argv[2:4] if IS_KEW else ("user", "secret")
OPTIONS = {"allowed_mechs": "ANONYMOUS"}
if IS_KEW:
    OPTIONS = {"allowed_mechs": "PLAIN", "user": USER, "password": PASSWORD, "allow_insecure_mechs": True}
QUEUES = {}


def queue(name):
    if IS_KEW:
        return QUEUES.setdefault(name, f"plain-{len(QUEUES) + 1}")
    return name


def connect(**options):
    return BlockingConnection(URL, timeout=20, **{**OPTIONS, **options})


def a_hundred_messages_in_many_frames_each():
    connection = connect()
    sender = connection.create_sender(queue("large"))
    bodies = [bytes([number]) * (100 + number * 700) for number in range(100)]
    for number, body in enumerate(bodies):
        sender.send(Message(id=number, body=body, subject="s"))
    receiver = connection.create_receiver(queue("large"), credit=10)
    for number, body in enumerate(bodies):
        message = receiver.receive()
        assert message.id == number, (message.id, number)
        assert bytes(message.body) == body, number
        # Tags of kew have any bytes, which these bindings cannot read.
        assert IS_KEW or len(receiver.fetcher.unsettled[-1].tag) == 16
        assert message.delivery_count == 0
        receiver.accept()
    nothing_is_left(receiver)
    connection.close()


def every_part_of_a_message_survives():
    sent = Message(
        id=ulong(7), correlation_id="c", subject="label", address="to", reply_to="back",
        content_type=symbol("text/plain"), group_id="g", group_sequence=3, user_id=b"u",
        properties={"int": 1, "text": "ü", "list": None, "time": timestamp(5)},
        annotations={symbol("x-opt-partition-key"): "p"}, body={"k": [1, 2.5, None]},
        ttl=60.0, priority=7, durable=True)
    connection = connect()
    connection.create_sender(queue("parts")).send(sent)
    receiver = connection.create_receiver(queue("parts"))
    got = receiver.receive()
    receiver.accept()
    for field in ("id", "correlation_id", "subject", "address", "reply_to", "content_type",
                  "group_id", "group_sequence", "user_id", "properties", "body", "ttl",
                  "priority", "durable"):
        assert getattr(got, field) == getattr(sent, field), field
    assert got.annotations[symbol("x-opt-sequence-number")] > 0
    connection.close()


def outcomes_do_what_they_say():
    connection = connect()
    connection.create_sender(queue("outcomes")).send(Message(body="x"))
    receiver = connection.create_receiver(queue("outcomes"), credit=1)
    assert receiver.receive().delivery_count == 0
    receiver.release(delivered=False)
    assert receiver.receive().delivery_count == 0
    receiver.release(delivered=True)
    assert receiver.receive().delivery_count == 1
    receiver.reject()
    nothing_is_left(receiver)
    connection.close()


def a_missing_queue_is_refused():
    connection = connect()
    for create in (connection.create_sender, connection.create_receiver):
        try:
            create("missing")
        except LinkDetached as refused:
            assert refused.condition == "amqp:not-found", refused.condition
        else:
            raise AssertionError("it was attached")
    connection.create_sender(queue("there")).send(Message(body="still works"))
    connection.close()


def a_message_that_is_too_large_is_rejected():
    connection = connect()
    sender = connection.create_sender(queue("size"))
    for size in 1_100_000, 5_000_000:
        sender.send(Message(body=b"x" * 1_000_000))
        try:
            sender.send(Message(body=b"x" * size))
        except SendException as refused:
            assert refused.state == Delivery.REJECTED, refused.state
        else:
            raise AssertionError("it was taken")
    connection.close()


def mechanisms():
    connect(allowed_mechs="PLAIN", user=USER, password=PASSWORD,
            allow_insecure_mechs=True).close()
    try:
        connect(allowed_mechs="PLAIN", user=USER, password="wrong", allow_insecure_mechs=True)
    except ConnectionException:
        pass
    else:
        raise AssertionError("a wrong password was taken")


def heartbeats_keep_a_connection():
    # A client ends a connection over which nothing comes for so long, and a virtual machine can stand still for seconds.
    connection = connect(heartbeat=7)
    receiver = connection.create_receiver(queue("idle"))
    try:
        receiver.receive(timeout=16)
    except Timeout:
        pass
    connection.create_sender(queue("idle")).send(Message(body="alive"))
    assert receiver.receive().body == "alive"
    receiver.accept()
    connection.close()


class Drain(MessagingHandler):
    """Drains a queue with fewer messages than credit."""

    def __init__(self, wanted):
        super().__init__(prefetch=0, auto_accept=True)
        self.wanted, self.got, self.drained = wanted, 0, False

    def on_start(self, event):
        self.connection = event.container.connect(URL, reconnect=False, **OPTIONS)
        self.receiver = event.container.create_receiver(self.connection, queue("drain"))
        self.timer = event.container.schedule(20, self)

    def on_link_opened(self, event):
        event.receiver.drain(50)

    def on_message(self, event):
        self.got += 1
        self.check()

    def on_link_flow(self, event):
        self.check()

    def check(self):
        if self.got == self.wanted and self.receiver.credit == 0 and not self.drained:
            self.drained = True
            self.timer.cancel()
            self.connection.close()

    def on_timer_task(self, event):
        self.connection.close()


def drain():
    for wanted in (0, 1, 7):
        connection = connect()
        sender = connection.create_sender(queue("drain"))
        for _ in range(wanted):
            sender.send(Message(body="x"))
        connection.close()
        handler = Drain(wanted)
        Container(handler).run()
        assert handler.drained, (wanted, handler.got, handler.receiver.credit)


class Passes(MessagingHandler):
    """Receives a message and sends another one in a transaction, which is committed or rolled back."""

    def __init__(self, commits):
        super().__init__(prefetch=1, auto_accept=False)
        self.commits, self.ended = commits, None

    def on_start(self, event):
        self.connection = event.container.connect(URL, reconnect=False, **OPTIONS)
        self.receiver = event.container.create_receiver(self.connection, queue("from"))
        self.sender = event.container.create_sender(self.connection, queue("to"))
        self.timer = event.container.schedule(20, self)

    def on_message(self, event):
        self.taken = event.delivery
        event.container.declare_transaction(self.connection, handler=self)

    def on_transaction_declared(self, event):
        event.transaction.send(self.sender, Message(body="y"))
        event.transaction.accept(self.taken)
        if self.commits:
            event.transaction.commit()
        else:
            event.transaction.abort()

    def on_transaction_committed(self, event):
        self.end("committed")

    def on_transaction_aborted(self, event):
        self.end("aborted")

    def on_transaction_declare_failed(self, event):
        self.end("not declared")

    def on_transaction_commit_failed(self, event):
        self.end("not committed")

    def on_timer_task(self, event):
        self.connection.close()

    def end(self, how):
        self.ended = how
        self.timer.cancel()
        self.connection.close()


def transactions():
    connection = connect()
    source = connection.create_sender(queue("from"))
    source.send(Message(body="x"))
    target = connection.create_receiver(queue("to"))
    handler = Passes(False)
    Container(handler).run()
    assert handler.ended == "aborted", handler.ended
    nothing_is_left(target)
    # Another queue: the first message may still be locked.
    source.send(Message(body="x"))
    handler = Passes(True)
    Container(handler).run()
    assert handler.ended == "committed", handler.ended
    assert target.receive().body == "y"
    target.accept()
    nothing_is_left(target)
    connection.close()


class Via(SenderOption):
    """Sends via the target of the link to this entity."""

    def __init__(self, destination):
        self.destination = destination

    def apply(self, sender):
        sender.properties = {symbol("com.microsoft:transfer-destination-address"): self.destination}


def sends_via_a_queue():
    connection = connect()
    via, destination = queue("via"), queue("destination")
    connection.create_sender(via, name="arrives", options=Via(destination)).send(Message(body="x"))
    receiver = connection.create_receiver(destination)
    assert receiver.receive().body == "x"
    receiver.accept()
    # The message has no session.
    connection.create_sender(via, name="fails", options=Via("session-1")).send(Message(body="y"))
    letters = connection.create_receiver(f"{via}/$Transfer/$DeadLetterQueue")
    letter = letters.receive()
    assert letter.body == "y"
    assert letter.properties["DeadLetterReason"] == "Session id is null.", letter.properties
    assert "'session-1'" in letter.properties["DeadLetterErrorDescription"], letter.properties
    letters.accept()
    nothing_is_left(letters)
    nothing_is_left(connection.create_receiver(via))
    connection.close()


MANY = 50 if IS_KEW else 200


def many_sessions_and_links():
    connection = connect()
    senders = [connection.create_sender(queue(f"many-{number}")) for number in range(MANY)]
    for sender in senders:
        sender.send(Message(body="x"))
    for sender in senders[::2]:
        sender.close()
    for number in range(MANY):
        receiver = connection.create_receiver(queue(f"many-{number}"))
        receiver.receive()
        receiver.accept()
        receiver.close()
    connection.close()


def nothing_is_left(receiver):
    try:
        receiver.receive(timeout=0.3)
    except Timeout:
        return
    raise AssertionError("something was left")


SCENARIOS = [
    a_hundred_messages_in_many_frames_each,
    every_part_of_a_message_survives,
    outcomes_do_what_they_say,
    a_missing_queue_is_refused,
    a_message_that_is_too_large_is_rejected,
    mechanisms,
    heartbeats_keep_a_connection,
    drain,
    many_sessions_and_links,
]
if IS_KEW:
    # The example has neither.
    SCENARIOS += [transactions, sends_via_a_queue]

failed = 0
for scenario in SCENARIOS:
    began = time.monotonic()
    try:
        scenario()
        result = "ok"
    except Exception:
        traceback.print_exc()
        result = "FAILED"
        failed += 1
    print(f"{scenario.__name__}: {result}, {time.monotonic() - began:.1f} s", flush=True)
print(f"{len(SCENARIOS) - failed} passed, {failed} failed")
sys.exit(failed > 0)
