"""A connection, sessions, links and requests, in the same frames that .NET sends."""

import base64
import hashlib
import hmac
import os
import socket
import ssl
import struct
import time
import uuid
from urllib.parse import quote

import wire
from wire import NULL, Message, Reader, Value, boolean, fields, string, symbol, ubyte, uint, ushort

OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)
RECEIVED, ACCEPTED, REJECTED, RELEASED, MODIFIED = range(0x23, 0x28)
SOURCE, TARGET, ERROR = 0x28, 0x29, 0x1D
COORDINATOR, DECLARE, DISCHARGE, DECLARED, TRANSACTIONAL = range(0x30, 0x35)
PATIENCE_SECONDS = 60
FRAME_SIZE_MAX = 65_536
BATCH_FORMAT = 0x80013700

accepted = wire.described(ACCEPTED, b"\x45")
released = wire.described(RELEASED, b"\x45")


def modified(undeliverable_here=NULL, annotations=NULL):
    return wire.described(MODIFIED, wire.list_(NULL, undeliverable_here, annotations))


def rejected(info=None):
    error = NULL
    if info is not None:
        condition = symbol("com.microsoft:dead-letter")
        error = wire.described(ERROR, wire.list_(condition, NULL, fields(info)))
    return wire.described(REJECTED, wire.list_(error))


def transactional(transaction, outcome=NULL):
    return wire.described(TRANSACTIONAL, wire.list_(wire.binary(transaction), outcome))


class Refused(Exception):
    """A refused or detached link, with its condition."""


