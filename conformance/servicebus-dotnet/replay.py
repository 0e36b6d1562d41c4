"""Sends the .NET SDK's frames, one by one, and checks the parts that it would read. See README.md."""

import os
import sys
import threading
import time
import traceback
import uuid

import wire
from administration import Administration, Failed, elements, rule, typed, values
from client import (
    ACCEPTED, BATCH_FORMAT, DETACH, END, MODIFIED, REJECTED, RELEASED, SOURCE, TRANSACTIONAL, TRANSFER, Bus,
    Connection, Controller, Door, Management, Refused, accepted, modified, rejected, released, transactional,
)
from wire import NULL, Value, boolean, fields, int_, long, string, uint

TAKEN = {}
MUTEX = threading.Lock()


def fresh(kind):
    """An empty queue of this kind that no other scenario uses."""
    with MUTEX:
        TAKEN[kind] = TAKEN.get(kind, 0) + 1
        return f"{kind}-{TAKEN[kind]}"


def refused(condition, attach):
    try:
        attach()
    except Refused as error:
        assert error.args == (condition,), error
    else:
        raise AssertionError(f"expected {condition}")


def put(bus, queue, *bodies, session=None):
    sender = bus.sender(queue)
    for number, body in enumerate(bodies):
        payload = wire.message(body, f"{number}-{uuid.uuid4().hex}", session)
        assert sender.send(payload) == (ACCEPTED, None)
    return sender


def take(receiver, count=1):
    receiver.flow(count)
    return [receiver.receive() for _ in range(count)]


def is_empty(receiver):
    receiver.flow(1, drain=True)
    receiver.drained()


def tokens(bus):
    assert bus.put_token("/plain-1") in (200, 202)
    assert bus.put_token("/plain-1", key="wrong") == 401
    assert bus.put_token("/plain-1", ttl_seconds=-10) == 401
    # Other links of the same connection still work.
    bus.sender("plain-1")


def a_message_is_sent_and_received(bus):
    queue = fresh("plain")
    sender = put(bus, queue, b"one", b"two")
    receiver = bus.receiver(queue)
    assert receiver.answer[5].value.value[0] == Value("string", f"/{queue}")
    first, second = take(receiver, 2)
    assert (first.message.body, second.message.body) == (b"one", b"two")
    assert len(first.tag) == 16 and first.tag != second.tag and not first.is_settled
    assert first.delivery_count == 0
    now = time.time() * 1000
    assert abs(first.annotation("x-opt-enqueued-time", "timestamp") - now) < 60_000
    assert first.annotation("x-opt-locked-until", "timestamp") > now
    assert first.number < second.number
    assert first.annotation("x-opt-enqueue-sequence-number", "long") == first.number
    for received in (first, second):
        assert receiver.settle(received.delivery, accepted) == (ACCEPTED, None)
    is_empty(receiver)
    receiver.close()
    sender.close()


def outcomes_are_answered_with_the_same(bus):
    queue = fresh("plain")
    put(bus, queue, b"abandon", b"change", b"defer", b"letter", b"explained", b"release")
    receiver = bus.receiver(queue)
    abandon, change, defer, letter, explained, release = take(receiver, 6)
    properties = fields({"tried": int_(1)})
    why = {"DeadLetterReason": string("no good"), "DeadLetterErrorDescription": string("at all"), "n": int_(7)}
    for received, state, code in [
        (abandon, modified(), MODIFIED),
        (change, modified(annotations=properties), MODIFIED),
        (defer, modified(boolean(True)), MODIFIED),
        (letter, rejected(), REJECTED),
        (explained, rejected(why), REJECTED),
        (release, released, RELEASED),
    ]:
        assert receiver.settle(received.delivery, state) == (code, None), received.message.body
    again = take(receiver, 3)
    assert [it.message.body for it in again] == [b"abandon", b"change", b"release"]
    assert [it.delivery_count for it in again] == [1, 1, 0]
    application = again[1].message.section(wire.APPLICATION_PROPERTIES)
    assert application["tried"] == Value("int", 1), application
    letters = bus.receiver(f"{queue}/$DeadLetterQueue")
    found = take(letters, 2)
    application = found[1].message.section(wire.APPLICATION_PROPERTIES)
    assert application["DeadLetterReason"] == Value("string", "no good"), application
    assert application["n"] == Value("int", 7), application


