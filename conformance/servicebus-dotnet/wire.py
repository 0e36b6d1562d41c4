"""AMQP 1.0 values in .NET's encoding, and read with their types."""

import struct
from typing import NamedTuple


class Value(NamedTuple):
    """A decoded value. It must have exactly the type that .NET casts it to."""

    type: str
    value: object


class Described(NamedTuple):
    code: object
    value: object


# Writing: each of these returns the bytes of one value.

NULL = b"\x40"


def boolean(value):
    return b"\x41" if value else b"\x42"


def ubyte(value):
    return b"\x50" + bytes([value])


def ushort(value):
    return b"\x60" + struct.pack(">H", value)


def uint(value):
    if value == 0:
        return b"\x43"
    return b"\x52" + bytes([value]) if value < 256 else b"\x70" + struct.pack(">I", value)


def ulong(value):
    if value == 0:
        return b"\x44"
    return b"\x53" + bytes([value]) if value < 256 else b"\x80" + struct.pack(">Q", value)


def int_(value):
    if -128 <= value < 128:
        return b"\x54" + struct.pack("b", value)
    return b"\x71" + struct.pack(">i", value)


def long(value):
    if -128 <= value < 128:
        return b"\x55" + struct.pack("b", value)
    return b"\x81" + struct.pack(">q", value)


def timestamp(ms):
    return b"\x83" + struct.pack(">q", ms)


def uuid(value):
    return b"\x98" + value.bytes


def _sized(short, data):
    if len(data) < 256:
        return bytes([short, len(data)]) + data
    return bytes([short + 0x10]) + struct.pack(">I", len(data)) + data


def string(value):
    return _sized(0xA1, value.encode())


def symbol(value):
    return _sized(0xA3, value.encode())


def binary(value):
    return _sized(0xA0, value)


def _compound(short, items):
    data = b"".join(items)
    if len(data) < 254 and len(items) < 256:
        return bytes([short, len(data) + 1, len(items)]) + data
    return bytes([short + 0x10]) + struct.pack(">II", len(data) + 4, len(items)) + data


def list_(*items):
    return _compound(0xC0, items) if items else b"\x45"


def map_(entries, key=string):
    """.NET writes maps with their keys as strings, and fields as symbols."""
    items = []
    for name, value in entries.items():
        items += [key(name), value]
    return _compound(0xC1, items)


def fields(entries):
    return map_(entries, symbol)


def array(constructor, items):
    """An array of fixed width: the items have no constructor."""
    data = b"".join(items)
    return b"\xf0" + struct.pack(">IIB", len(data) + 5, len(items), constructor) + data


def longs(values):
    return array(0x81, [struct.pack(">q", value) for value in values])


def uuids(values):
    return array(0x98, [value.bytes for value in values])


def described(code, value):
    return b"\x00" + ulong(code) + value


# Reading.

_FIXED = {
    0x50: ("ubyte", ">B"), 0x60: ("ushort", ">H"), 0x70: ("uint", ">I"), 0x80: ("ulong", ">Q"),
    0x51: ("byte", ">b"), 0x61: ("short", ">h"), 0x71: ("int", ">i"), 0x81: ("long", ">q"),
    0x52: ("uint", ">B"), 0x53: ("ulong", ">B"), 0x54: ("int", ">b"), 0x55: ("long", ">b"),
    0x72: ("float", ">f"), 0x82: ("double", ">d"), 0x83: ("timestamp", ">q"), 0x56: ("boolean", ">?"),
}
_CONSTANT = {
    0x40: Value("null", None), 0x41: Value("boolean", True), 0x42: Value("boolean", False),
    0x43: Value("uint", 0), 0x44: Value("ulong", 0), 0x45: Value("list", []),
}
_VARIABLE = {0xA0: "binary", 0xA1: "string", 0xA3: "symbol"}


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        assert self.at + count <= len(self.data), "cut short"
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, form):
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def is_at_end(self):
        return self.at == len(self.data)

    def value(self):
        constructor = self.number("B")
        if constructor == 0:
            descriptor = self.value()
            return Described(descriptor.value, self.value())
        return self.of(constructor)

    def of(self, constructor):
        if constructor in _CONSTANT:
            return _CONSTANT[constructor]
        if constructor in _FIXED:
            name, form = _FIXED[constructor]
            return Value(name, self.number(form))
        if constructor == 0x98:
            return Value("uuid", self.take(16))
        if constructor & 0xEF in _VARIABLE:
            size = self.number("B" if constructor < 0xB0 else ">I")
            name, data = _VARIABLE[constructor & 0xEF], self.take(size)
            return Value(name, bytes(data) if name == "binary" else data.decode())
        form = "B" if constructor in (0xC0, 0xC1, 0xE0) else ">I"
        size = self.number(form)
        inner = Reader(self.take(size))
        count = inner.number(form)
        if constructor in (0xE0, 0xF0):
            element = inner.number("B")
            values = [inner.of(element) for _ in range(count)]
            kind = values[0].type if values else None
            assert inner.is_at_end()
            return Value("array", (kind, [value.value for value in values]))
        values = [inner.value() for _ in range(count)]
        assert inner.is_at_end()
        if constructor in (0xC1, 0xD1):
            pairs = zip(values[::2], values[1::2])
            return Value("map", {name.value: value for name, value in pairs})
        assert constructor in (0xC0, 0xD0), hex(constructor)
        return Value("list", values)


# Sections of a message.

HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS = 0x70, 0x71, 0x72
PROPERTIES, APPLICATION_PROPERTIES, DATA, SEQUENCE, VALUE = 0x73, 0x74, 0x75, 0x76, 0x77


class Message:
    """A message as .NET reads it."""

    def __init__(self, data):
        reader, self.sections = Reader(data), {}
        while not reader.is_at_end():
            section = reader.value()
            self.sections.setdefault(section.code, []).append(section.value)

    def section(self, code):
        return self.sections[code][0].value

    @property
    def body(self):
        return b"".join(value.value for value in self.sections[DATA])

    @property
    def correlation_id(self):
        return self.section(PROPERTIES)[5]


def properties(message_id=None, reply_to=None, session=None):
    """All of their 13 fields: .NET leaves none out."""
    values = [NULL] * 13
    if message_id is not None:
        values[0] = string(message_id)
    if reply_to is not None:
        values[4] = string(reply_to)
    if session is not None:
        values[10] = string(session)
    return described(PROPERTIES, list_(*values))


def message(body, message_id=None, session=None, annotations=None):
    out = b""
    if annotations:
        out += described(MESSAGE_ANNOTATIONS, fields(annotations))
    out += properties(message_id, session=session)
    return out + described(DATA, binary(body))


def control(body):
    """A message to the coordinator."""
    return described(VALUE, body)


def request(operation, body, message_id, reply_to, more):
    application = {"operation": string(operation), **more}
    return (
        properties(message_id, reply_to)
        + described(APPLICATION_PROPERTIES, map_(application))
        + described(VALUE, body)
    )