class Connection:
    def __init__(self, door, mechanism="MSSBCBS", idle_timeout_ms=60_000):
        self.stream = door.connect()
        self.stream.settimeout(PATIENCE_SECONDS)
        self.buffer = b""
        self.inbox = {}
        self.ended = set()
        self.is_closed = None
        self.channels = 0
        self.door = door
        self.hand_shake(b"AMQP\x03\x01\x00\x00")
        mechanisms = self.frame_of(1)[1]
        kind, offered = mechanisms.value.value[0]
        assert kind == "array" and offered[0] == "symbol" and mechanism in offered[1], offered
        init = [symbol(mechanism), NULL, NULL]
        self.write(wire.described(0x41, wire.list_(*init)), 0, 1)
        outcome = self.frame_of(1)[1].value.value[0]
        assert outcome == Value("ubyte", 0), outcome
        self.hand_shake(b"AMQP\x00\x01\x00\x00")
        product = {"product": string("azsdk-net-Messaging.ServiceBus"), "platform": string("Linux")}
        self.id = f"sb://{door.host}/-1a2b3c4d"
        self.write_performative(
            OPEN, 0, string(self.id), string(door.host), uint(FRAME_SIZE_MAX), ushort(8191),
            uint(idle_timeout_ms), NULL, NULL, NULL, NULL, fields(product),
        )
        opened = self.expect(0, OPEN)
        # .NET treats a missing value as no limit, but other clients calculate with it.
        assert opened[2].type == "uint" and opened[2].value >= 512, opened
        assert opened[3].type == "ushort" and opened[3].value >= 8191, opened
        assert opened[4].type == "uint", opened
        self.frame_size_max = opened[2].value

    def hand_shake(self, header):
        self.stream.sendall(header)
        assert self.read(8) == header

    def read(self, count):
        while len(self.buffer) < count:
            data = self.stream.recv(1 << 16)
            assert data, "the server hung up"
            self.buffer += data
        taken, self.buffer = self.buffer[:count], self.buffer[count:]
        return taken

    def frame_of(self, kind):
        """The next frame: its channel, performative and payload."""
        size, offset, found, channel = struct.unpack(">IBBH", self.read(8))
        assert found == kind and size <= FRAME_SIZE_MAX and offset == 2, (size, offset, found)
        body = self.read(size - 8)
        if not body:
            return channel, None, b""
        reader = Reader(body)
        performative = reader.value()
        return channel, performative, body[reader.at :]

    def write(self, body, channel, kind=0):
        self.stream.sendall(struct.pack(">IBBH", len(body) + 8, 2, kind, channel) + body)

    def write_performative(self, code, channel, *values, payload=b""):
        """All fields of it: .NET leaves out none, not even at the end."""
        self.write(wire.described(code, wire.list_(*values)) + payload, channel)

    def beat(self):
        self.stream.sendall(struct.pack(">IBBH", 8, 2, 0, 0))

    def pump(self):
        """Reads a frame into the inbox of its channel."""
        channel, performative, payload = self.frame_of(0)
        if performative is None:
            return False
        # .NET closes the connection if it gets a frame for a channel that it no longer knows.
        if performative.code == BEGIN:
            self.ended.discard(channel)
        assert channel not in self.ended, f"{performative} on channel {channel}, which has ended"
        values = performative.value.value
        # Fields at the end may be left out.
        values += [Value("null", None)] * (14 - len(values))
        if performative.code == END:
            self.ended.add(channel)
        if performative.code == CLOSE:
            self.is_closed = values
        self.inbox.setdefault(channel, []).append((performative.code, values, payload))
        return True

    def next(self, channel, wanted):
        """Removes and returns the first matching frame of the channel."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            inbox = self.inbox.setdefault(channel, [])
            for at, (code, values, payload) in enumerate(inbox):
                if wanted(code, values):
                    return inbox.pop(at)
            if self.is_closed is not None:
                raise Refused(condition_of(self.is_closed, 0))
            assert time.monotonic() < deadline, inbox
            self.pump()

    def expect(self, channel, code):
        return self.next(channel, lambda found, _: found == code)[1]

    def begin(self, incoming_window=5_000):
        channel, self.channels = self.channels, self.channels + 1
        self.write_performative(
            BEGIN, channel, NULL, uint(1), uint(incoming_window), uint(5_000), uint(262_143),
            NULL, NULL, fields({}),
        )
        # The server's channel may differ.
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            for theirs, inbox in self.inbox.items():
                for at, (code, values, _) in enumerate(inbox):
                    if code == BEGIN and values[0] == Value("ushort", channel):
                        inbox.pop(at)
                        assert [value.type for value in values[1:4]] == ["uint"] * 3, values
                        return Session(self, channel, theirs)
            self.pump()
        raise AssertionError("no session")

    def close(self):
        self.write_performative(CLOSE, 0, NULL)
        self.expect(0, CLOSE)
        self.stream.close()


def condition_of(values, at):
    if values[at] == Value("null", None):
        return None
    error = values[at]
    assert error.code == ERROR and error.value.value[0].type == "symbol", error
    return error.value.value[0].value


class Session:
    def __init__(self, connection, channel, theirs):
        self.connection, self.channel, self.theirs = connection, channel, theirs
        self.handles = 0
        self.delivery_id = 0
        self.id = f"{connection.id};1:{channel}"

    def write(self, code, *values, payload=b""):
        self.connection.write_performative(code, self.channel, *values, payload=payload)

    def next(self, wanted):
        return self.connection.next(self.theirs, wanted)

    def expect(self, code):
        return self.next(lambda found, _: found == code)[1]

    def end(self):
        self.write(END, NULL)
        self.expect(END)

    def attach(self, name, is_receiver, source, target, settles_on=None, properties=None, count=NULL):
        handle, self.handles = self.handles, self.handles + 1
        modes = {"send": (ubyte(1), NULL), "dispose": (NULL, ubyte(1)), None: (NULL, NULL)}
        self.write(
            ATTACH, string(name), uint(handle), boolean(is_receiver), *modes[settles_on], source,
            target, NULL, NULL, count, NULL, NULL, NULL,
            fields(properties) if properties is not None else NULL,
        )
        return Link(self, name, handle, is_receiver)


def source(address=None, filters=None):
    values = [NULL] * 11
    if address is not None:
        values[0] = string(address)
    if filters is not None:
        values[7] = fields(filters)
    return wire.described(SOURCE, wire.list_(*values))


def target(address=None):
    values = [NULL] * 7
    if address is not None:
        values[0] = string(address)
    return wire.described(TARGET, wire.list_(*values))


class Link:
    def __init__(self, session, name, handle, is_receiver):
        self.session, self.name, self.handle = session, name, handle
        self.is_receiver = is_receiver
        self.credit = self.delivery_count = 0

    def opened(self):
        """Waits for the answer; raises if it is refused."""
        values = self.session.next(lambda code, it: code == ATTACH and it[0].value == self.name)[1]
        assert values[2].value != self.is_receiver
        self.theirs = values[1].value
        self.answer = values
        if values[5 if self.is_receiver else 6] == Value("null", None):
            detach = self.session.next(lambda code, it: code == DETACH and it[0].value == self.theirs)[1]
            assert detach[1] == Value("boolean", True), detach
            self.session.write(DETACH, uint(self.handle), boolean(True), NULL)
            raise Refused(condition_of(detach, 2))
        assert values[5].code == SOURCE and values[6].code in (TARGET, COORDINATOR), values
        assert values[10].type == "ulong" and values[10].value > 0, "no max-message-size"
        if self.is_receiver:
            assert values[9].type == "uint", "no initial-delivery-count"
        return self

    def flow(self, credit, drain=False):
        self.session.write(
            FLOW, uint(1), uint(5_000), uint(1), uint(5_000), uint(self.handle),
            uint(self.delivery_count), uint(credit), uint(0), boolean(True) if drain else NULL,
            boolean(False), NULL,
        )
        self.credit = credit

    def wait_for_credit(self):
        if self.credit == 0:
            values = self.session.next(lambda code, it: code == FLOW and it[4].value == self.handle_of_peer())[1]
            assert [value.type for value in values[:7]] == ["uint"] * 7, values
            self.credit = values[6].value

    def handle_of_peer(self):
        return self.theirs

    def send(self, payload, message_format=0, is_settled=False, tag=None, state=NULL):
        self.wait_for_credit()
        self.credit -= 1
        session = self.session
        delivery, session.delivery_id = session.delivery_id, session.delivery_id + 1
        tag = struct.pack("<I", delivery) if tag is None else tag
        # .NET repeats everything but the tag in the frames after the first one.
        room = session.connection.frame_size_max - 100
        for at in range(0, max(len(payload), 1), room):
            is_last = at + room >= len(payload)
            session.write(
                TRANSFER, uint(self.handle), uint(delivery), wire.binary(tag), uint(message_format),
                boolean(is_settled), boolean(not is_last), NULL, state, NULL, NULL, boolean(True),
                payload=payload[at : at + room],
            )
        if is_settled:
            return None
        return self.outcome(delivery)

    def outcome(self, delivery):
        """The state with which the server settled this delivery, and its condition."""
        ours = self.is_receiver

        def is_it(code, values):
            if code == DETACH and values[0].value == self.theirs:
                return True
            if code != DISPOSITION or values[0].value == ours:
                return False
            last = values[1].value if values[2].value is None else values[2].value
            return values[1].value <= delivery <= last

        inbox = self.session.connection.inbox.setdefault(self.session.theirs, [])
        code, values, payload = self.session.next(is_it)
        if code == DETACH:
            self.session.write(DETACH, uint(self.handle), boolean(True), NULL)
            raise Refused(condition_of(values, 2))
        last = values[1].value if values[2].value is None else values[2].value
        if last > delivery:
            # The rest of the range is for later callers.
            inbox.insert(0, (code, [values[0], Value("uint", delivery + 1), Value("uint", last), *values[3:]], payload))
        assert values[3] == Value("boolean", True), "it is not settled"
        return outcome_of(values[4])

    def receive(self):
        """The next message, and its delivery-id. It may consist of several frames."""
        payload, first = b"", None
        while True:
            code, values, part = self.session.next(
                lambda code, it: code == TRANSFER and it[0].value == self.theirs)
            first = first or values
            payload += part
            if not values[5].value:
                break
        self.delivery_count += 1
        self.credit -= 1
        return Received(first, payload)

    def dispose(self, first, state, last=None, is_settled=False):
        self.session.write(
            DISPOSITION, boolean(True), uint(first), NULL if last is None else uint(last),
            boolean(is_settled), state, boolean(True),
        )

    def settle(self, delivery, state):
        self.dispose(delivery, state)
        return self.outcome(delivery)

    def drained(self):
        """Waits until the server reports that no credit is left."""
        values = self.session.next(
            lambda code, it: code == FLOW and it[4].value == self.theirs and it[6].value == 0
        )[1]
        assert [value.type for value in values[:7]] == ["uint"] * 7, values
        assert values[8] == Value("boolean", True), values
        self.delivery_count = values[5].value
        self.credit = 0

    def close(self):
        self.session.write(DETACH, uint(self.handle), boolean(True), NULL)
        self.session.next(lambda code, it: code == DETACH and it[0].value == self.theirs)


def outcome_of(state):
    """Its code, and its condition if rejected; in a transaction, the transaction's id and the outcome."""
    if state.code == TRANSACTIONAL:
        transaction, outcome = state.value.value[:2]
        assert transaction.type == "binary" and len(transaction.value) <= 32, transaction
        return TRANSACTIONAL, transaction.value, outcome_of(outcome)
    if state.code == DECLARED:
        return DECLARED, state.value.value[0].value
    return state.code, condition_of(state.value.value, 0) if state.code == REJECTED and state.value.value else None