def a_range_is_settled_at_once(bus):
    queue = fresh("plain")
    put(bus, queue, *[b"%d" % number for number in range(20)])
    receiver = bus.receiver(queue)
    messages = take(receiver, 20)
    receiver.dispose(messages[0].delivery, accepted, messages[-1].delivery)
    for received in messages:
        assert receiver.outcome(received.delivery) == (ACCEPTED, None)
    is_empty(receiver)


def a_lock_that_is_lost(bus):
    queue = fresh("brief")
    put(bus, queue, b"x")
    receiver, other = bus.receiver(queue), bus.receiver(queue)
    (received,) = take(receiver)
    (again,) = take(other)
    assert again.delivery_count == 1 and again.tag != received.tag
    assert receiver.settle(received.delivery, accepted) == (REJECTED, "com.microsoft:message-lock-lost")
    management = bus.management(queue)
    lost = (410, "com.microsoft:message-lock-lost")
    assert management("renew-lock", receiver, lock_tokens=wire.uuids([received.lock])) == lost
    status = {"lock_tokens": wire.uuids([received.lock]), "disposition_status": string("completed")}
    assert management("update-disposition", receiver, **status) == lost
    # An unknown delivery is harmless.
    other.dispose(4_000_000, accepted)
    assert other.settle(again.delivery, accepted) == (ACCEPTED, None)


def a_lock_outlives_its_link(bus):
    """Settles by the token, as .NET does after it lost a link."""
    queue = fresh("plain")
    put(bus, queue, b"x")
    receiver = bus.receiver(queue)
    (received,) = take(receiver)
    receiver.close()
    management = bus.management(queue)
    status = {"lock_tokens": wire.uuids([received.lock]), "disposition_status": string("completed")}
    assert management("update-disposition", **status)[0] == 200
    assert management("peek-message", from_sequence_number=long(0), message_count=int_(1))[0] == 204


def received_and_deleted(bus):
    queue = fresh("plain")
    put(bus, queue, b"x", b"y")
    receiver = bus.receiver(queue, is_deleting=True)
    for received in take(receiver, 2):
        assert received.is_settled and received.tag
        # .NET settles these too; the server does not answer.
        receiver.dispose(received.delivery, accepted, is_settled=True)
    is_empty(receiver)
    assert bus.management(queue)("peek-message", from_sequence_number=long(0), message_count=int_(1))[0] == 204


def drains_of_a_link_that_is_used_again(bus):
    queue = fresh("plain")
    receiver = bus.receiver(queue)
    is_empty(receiver)
    put(bus, queue, b"1", b"2", b"3")
    receiver.flow(10, drain=True)
    found = [receiver.receive() for _ in range(3)]
    receiver.drained()
    assert receiver.delivery_count == 11, receiver.delivery_count
    for received in found:
        assert receiver.settle(received.delivery, accepted) == (ACCEPTED, None)
    put(bus, queue, b"4")
    assert take(receiver)[0].message.body == b"4"


def a_large_message_in_many_frames(bus):
    queue = fresh("plain")
    body = bytes(range(256)) * 2_000
    put(bus, queue, body)
    receiver = bus.receiver(queue)
    assert take(receiver)[0].message.body == body
    sender = bus.sender(queue)
    too_large = wire.message(b"x" * (1 << 20), "large")
    assert sender.send(too_large) == (REJECTED, "amqp:link:message-size-exceeded")
    assert sender.send(wire.message(b"small", "small")) == (ACCEPTED, None)


def a_batch(bus):
    queue = fresh("plain")
    messages = [wire.message(b"%d" % number, f"m{number}") for number in range(10)]
    # The envelope repeats the id of the first message.
    envelope = wire.properties("m0") + b"".join(wire.described(wire.DATA, wire.binary(it)) for it in messages)
    sender = bus.sender(queue)
    assert sender.send(envelope, BATCH_FORMAT) == (ACCEPTED, None)
    found = take(bus.receiver(queue), 10)
    assert [it.message.body for it in found] == [b"%d" % number for number in range(10)]
    assert [it.message.section(wire.PROPERTIES)[0].value for it in found] == [f"m{n}" for n in range(10)]


