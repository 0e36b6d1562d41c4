"""Sends the .NET SDK's requests, byte by byte, and checks the parts that it would read. See README.md."""

import base64
import hashlib
import hmac
import pathlib
import re
import socket
import ssl
import sys
import tempfile
import traceback
import uuid
import xml.etree.ElementTree as ElementTree
from datetime import datetime, timedelta, timezone
from urllib.parse import quote, unquote

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "python" / "tests"))

from kew import PATIENCE_SECONDS, TLS, Server  # noqa: E402 (found by the line above)

VERSION = "2026-06-06"
AGENT = "azsdk-net-Storage.Queues/12.27.0 (.NET 8.0.11; Debian GNU/Linux 12 (bookworm))"
RFC_1123 = re.compile(
    r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d (Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
    r" \d{4} \d\d:\d\d:\d\d GMT"
)
DECLARATION = '\ufeff<?xml version="1.0" encoding="utf-8"?>'
DOORS = {
    "http, account in the path": ("http", None),
    "http, account in the host": ("http", "host"),
    "https, account in the path": ("https", None),
    "https, account in the host": ("https", "host"),
}


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def code(self):
        """The header and the body must have the same code."""
        code = self.headers["x-ms-error-code"]
        if self.body:
            assert self.headers["content-type"].startswith("application/xml")
            assert self.xml.findtext("Code") == code
            assert self.xml.findtext("Message")
        return code

    @property
    def xml(self):
        return ElementTree.fromstring(self.body.decode("utf-8-sig"))


class Client:
    """One connection, which every scenario of a door shares, as one client would."""

    def __init__(self, server, scheme, host):
        parts = dict(p.split("=", 1) for p in server.connection_string.rstrip(";").split(";"))
        self.account, self.key = parts["AccountName"], base64.b64decode(parts["AccountKey"])
        self.host = f"{self.account}.queue.localhost" if host else "127.0.0.1"
        self.prefix = "" if host else f"/{self.account}"
        self.port = server.port
        self.secure = scheme == "https"
        self.socket = socket.create_connection(("127.0.0.1", self.port), PATIENCE_SECONDS)
        if self.secure:
            context = ssl.create_default_context(cafile=TLS / "ca.pem")
            self.socket = context.wrap_socket(self.socket, server_hostname=self.host)
        self.input = self.socket.makefile("rb")

    def close(self):
        self.input.close()
        self.socket.close()

    def __call__(self, verb, path, query=(), metadata=(), text=None, xml=None):
        if text is not None:
            escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
            inner = f"<MessageText>{escaped}</MessageText>" if text else "<MessageText />"
            xml = f"<QueueMessage>{inner}</QueueMessage>"
        body = None if xml is None else (DECLARATION + xml).encode()
        identifier = str(uuid.uuid4())
        headers = [(f"x-ms-meta-{name}", value) for name, value in metadata]
        headers += [("x-ms-version", VERSION), ("Accept", "application/xml")]
        if body is not None:
            headers.append(("Content-Type", "application/xml"))
        headers += [
            ("x-ms-client-request-id", identifier),
            ("x-ms-return-client-request-id", "true"),
            ("User-Agent", AGENT),
            ("x-ms-date", datetime.now(timezone.utc).strftime("%a, %d %b %Y %H:%M:%S GMT")),
        ]
        path = self.prefix + path
        headers.append(("Authorization", self.sign(verb, path, query, headers, body)))
        headers.append(("traceparent", f"00-{uuid.uuid4().hex}-{uuid.uuid4().hex[:16]}-00"))
        self.send(verb, path, query, headers, body)
        answer = self.receive()
        assert answer.headers["x-ms-client-request-id"] == identifier
        assert RFC_1123.fullmatch(answer.headers["date"]), answer.headers["date"]
        assert answer.headers["x-ms-version"] == VERSION and answer.headers["x-ms-request-id"]
        return answer

    def sign(self, verb, path, query, headers, body):
        named = dict(headers)
        own = [(name.lower(), value) for name, value in headers if name.lower().startswith("x-ms-")]
        own.sort(key=lambda header: re.sub("[^a-z0-9]", "", header[0]))
        lines = [verb, "", "", str(len(body)) if body else "", "", named.get("Content-Type", "")]
        lines += [""] * 6
        lines += [f"{name}:{value}" for name, value in own]
        resource = f"/{self.account}{path}"
        for name, value in sorted(query):
            resource += f"\n{name.lower()}:{unquote(value)}"
        text = "\n".join([*lines, resource]).encode()
        digest = hmac.new(self.key, text, hashlib.sha256).digest()
        return f"SharedKey {self.account}:{base64.b64encode(digest).decode()}"

    def send(self, verb, path, query, headers, body):
        if query:
            path += "?" + "&".join(f"{name}={value}" for name, value in query)
        lines = [f"{verb} {path} HTTP/1.1", f"Host: {self.host}:{self.port}"]
        content = [header for header in headers if header[0] == "Content-Type"]
        lines += [f"{name}: {value}" for name, value in headers if (name, value) not in content]
        lines += [f"{name}: {value}" for name, value in content]
        if body is not None or verb in ("PUT", "POST"):
            lines.append(f"Content-Length: {len(body or b'')}")
        self.socket.sendall("\r\n".join([*lines, "", ""]).encode() + (body or b""))

    def receive(self):
        status = self.input.readline().decode()
        headers = {}
        while line := self.input.readline().decode().rstrip("\r\n"):
            name, _, value = line.partition(": ")
            headers[name.lower()] = value
        body = b""
        if headers.get("transfer-encoding") == "chunked":
            while size := int(self.input.readline(), 16):
                body += self.input.read(size)
                self.input.readline()
            self.input.readline()
        else:
            body = self.input.read(int(headers.get("content-length", 0)))
        return Answer(int(status.split()[1]), headers, body)

    # The SDK's methods that are more than one request.

    def create_if_not_exists(self, queue, metadata=()):
        """Whether it created the queue; any answer that the SDK cannot handle is a failure."""
        answer = self("PUT", f"/{queue}", metadata=metadata)
        if answer.status in (201, 204):
            return answer.status == 201
        assert (answer.status, answer.code) == (409, "QueueAlreadyExists")
        return False

    def delete_if_exists(self, queue):
        answer = self("DELETE", f"/{queue}")
        if answer.status == 204:
            return True
        assert (answer.status, answer.code) == (404, "QueueNotFound")
        return False

    def send_message(self, queue, text, query=()):
        answer = self("POST", f"/{queue}/messages", query, text=text)
        assert answer.status == 201, answer.body
        return message(answer.xml)

    def receive_messages(self, queue, count=1, seconds=600):
        query = [("numofmessages", str(count)), ("visibilitytimeout", str(seconds))]
        answer = self("GET", f"/{queue}/messages", query)
        assert answer.status == 200, answer.body
        return [message([one]) for one in answer.xml]

    def update_message(self, queue, one, receipt, text, seconds=0):
        query = [("popreceipt", escape(receipt)), ("visibilitytimeout", str(seconds))]
        return self("PUT", f"/{queue}/messages/{one['MessageId']}", query, text=text)

    def delete_message(self, queue, one, receipt):
        return self("DELETE", f"/{queue}/messages/{one['MessageId']}", [("popreceipt", escape(receipt))])


def escape(value):
    return quote(value, safe="-_.~")


def message(found):
    (one,) = found
    fields = {child.tag: child.text or "" for child in one}
    for name in ("InsertionTime", "ExpirationTime", "TimeNextVisible"):
        assert RFC_1123.fullmatch(fields[name]), fields
    return fields


def queues(client, queue):
    assert client.create_if_not_exists(queue, [("FooBar", "a")]) is True
    assert client.create_if_not_exists(queue, [("FooBar", "a")]) is False
    assert client.create_if_not_exists(queue, [("other", "b")]) is False
    # The order of names that differ only in symbols is not certain; the order of these is.
    names = [("FooBar", "a  b"), ("a_b", "1"), ("zz", "2")]
    assert client("PUT", f"/{queue}", [("comp", "metadata")], metadata=names).status == 204
    answer = client("GET", f"/{queue}", [("comp", "metadata")])
    assert answer.status == 200
    assert int(answer.headers["x-ms-approximate-messages-count"]) == 0
    assert {name: answer.headers[f"x-ms-meta-{name.lower()}"] for name, _ in names} == dict(names)
    query = [("comp", "list"), ("prefix", queue), ("maxresults", "1"), ("include", "metadata")]
    listed = client("GET", "/", query).xml
    assert listed.findtext("Queues/Queue/Name") == queue
    assert listed.findtext("Queues/Queue/Metadata/FooBar") == "a  b"
    assert listed.findtext("NextMarker") in ("", None)
    assert client.delete_if_exists(queue) is True
    assert client.delete_if_exists(queue) is False
    assert client("GET", f"/{queue}", [("comp", "metadata")]).code == "QueueNotFound"


def messages(client, queue):
    client.create_if_not_exists(queue)
    for text in ["text", "<&> \U0001f426 'x' \"y\"", "", "x" * 65536]:
        sent = client.send_message(queue, text)
        answer = client("GET", f"/{queue}/messages", [("numofmessages", "32"), ("peekonly", "true")])
        assert [one.findtext("MessageText") or "" for one in answer.xml] == [text]
        (received,) = client.receive_messages(queue, 32)
        assert received["MessageText"] == text and received["DequeueCount"] == "1"
        stale = client.delete_message(queue, received, sent["PopReceipt"])
        assert (stale.status, stale.code) == (404, "MessageNotFound")
        updated = client.update_message(queue, received, received["PopReceipt"], "new")
        assert updated.status == 204
        assert RFC_1123.fullmatch(updated.headers["x-ms-time-next-visible"])
        receipt = updated.headers["x-ms-popreceipt"]
        assert client.delete_message(queue, received, receipt).status == 204
    too_long = client("POST", f"/{queue}/messages", text="x" * 65537)
    assert (too_long.status, too_long.code) == (413, "RequestBodyTooLarge")


def updates(client, queue):
    client.create_if_not_exists(queue)
    one = client.send_message(queue, "text")
    # Without a text the SDK sends no body.
    kept = client.update_message(queue, one, one["PopReceipt"], None)
    assert kept.status == 204
    receipt = kept.headers["x-ms-popreceipt"]
    (received,) = client.receive_messages(queue)
    assert received["MessageText"] == "text"
    stale = client.update_message(queue, one, receipt, "stolen")
    assert (stale.status, stale.code) == (404, "MessageNotFound")
    none = client.delete_message(queue, one, "invalid")
    assert (none.status, none.code) == (400, "InvalidQueryParameterValue")


def delays_and_lives(client, queue):
    client.create_if_not_exists(queue)
    query = [("visibilitytimeout", "60"), ("messagettl", "-1")]
    later = client.send_message(queue, "later", query)
    assert later["ExpirationTime"] == "Fri, 31 Dec 9999 23:59:59 GMT"
    assert client.receive_messages(queue) == []
    answer = client("POST", f"/{queue}/messages", [("messagettl", "0")], text="x")
    assert (answer.status, answer.code) == (400, "InvalidQueryParameterValue")
    assert client("DELETE", f"/{queue}/messages").status == 204


def base64_as_triggers_send_it(client, queue):
    client.create_if_not_exists(queue)
    text = base64.b64encode("a job <&>".encode()).decode()
    client.send_message(queue, text)
    (received,) = client.receive_messages(queue)
    assert base64.b64decode(received["MessageText"]) == b"a job <&>"


def policies(client, queue):
    client.create_if_not_exists(queue)
    policy = (
        "<AccessPolicy><Start>2026-01-02T03:04:05.0000000Z</Start>"
        "<Expiry>2099-12-31T00:00:00.0000000Z</Expiry><Permission>raup</Permission></AccessPolicy>"
    )
    xml = f"<SignedIdentifiers><SignedIdentifier><Id>a</Id>{policy}</SignedIdentifier></SignedIdentifiers>"
    assert client("PUT", f"/{queue}", [("comp", "acl")], xml=xml).status == 204
    answer = client("GET", f"/{queue}", [("comp", "acl")])
    assert answer.body.decode("utf-8-sig").endswith(xml), answer.body


def properties(client, queue):
    del queue
    query = [("restype", "service"), ("comp", "properties")]
    answer = client("GET", "/", query)
    assert answer.status == 200
    found = ElementTree.tostring(answer.xml, encoding="unicode")
    assert client("PUT", "/", query, xml=found).status == 202
    again = ElementTree.tostring(client("GET", "/", query).xml, encoding="unicode")
    assert again == found


def signatures(client, queue):
    """Signed as QueueSasBuilder does: times in seconds, and the version after the protocols."""
    client.create_if_not_exists(queue)
    expiry = (datetime.now(timezone.utc) + timedelta(minutes=10)).strftime("%Y-%m-%dT%H:%M:%SZ")
    lines = ["ra", "", expiry, f"/queue/{client.account}/{queue}", "", "", "https,http", VERSION]
    digest = hmac.new(client.key, "\n".join(lines).encode(), hashlib.sha256).digest()
    query = [("sv", VERSION), ("spr", "https,http"), ("se", escape(expiry)), ("sp", "ra")]
    query.append(("sig", escape(base64.b64encode(digest).decode())))
    for verb, more, status in [("GET", [("peekonly", "true")], 200), ("DELETE", [], 403)]:
        headers = [("x-ms-version", VERSION), ("Accept", "application/xml"), ("User-Agent", AGENT)]
        client.send(verb, f"{client.prefix}/{queue}/messages", [*more, *query], headers, None)
        assert client.receive().status == status


SCENARIOS = [queues, messages, updates, delays_and_lives, base64_as_triggers_send_it, signatures]
SCENARIOS += [policies, properties]


def main(wanted):
    passed = failed = 0
    with tempfile.TemporaryDirectory(prefix="kew-dotnet-") as directory:
        server = Server(pathlib.Path(directory) / "data").start()
        for title, door in DOORS.items():
            for scenario in SCENARIOS:
                name = f"{scenario.__name__} ({title})"
                if wanted not in name:
                    continue
                client = Client(server, *door)
                try:
                    scenario(client, f"replayed-{passed + failed}")
                    passed += 1
                except Exception:
                    failed += 1
                    print(f"FAILED {name}\n{traceback.format_exc()}")
                finally:
                    client.close()
        server.stop()
        server.close()
    print(f"{passed} passed, {failed} failed")
    return 0 if passed and not failed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else ""))