class Received:
    def __init__(self, values, payload):
        self.delivery, self.tag = values[1].value, values[2].value
        self.is_settled = values[4].value is True
        self.message = Message(payload)
        header = self.message.section(wire.HEADER)
        # .NET throws an exception if there is no delivery-count.
        assert header[4].type == "uint", header
        self.delivery_count = header[4].value

    @property
    def lock(self):
        return uuid.UUID(bytes_le=self.tag)

    def annotation(self, name, kind):
        value = self.message.section(wire.MESSAGE_ANNOTATIONS)[name]
        assert value.type == kind, (name, value)
        return value.value

    @property
    def number(self):
        return self.annotation("x-opt-sequence-number", "long")


class Requests:
    """A pair of links for requests and their answers."""

    def __init__(self, connection, address, kind, session=None):
        self.session = session or connection.begin()
        self.reply_to = uuid.uuid4().hex
        self.ids = 0
        self.name = f"duplex1:{self.session.channel}:{kind}"
        more = {"com.microsoft:timeout": uint(60_000)}
        if kind != "cbs":
            more["com.microsoft:entity-type"] = string("entity-mgmt")
        # .NET opens both without waiting, and sends no initial-delivery-count.
        self.sender = self.session.attach(f"{self.name}:sender", False, source(), target(address), "send", more)
        self.receiver = self.session.attach(
            f"{self.name}:receiver", True, source(address), target(self.reply_to), "send", more)
        self.sender.opened()
        self.receiver.opened()
        self.receiver.flow(50)

    def ask(self, operation, body, more=None, state=NULL):
        return self.answer(self.post(operation, body, more, state))

    def post(self, operation, body, more=None, state=NULL):
        self.ids += 1
        message_id = f"{self.name}:{self.ids}"
        # The tag of a request is empty.
        payload = wire.request(operation, body, message_id, self.reply_to, more or {})
        self.sender.send(payload, is_settled=True, tag=b"", state=state)
        return message_id

    def answer(self, message_id):
        received = self.receiver.session.next(
            lambda code, it: code == TRANSFER and it[0].value == self.receiver.theirs)
        message = Message(received[2])
        assert message.correlation_id == Value("string", message_id), message.correlation_id
        values = received[1]
        if values[4].value is not True:
            self.receiver.dispose(values[1].value, accepted, is_settled=True)
        self.receiver.delivery_count += 1
        if self.receiver.delivery_count % 25 == 0:
            self.receiver.flow(50)
        return message