def requests_about_messages(bus):
    queue = fresh("plain")
    management = bus.management(queue)
    assert management("peek-message", from_sequence_number=long(1), message_count=int_(5)) == (204, {})
    put(bus, queue, b"x", b"y")
    receiver = bus.receiver(queue)
    x, y = take(receiver, 2)
    status, body = management("renew-lock", receiver, lock_tokens=wire.uuids([x.lock, y.lock]))
    kind, (element, times) = body["expirations"]
    assert (status, kind, element, len(times)) == (200, "array", "timestamp", 2), body
    status, body = management("peek-message", receiver, from_sequence_number=long(1), message_count=int_(5))
    assert status == 200 and body["messages"].type == "list", body
    peeked = [wire.Message(entry.value["message"].value) for entry in body["messages"].value]
    assert [entry.value["message"].type for entry in body["messages"].value] == ["binary"] * 2
    assert [it.body for it in peeked] == [b"x", b"y"]
    # Deferred, and settled with every outcome.
    for received, status in ((x, "completed"), (y, "abandoned")):
        assert receiver.settle(received.delivery, modified(boolean(True))) == (MODIFIED, None)
        asked = {"sequence_numbers": wire.longs([received.number]), "receiver_settle_mode": uint(1)}
        answer, body = management("receive-by-sequence-number", receiver, **asked)
        assert answer == 200 and body["messages"].type == "list", body
        (entry,) = body["messages"].value
        assert entry.value["lock-token"].type == "uuid", entry
        assert wire.Message(entry.value["message"].value).body == received.message.body
        lock = uuid.UUID(bytes=entry.value["lock-token"].value)
        more = {"lock_tokens": wire.uuids([lock]), "disposition_status": string(status)}
        assert management("update-disposition", receiver, **more) == (200, {})
    asked = {"sequence_numbers": wire.longs([x.number]), "receiver_settle_mode": uint(1)}
    assert management("receive-by-sequence-number", **asked) == (404, "com.microsoft:message-not-found")
    assert management("what-is-this") == (501, "amqp:not-implemented")


def requests_to_schedule(bus):
    queue = fresh("plain")
    management = bus.management(queue)
    at = int(time.time() * 1000) + 3_600_000
    annotations = {"x-opt-scheduled-enqueue-time": wire.timestamp(at)}

    def entry(number):
        encoded = wire.message(b"later", f"later-{number}", annotations=annotations)
        return wire.map_({"message": wire.binary(encoded), "message-id": string(f"later-{number}")})

    status, body = management("schedule-message", messages=wire.list_(entry(1), entry(2)))
    kind, (element, numbers) = body["sequence-numbers"]
    assert (status, kind, element, len(numbers)) == (200, "array", "long", 2), body
    status, body = management("peek-message", from_sequence_number=long(0), message_count=int_(5))
    peeked = wire.Message(body["messages"].value[0].value["message"].value)
    found = peeked.section(wire.MESSAGE_ANNOTATIONS)
    assert found["x-opt-scheduled-enqueue-time"] == Value("timestamp", at), found
    assert found["x-opt-message-state"] == Value("int", 2), found
    assert management("cancel-scheduled-message", sequence_numbers=wire.longs(numbers)) == (200, {})
    gone = management("cancel-scheduled-message", sequence_numbers=wire.longs(numbers))
    assert gone == (404, "com.microsoft:message-not-found"), gone


def many_requests_at_once(bus):
    queue = fresh("plain")
    put(bus, queue, *[b"%d" % number for number in range(20)])
    management = bus.management(queue)
    ids = {}
    for number in range(40):
        body = {"from_sequence_number": long(number % 20 + 1), "message_count": int_(1)}
        ids[management.post(*management.asked("peek-message", None, body))] = b"%d" % (number % 20)
    # They arrive in any order.
    while ids:
        code, values, payload = management.session.next(
            lambda code, it: code == TRANSFER and it[0].value == management.receiver.theirs)
        message = wire.Message(payload)
        status, body = Management.read(message)
        peeked = wire.Message(body["messages"].value[0].value["message"].value)
        assert peeked.body == ids.pop(message.correlation_id.value)


def a_transaction_of_one_queue(bus):
    """Opens a session for each link, and one for the coordinator, as .NET does without transactions over several
    queues."""
    queue = fresh("plain")
    put(bus, queue, b"x", b"y")
    sender, receiver = bus.sender(queue), bus.receiver(queue)
    controller = Controller(bus.connection.begin())
    x, y = take(receiver, 2)
    first = controller.declare()
    sent = sender.send(wire.message(b"z", "z"), state=transactional(first))
    assert sent == (TRANSACTIONAL, first, (ACCEPTED, None)), sent
    settled = receiver.settle(x.delivery, transactional(first, accepted))
    assert settled == (TRANSACTIONAL, first, (ACCEPTED, None)), settled
    is_empty(receiver)
    assert controller.discharge(first, True) == (ACCEPTED, None)
    assert controller.discharge(first, False) == (REJECTED, "amqp:transaction:unknown-id")
    # The delivery is settled, so later settlements use the management link.
    management = bus.management(queue)
    second = controller.declare()
    for received, status in ((x, "completed"), (y, "suspended")):
        more = {"lock_tokens": wire.uuids([received.lock]), "disposition_status": string(status)}
        assert management.within(second, "update-disposition", receiver, **more) == (200, {})
    status, body = management("peek-message", from_sequence_number=long(0), message_count=int_(5))
    assert status == 200 and len(body["messages"].value) == 2, body
    assert controller.discharge(second, False) == (ACCEPTED, None)
    assert management("peek-message", from_sequence_number=long(0), message_count=int_(5))[0] == 204
    assert take(bus.receiver(f"{queue}/$DeadLetterQueue"))[0].message.body == b"y"


def a_transaction_over_two_queues(bus):
    bus = Bus(bus.door, crosses_entities=True)
    one, other = fresh("plain"), fresh("plain")
    # A transaction may be declared before any token.
    transaction = bus.controller.declare()
    put(bus, one, b"x")
    receiver, sender = bus.receiver(one), bus.sender(other)
    (received,) = take(receiver)
    for state, outcome in ((modified(), MODIFIED), (accepted, ACCEPTED)):
        sent = sender.send(wire.message(b"y", uuid.uuid4().hex), state=transactional(transaction))
        assert sent == (TRANSACTIONAL, transaction, (ACCEPTED, None)), sent
        settled = receiver.settle(received.delivery, transactional(transaction, state))
        assert settled == (TRANSACTIONAL, transaction, (outcome, None)), settled
        assert bus.controller.discharge(transaction, False) == (ACCEPTED, None)
        transaction = bus.controller.declare()
        if outcome == MODIFIED:
            (received,) = take(receiver)
            assert received.delivery_count == 1
    target = bus.receiver(other)
    assert [it.message.body for it in take(target, 2)] == [b"y", b"y"]
    is_empty(receiver)
    bus.close()


def a_transaction_whose_lock_was_lost(bus):
    queue = fresh("brief")
    put(bus, queue, b"x")
    sender, receiver, other = bus.sender(queue), bus.receiver(queue), bus.receiver(queue)
    controller = Controller(bus.connection.begin())
    transaction = controller.declare()
    (received,) = take(receiver)
    assert sender.send(wire.message(b"y", "y"), state=transactional(transaction))[0] == TRANSACTIONAL
    assert receiver.settle(received.delivery, transactional(transaction, accepted))[0] == TRANSACTIONAL
    (again,) = take(other)
    assert again.delivery_count == 1
    assert controller.discharge(transaction, False) == (REJECTED, "amqp:transaction:rollback")
    assert other.settle(again.delivery, accepted) == (ACCEPTED, None)
    is_empty(other)


def sessions(bus):
    queue = fresh("session")
    put(bus, queue, b"1", b"2", session="a")
    receiver = bus.receiver(queue, session=None)
    ticks = receiver.answer[13].value["com.microsoft:locked-until-utc"]
    assert ticks.type == "long", ticks
    left_seconds = (ticks.value - 621355968000000000) / 10_000_000 - time.time()
    assert 30 < left_seconds < 90, left_seconds
    filters = receiver.answer[5].value.value[7].value
    assert filters["com.microsoft:session-filter"] == Value("string", "a"), filters
    refused("com.microsoft:session-cannot-be-locked", lambda: bus.receiver(queue, session="a"))
    # Fewer than requested: .NET drains, so that no message arrives late and out of turn.
    receiver.flow(5)
    found = [receiver.receive() for _ in range(2)]
    receiver.flow(3, drain=True)
    receiver.drained()
    assert [it.message.body for it in found] == [b"1", b"2"]
    management = bus.management(queue)
    named = {"session_id": string("a")}
    status, body = management("renew-session-lock", receiver, **named)
    assert status == 200 and body["expiration"].type == "timestamp", body
    assert management("get-session-state", receiver, **named) == (200, {"session-state": Value("null", None)})
    state = {**named, "session_state": wire.binary(b"so far")}
    assert management("set-session-state", receiver, **state) == (200, {})
    assert management("get-session-state", receiver, **named)[1]["session-state"] == Value("binary", b"so far")
    assert management("set-session-state", receiver, session_state=NULL, **named) == (200, {})
    for received in found:
        assert receiver.settle(received.delivery, accepted) == (ACCEPTED, None)
    receiver.close()
    bus.receiver(queue, session="a").close()
    lost = management("renew-session-lock", receiver, **named)
    assert lost == (410, "com.microsoft:session-lock-lost"), lost