class Management(Requests):
    def __init__(self, connection, queue, session=None):
        super().__init__(connection, f"{queue}/$management", "entity-mgmt", session)

    def __call__(self, operation, link=None, **body):
        return self.read(self.ask(*self.asked(operation, link, body)))

    def within(self, transaction, operation, link=None, **body):
        return self.read(self.ask(*self.asked(operation, link, body), transactional(transaction)))

    def asked(self, operation, link, body):
        more = {
            "com.microsoft:server-timeout": uint(60_000),
            "com.microsoft:tracking-id": string(str(uuid.uuid4())),
        }
        if link is not None:
            more["associated-link-name"] = string(link.name)
        body = {name.replace("_", "-"): value for name, value in body.items()}
        return f"com.microsoft:{operation}", wire.map_(body), more

    @staticmethod
    def read(message):
        """The status, and the map or the condition."""
        application = message.section(wire.APPLICATION_PROPERTIES)
        status = application["statusCode"]
        assert status.type == "int" and application["statusDescription"].type == "string", application
        if status.value >= 400:
            assert application["errorCondition"].type == "symbol", application
            return status.value, application["errorCondition"].value
        body = message.sections[wire.VALUE][0]
        assert body.type == "map", body
        return status.value, body.value


class Controller:
    """The link over which transactions are declared and discharged."""

    def __init__(self, session):
        coordinator = wire.described(COORDINATOR, wire.list_(NULL))
        name = f"{session.id}:{uuid.uuid4().hex}:controller"
        self.link = session.attach(name, False, source(), coordinator, None).opened()
        assert self.link.answer[6].code == COORDINATOR, self.link.answer

    def declare(self):
        code, transaction = self.link.send(wire.control(wire.described(DECLARE, wire.list_(NULL))))
        assert code == DECLARED and 0 < len(transaction) <= 32, (code, transaction)
        return transaction

    def discharge(self, transaction, fail):
        body = wire.described(DISCHARGE, wire.list_(wire.binary(transaction), boolean(fail)))
        return self.link.send(wire.control(body))