def no_session_in_time(bus):
    queue = fresh("session")
    began = time.monotonic()
    refused("com.microsoft:timeout", lambda: bus.receiver(queue, session=None, timeout_ms=1_500))
    assert 1.3 < time.monotonic() - began < 10
    put(bus, queue, b"x", session="s")
    bus.receiver(queue, session=None)


def a_wait_for_a_session_that_is_given_up(bus):
    """No frame may arrive for a channel that has ended: .NET would close the connection."""
    queue = fresh("session")
    waiting = [bus.begin_receiver(queue, session=None, timeout_ms=2_000) for _ in range(5)]
    for link in waiting:
        link.session.write(DETACH, uint(link.handle), boolean(True), NULL)
        link.session.write(END, NULL)
    for link in waiting:
        link.session.expect(END)
    put(bus, queue, b"x", session="s")
    # None of them has received it.
    receiver = bus.receiver(queue, session=None, timeout_ms=15_000)
    assert take(receiver)[0].message.body == b"x"
    # And the time-out of each has passed.
    refused("com.microsoft:timeout", lambda: bus.receiver(queue, session=None, timeout_ms=2_500))


def a_session_lock_that_runs_out(bus):
    queue = fresh("brief-session")
    put(bus, queue, b"x", session="s")
    receiver = bus.receiver(queue, session=None)
    take(receiver)
    detach = receiver.session.next(lambda code, it: code == DETACH)[1]
    assert detach[2].value.value[0] == Value("symbol", "com.microsoft:session-lock-lost"), detach
    receiver.session.write(DETACH, uint(receiver.handle), boolean(True), NULL)
    receiver.session.end()
    assert take(bus.receiver(queue, session="s"))[0].delivery_count == 1


def what_is_not_there_or_does_not_fit(bus):
    refused("amqp:not-found", lambda: bus.sender("absent"))
    refused("amqp:not-found", lambda: bus.receiver("absent"))
    plain, session = fresh("plain"), fresh("session")
    refused("amqp:not-allowed", lambda: bus.receiver(plain, session="s"))
    refused("amqp:not-allowed", lambda: bus.receiver(session))
    assert bus.sender(session).send(wire.message(b"x", "x")) == (REJECTED, "amqp:not-allowed")
    # The connection still works.
    put(bus, plain, b"x")


def everything_is_closed_at_once(bus):
    """.NET ends a session directly after detaching its link, and does not wait for either answer."""
    queue = fresh("plain")
    put(bus, queue, b"x", b"y")
    receiver = bus.receiver(queue)
    # The one that is released does not come over this link again before the server has read of its end.
    receiver.flow(2)
    (received, _) = [receiver.receive() for _ in range(2)]
    receiver.dispose(received.delivery, released, is_settled=True)
    receiver.session.write(DETACH, uint(receiver.handle), boolean(True), NULL)
    receiver.session.write(END, NULL)
    receiver.session.expect(END)
    other = bus.receiver(queue)
    assert take(other)[0].delivery_count == 0


def a_thousand_sessions(bus):
    queue = fresh("plain")
    bus.authorize(f"/{queue}")
    links = [bus.begin_receiver(queue) for _ in range(1_000)]
    for link in links:
        link.opened()
    for link in links:
        link.session.write(END, NULL)
    for link in links:
        link.session.expect(END)
    put(bus, queue, b"x")


def heart_beats(bus):
    """Both transports, unless the scenario names one."""
    connection = Connection(bus.door, idle_timeout_ms=1_000)
    beats = 0
    deadline = time.monotonic() + 10
    while beats < 4:
        assert time.monotonic() < deadline, beats
        connection.beat()
        beats += not connection.pump()
    connection.close()


def every_mechanism(bus):
    for mechanism in ("ANONYMOUS", "MSSBCBS"):
        Connection(bus.door, mechanism=mechanism).close()


def credit_that_is_lowered(bus):
    queue = fresh("plain")
    receiver = bus.receiver(queue)
    receiver.flow(10)
    receiver.flow(2)
    # This reaches the server behind the flows.
    management = bus.management(queue)
    put(bus, queue, *[b"%d" % number for number in range(5)])
    assert [receiver.receive().message.body for _ in range(2)] == [b"0", b"1"]
    # The third would arrive before this.
    assert management("peek-message", from_sequence_number=long(1), message_count=int_(1))[0] == 200
    receiver.flow(1, drain=True)
    assert receiver.receive().message.body == b"2"
    receiver.drained()
    assert receiver.delivery_count == 3, receiver.delivery_count
    assert all(code != TRANSFER for code, *_ in bus.connection.inbox[receiver.session.theirs])


def who_waits_is_served_at_once(bus):
    queue = fresh("plain")
    sender = put(bus, queue)
    receiver = bus.receiver(queue)
    waits = []
    for number in range(10):
        receiver.flow(1)
        assert sender.send(wire.message(b"x", f"w{number}")) == (ACCEPTED, None)
        accepted_at = time.monotonic()
        received = receiver.receive()
        waits.append(time.monotonic() - accepted_at)
        assert receiver.settle(received.delivery, accepted) == (ACCEPTED, None)
    # Each may run while the machine is busy.
    assert min(waits) < 0.05, waits


def messages_are_deleted_in_batches(bus):
    queue = fresh("plain")
    put(bus, queue, *[b"%d" % number for number in range(5)])
    receiver = bus.receiver(queue)
    (locked,) = take(receiver)
    management = bus.management(queue)
    now = int(time.time() * 1000)
    asked = {"message_count": int_(3), "enqueued_time_utc": wire.timestamp(now + 60_000)}
    assert management("batch-delete-messages", **asked) == (200, {"message-count": Value("int", 3)})
    earlier = {**asked, "enqueued_time_utc": wire.timestamp(now - 60_000)}
    assert management("batch-delete-messages", **earlier)[0] == 204
    assert management("batch-delete-messages", **asked) == (200, {"message-count": Value("int", 1)})
    # Locked messages are not affected.
    assert management("batch-delete-messages", **asked)[0] == 204
    assert receiver.settle(locked.delivery, accepted) == (ACCEPTED, None)


def failed(status, ask):
    try:
        ask()
    except Failed as error:
        assert error.args == (status,), error
    else:
        raise AssertionError(f"expected {status}")


def queues_are_administered(bus):
    admin = Administration(bus.door)
    name = f"X.Made.By/DotNet-{bus.door.name}"
    # Unlimited durations are left out.
    asked = (
        "<LockDuration>PT30S</LockDuration><MaxSizeInMegabytes>1024</MaxSizeInMegabytes>"
        "<RequiresDuplicateDetection>false</RequiresDuplicateDetection><RequiresSession>false</RequiresSession>"
        "<DeadLetteringOnMessageExpiration>true</DeadLetteringOnMessageExpiration>"
        "<MaxDeliveryCount>4</MaxDeliveryCount><EnableBatchedOperations>true</EnableBatchedOperations>"
        "<Status>Active</Status><UserMetadata>a &lt; b</UserMetadata><EnablePartitioning>false</EnablePartitioning>"
    )
    failed(404, lambda: admin.get(name))
    assert admin.put(name, asked)[0].lower() == name.lower()
    failed(409, lambda: admin.put(name, asked))
    title, found, description = admin.get(name)
    assert title.lower() == name.lower()
    expected = {"LockDuration": "PT30S", "MaxDeliveryCount": "4", "UserMetadata": "a < b", "Status": "Active"}
    assert expected.items() <= found.items(), found
    assert found["AutoDeleteOnIdle"] == found["DefaultMessageTimeToLive"] == "P10675199DT2H48M5.4775807S", found
    # An update sends unknown elements back unchanged.
    for element in description:
        if element.tag.endswith("}MaxDeliveryCount"):
            element.text = "9"
    assert admin.put(name, elements(description), {"If-Match": "*"})[1]["MaxDeliveryCount"] == "9"
    put(bus, name, b"x")
    assert admin.get(name)[1]["MessageCount"] == "1"
    failed(400, lambda: admin.put(f"{name}-2", "<LockDuration>PT1S</LockDuration>"))
    names = [name for name in admin.names() if not name.lower().startswith("x")]
    assert len(names) > 1_000 and len(set(names)) == len(names) and {"plain-1", "session-100"} <= set(names)
    assert any("sbemulatorns" in text for text in admin.namespace().itertext())
    admin.delete(name)
    failed(404, lambda: admin.get(name))
    failed(404, lambda: admin.delete(name))