class Bus:
    """A client: a connection with its token link, and links, each in a session of its own. With
    transactions over several queues all links are in one session, and the coordinator's comes first, before
    any token."""

    def __init__(self, door, crosses_entities=False, **options):
        self.door = door
        self.connection = Connection(door, **options)
        self.only_session = None
        if crosses_entities:
            self.only_session = self.connection.begin(incoming_window=2**32 - 1)
            self.controller = Controller(self.only_session)
        self.tokens = Requests(self.connection, "$cbs", "cbs")
        self.links = 0

    def close(self):
        self.connection.close()

    def put_token(self, path, key=None, ttl_seconds=1_200):
        audience = f"sb://{self.door.host}{path}"
        token = sas(audience, self.door.rule, key or self.door.key, ttl_seconds)
        expiration = int((time.time() + ttl_seconds) * 1000)
        message = self.tokens.ask("put-token", string(token), {
            "type": string("servicebus.windows.net:sastoken"),
            "name": string(audience),
            "expiration": wire.timestamp(expiration),
        })
        application = message.section(wire.APPLICATION_PROPERTIES)
        assert application["status-code"].type == "int", application
        assert application["status-description"].type == "string", application
        return application["status-code"].value

    def authorize(self, path):
        status = self.put_token(path)
        # How .NET reports a link that is refused in this way.
        if status == 404:
            raise Refused("amqp:not-found")
        assert status in (200, 202), status

    def link_name(self, session):
        self.links += 1
        return f"{self.connection.id};1:{session.channel}:{self.links}"

    def sender(self, queue):
        self.authorize(f"/{queue}")
        session = self.only_session or self.connection.begin(incoming_window=2**32 - 1)
        link = session.attach(
            self.link_name(session), False, source(str(uuid.uuid4())), target(f"/{queue}"), None,
            {"com.microsoft:timeout": uint(60_000)}, count=uint(0),
        ).opened()
        assert link.answer[6].value.value[0] == Value("string", f"/{queue}")
        return link

    def receiver(self, queue, is_deleting=False, session=False, timeout_ms=None):
        return self.begin_receiver(queue, is_deleting, session, timeout_ms).opened()

    def begin_receiver(self, queue, is_deleting=False, session=False, timeout_ms=None):
        """The session is an id, or None for the next one."""
        self.authorize(f"/{queue}")
        own = self.only_session or self.connection.begin(incoming_window=2**32 - 1)
        filters = {}
        if session is not False:
            filters["com.microsoft:session-filter"] = NULL if session is None else string(session)
        # .NET's text form of a source is part of the name.
        name = f"{self.link_name(own)}:source(address:/{queue},filter:[])"
        properties = None if timeout_ms is None else {"com.microsoft:timeout": uint(timeout_ms)}
        return own.attach(
            name, True, source(f"/{queue}", filters), target(str(uuid.uuid4())),
            "send" if is_deleting else "dispose", properties,
        )

    def management(self, queue):
        self.authorize(f"/{queue}/$management")
        return Management(self.connection, queue, self.only_session)


def sas(audience, rule, key, ttl_seconds):
    resource, expiry = quote(audience, safe="").lower(), int(time.time()) + ttl_seconds
    digest = hmac.new(key.encode(), f"{resource}\n{expiry}".encode(), hashlib.sha256).digest()
    signature = quote(base64.b64encode(digest), safe="")
    return f"SharedAccessSignature sr={resource}&sig={signature}&se={expiry}&skn={rule}"


class Door:
    """One way to the server."""

    host = "localhost"

    def __init__(self, name, environment):
        self.name, self.authority = name, os.path.join(environment["KEW_TEST_TLS"], "ca.pem")
        text = environment["KEW_BUS_CONNECTION_STRING"]
        parts = dict(part.split("=", 1) for part in text.rstrip(";").split(";"))
        self.port = int(parts["Endpoint"].rsplit(":", 1)[1].strip("/"))
        self.rule, self.key = parts["SharedAccessKeyName"], parts["SharedAccessKey"]

    def connect(self):
        stream = socket.create_connection(("127.0.0.1", self.port), PATIENCE_SECONDS)
        if self.name != "amqp":
            context = ssl.create_default_context(cafile=self.authority)
            stream = context.wrap_socket(stream, server_hostname=self.host)
        return WebSocket(stream, self.host) if self.name == "websockets" else stream


class WebSocket:
    """A stream in the messages of a WebSocket. .NET has a slash at the end of the path, and requests `amqp`."""

    def __init__(self, stream, host):
        self.stream, self.buffer = stream, b""
        key = base64.b64encode(os.urandom(16))
        stream.sendall(
            b"GET /$servicebus/websocket/ HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\nSec-WebSocket-Protocol: amqp\r\n\r\n"
            % (host.encode(), key))
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += self.exactly(1)
        lines = head.decode().lower().split("\r\n")
        assert lines[0].startswith("http/1.1 101") and "sec-websocket-protocol: amqp" in lines, head
        guid = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key + guid).digest())
        assert b"Sec-WebSocket-Accept: %s" % accept in head or accept.lower() in head.lower(), head

    def settimeout(self, seconds):
        self.stream.settimeout(seconds)

    def exactly(self, count):
        data = b""
        while len(data) < count:
            part = self.stream.recv(count - len(data))
            assert part, "the server hung up"
            data += part
        return data

    def sendall(self, data):
        length = len(data)
        size = bytes([0x80 | length]) if length < 126 else b"\xfe" + struct.pack(">H", length)
        if length >= 1 << 16:
            size = b"\xff" + struct.pack(">Q", length)
        mask = os.urandom(4)
        masked = bytes(byte ^ mask[at & 3] for at, byte in enumerate(data))
        self.stream.sendall(b"\x82" + size + mask + masked)

    def recv(self, _):
        while True:
            kind, size = self.exactly(2)
            assert size < 0x80, "a server masks nothing"
            if size > 125:
                form = ">H" if size == 126 else ">Q"
                size = struct.unpack(form, self.exactly(struct.calcsize(form)))[0]
            data = self.exactly(size)
            if kind & 0x0F in (0x0, 0x2):
                return data
            if kind & 0x0F == 0x8:
                return b""
            assert kind & 0x0F in (0x9, 0xA), hex(kind)

    def close(self):
        self.stream.close()