def rules_are_administered(bus):
    admin = Administration(bus.door)
    topic = f"x-ruled-topic-of-dotnet-{bus.door.name}"
    subscription = f"{topic}/Subscriptions/s"
    admin.put(topic, "", (), "TopicDescription")
    all_types = {
        "string": ("string", "a b"), "int": ("int", "-5"), "long": ("long", "3000000000"), "bool": ("boolean", "true"),
        "double": ("double", "1.5"), "time": ("dateTime", "2020-07-05T11:12:13Z"), "span": ("duration", "P1DT2H3M"),
    }
    # It always sends empty parameters, and no action if there is none.
    first = typed("Filter", "TrueFilter", "<SqlExpression>1=1</SqlExpression><Parameters />") + "<Name>$Default</Name>"
    made = f"<DefaultRuleDescription>{first}</DefaultRuleDescription>"
    admin.put(subscription, made, (), "SubscriptionDescription")
    rules = f"{subscription}/Rules"

    def put(name, elements, headers=()):
        return admin.put(f"{rules}/{name}", elements, headers, "RuleDescription")

    (kind, texts, _), action = rule(admin.get(f"{rules}/$Default", "RuleDescription")[2])
    assert (kind, texts["SqlExpression"], action) == ("TrueFilter", "1=1", ("EmptyRuleAction", {}, {}))
    correlation = typed("Filter", "CorrelationFilter", "<Label>l</Label>" + values("Properties", all_types))
    title, found, description = put("Red", f"{correlation}<Name>Red</Name>")
    assert title == found["Name"] == "Red" and found["CreatedAt"].endswith("Z"), found
    (kind, texts, properties), _ = rule(description)
    assert (kind, texts["Label"], properties) == ("CorrelationFilter", "l", all_types)
    failed(409, lambda: put("red", f"{correlation}<Name>red</Name>"))
    parameters = values("Parameters", {"@n": ("int", "5")})
    sql = typed("Filter", "SqlFilter", f"<SqlExpression>n = @n</SqlExpression>{parameters}")
    sql += typed("Action", "SqlRuleAction", f"<SqlExpression>SET a = @n</SqlExpression>{parameters}")
    changed = rule(put("Red", f"{sql}<Name>Red</Name>", {"If-Match": "*"})[2])
    assert [(kind, texts["SqlExpression"], found) for kind, texts, found in changed] == [
        ("SqlFilter", "n = @n", {"@n": ("int", "5")}), ("SqlRuleAction", "SET a = @n", {"@n": ("int", "5")}),
    ], changed
    assert admin.names(rules) == ["$Default", "Red"]
    failed(400, lambda: put("bad", sql.replace("n = @n", "n =") + "<Name>bad</Name>"))
    admin.delete(f"{rules}/Red")
    failed(404, lambda: admin.get(f"{rules}/Red"))
    failed(404, lambda: put("Red", f"{sql}<Name>Red</Name>", {"If-Match": "*"}))
    admin.delete(topic)


def rules_are_managed(bus):
    admin = Administration(bus.door)
    topic = f"x-managed-topic-of-dotnet-{bus.door.name}"
    admin.put(topic, "", (), "TopicDescription")
    admin.put(f"{topic}/Subscriptions/s", "", (), "SubscriptionDescription")
    management = bus.management(f"{topic}/Subscriptions/s")

    def rules(skip=0):
        status, body = management("enumerate-rules", top=int_(100), skip=int_(skip))
        if status == 204:
            return []
        assert status == 200 and body["rules"].type == "list", body
        return [entry.value["rule-description"] for entry in body["rules"].value]

    def add(name, **description):
        description = {part.replace("_", "-"): value for part, value in description.items()}
        description = {"sql-rule-action": wire.NULL, **description, "rule-name": string(name)}
        return management("add-rule", rule_name=string(name), rule_description=wire.map_(description))

    def expression(text):
        return wire.map_({"expression": string(text)})

    # The codes with which it registers its types.
    all_of_it, nothing_to_do, sql_action = 0x0000013700000004, 0x0000013700000005, 0x0000013700000006
    sql_filter, true_filter, correlation_filter = 0x000001370000006, 0x000001370000007, 0x000001370000009
    (default,) = rules()
    assert default.code == all_of_it and len(default.value.value) == 4, default
    filter_, action, name, created = default.value.value
    assert (filter_.code, action.code, name) == (true_filter, nothing_to_do, wire.Value("string", "$Default"))
    assert created.type == "timestamp", created
    assert add("sql", sql_filter=expression("color = 'red'"), sql_rule_action=expression("SET a = 1")) == (200, {})
    unset = ("correlation-id", "message-id", "to", "reply-to", "session-id", "reply-to-session-id", "content-type")
    correlation = {name: wire.NULL for name in unset} | {"label": string("l"), "properties": wire.map_({"n": long(1)})}
    assert add("correlation", correlation_filter=wire.map_(correlation)) == (200, {})
    _, correlation, sql = rules()
    filter_, action, name, _ = sql.value.value
    assert (filter_.code, action.code, name.value) == (sql_filter, sql_action, "sql")
    for part, text in ((filter_, "color = 'red'"), (action, "SET a = 1")):
        assert part.value.value == [wire.Value("string", text), wire.Value("int", 20)], part
    filter_, action, _, _ = correlation.value.value
    assert (filter_.code, action.code, len(filter_.value.value)) == (correlation_filter, nothing_to_do, 9)
    assert filter_.value.value[4] == wire.Value("string", "l"), filter_
    assert filter_.value.value[8] == wire.Value("map", {"n": wire.Value("long", 1)}), filter_
    assert rules(skip=3) == []
    exists = add("SQL", sql_filter=expression("1=1"))
    assert exists == (409, "com.microsoft:entity-already-exists"), exists
    bad = add("bad", sql_filter=expression("color ="))
    assert bad == (400, "com.microsoft:argument-error"), bad
    for name in ("$Default", "sql", "correlation"):
        assert management("remove-rule", rule_name=string(name)) == (200, {})
    assert management("remove-rule", rule_name=string("sql")) == (404, "amqp:not-found")
    assert rules() == []
    admin.delete(topic)


SCENARIOS = [
    tokens, a_message_is_sent_and_received, outcomes_are_answered_with_the_same, a_range_is_settled_at_once,
    a_lock_that_is_lost, a_lock_outlives_its_link, received_and_deleted, drains_of_a_link_that_is_used_again,
    a_large_message_in_many_frames, a_batch, requests_about_messages, requests_to_schedule, many_requests_at_once,
    a_transaction_of_one_queue, a_transaction_over_two_queues, a_transaction_whose_lock_was_lost,
    sessions, no_session_in_time, a_wait_for_a_session_that_is_given_up, a_session_lock_that_runs_out,
    what_is_not_there_or_does_not_fit, everything_is_closed_at_once, a_thousand_sessions, heart_beats,
    every_mechanism, credit_that_is_lowered, who_waits_is_served_at_once, messages_are_deleted_in_batches,
    queues_are_administered, rules_are_administered, rules_are_managed,
]
ADMINISTRATION = [queues_are_administered, rules_are_administered, rules_are_managed]


def run(door, wanted, results):
    for scenario in SCENARIOS:
        if wanted not in scenario.__name__:
            continue
        # Its clients know only port 443.
        if scenario in ADMINISTRATION and not os.environ["KEW_BUS_HTTPS"]:
            continue
        began = time.monotonic()
        try:
            bus = Bus(door)
            scenario(bus)
            bus.close()
            results.append(True)
        except Exception:
            results.append(False)
            print(f"{scenario.__name__}, {door.name}: FAILED after {time.monotonic() - began:.1f} s")
            traceback.print_exc()


def main():
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    results = []
    # Most scenarios wait most of the time.
    names = ["amqp", "amqps", "websockets"] if os.environ["KEW_BUS_HTTPS"] else ["amqp", "amqps"]
    doors = [Door(name, os.environ) for name in names]
    threads = [threading.Thread(target=run, args=(door, wanted, results)) for door in doors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    sys.exit(0 if results and all(results) else 1)


main()
