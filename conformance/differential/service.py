"""One of the two services: requests, signed by the test itself, and answers in a form to compare."""

import base64
import datetime
import email.utils
import hashlib
import hmac
import http.client
import re
import urllib.parse
import uuid
import xml.etree.ElementTree as ElementTree

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
DATES = {"InsertionTime", "ExpirationTime", "TimeNextVisible", "LastSyncTime"}
# The headers whose presence or value is compared. Others are framing and names of software.
NAMED_HEADERS = {
    "x-ms-request-id": "is there",
    "x-ms-popreceipt": "is there",
    "x-ms-time-next-visible": "date",
    "x-ms-approximate-messages-count": "value",
    "x-ms-client-request-id": "value",
    "x-ms-version": "value",
    "date": "is there",
}
TOLERANCE_SECONDS = 3


class Answer:
    """Status, code, headers and body; values that only this service can know are replaced."""

    def __init__(self, status, headers, body):
        self.status = status
        self.raw = body
        self.headers = {name.lower(): value for name, value in headers}
        self.messages = []
        now = email.utils.parsedate_to_datetime(self.headers["date"])
        self.compared = {}
        for name, how in NAMED_HEADERS.items():
            if name in self.headers:
                value = self.headers[name]
                self.compared[name] = {"value": value, "is there": True}.get(how, value)
                if how == "date":
                    self.compared[name] = Date(value, now)
        for name, value in self.headers.items():
            if name.startswith("x-ms-meta-"):
                self.compared[name] = value
        self.body = self._read(body, now) if body else None
        self.code = self.headers.get("x-ms-error-code")
        if self.status >= 400:
            # The texts of errors are the service's own; their codes are compared.
            found = re.search(rb"<Code>([^<]*)</Code>", body)
            self.code = self.code or (found and found[1].decode())
            self.body = None

    def _read(self, body, now):
        try:
            root = ElementTree.fromstring(body.decode("utf-8-sig"))
        except (ElementTree.ParseError, UnicodeDecodeError):
            return body
        if root.tag == "QueueMessagesList":
            for message in root:
                parts = (message.findtext("MessageId"), message.findtext("PopReceipt"))
                self.messages.append(parts)
        return simplified(root, now)

    def ok(self):
        return self.status < 400

    def __str__(self):
        text = f"{self.status} {self.code or ''} {self.compared}"
        return f"{text} {self.body}" if self.body is not None else text


class Date:
    """A point in time as the distance from when it was read; dates beyond 9999 mean never."""

    def __init__(self, text, now):
        try:
            date = email.utils.parsedate_to_datetime(text)
            self.seconds = (date - now).total_seconds()
            # Kew has 32 bits for a time to live, and treats higher values as the maximum.
            if date.year < 9999:
                self.seconds = min(self.seconds, 2**31 - 1)
        except (TypeError, ValueError):
            self.seconds = float("nan")

    def __eq__(self, other):
        if not isinstance(other, Date):
            return False
        # Never is the last second of 9999, and clients cannot distinguish the days of that year.
        year = 360 * 86_400
        near = abs(self.seconds - other.seconds) <= TOLERANCE_SECONDS
        return near or min(self.seconds, other.seconds) > 7900 * year

    def __repr__(self):
        return f"{self.seconds:+.0f}s"


def simplified(element, now):
    attributes = {k: v for k, v in element.attrib.items() if k != "ServiceEndpoint"}
    text = (element.text or "") if len(element) == 0 else ""
    if element.tag == "MessageId":
        text = str(uuid.UUID(text))[8:9]
    elif element.tag == "PopReceipt":
        text = bool(text)
    elif element.tag in DATES:
        text = Date(text, now)
    return (element.tag, attributes, text, [simplified(child, now) for child in element])


class Service:
    def __init__(self, name, address):
        self.name = name
        self.address = address
        self.connection = http.client.HTTPConnection(address, timeout=60)
        # The received messages, oldest first: (id, receipt). The same index is the same message on both.
        self.known = {}

    def ask(self, request):
        path = f"/{ACCOUNT}" + request.path(self.known)
        query = request.query_for(self.known)
        headers = dict(request.headers)
        headers.setdefault("x-ms-date", email.utils.format_datetime(
            datetime.datetime.now(datetime.timezone.utc), usegmt=True))
        if request.key:
            headers["Authorization"] = authorization(request, path, query, headers)
        target = path + ("?" + "&".join(f"{k}={quote(v)}" for k, v in query) if query else "")
        body = request.body if request.method != "GET" and request.method != "HEAD" else b""
        if request.method in ("PUT", "POST") and not body:
            headers["Content-Length"] = "0"
        try:
            self.connection.request(request.method, target, body or None, headers)
            response = self.connection.getresponse()
            return Answer(response.status, response.getheaders(), response.read())
        except (http.client.HTTPException, ConnectionError):
            self.connection.close()
            raise


def quote(value):
    return urllib.parse.quote(value, safe="")


def authorization(request, path, query, headers):
    length = len(request.body)
    lower = {name.lower(): value.strip() for name, value in headers.items()}
    empty = ""
    if request.method in ("PUT", "POST") and lower["x-ms-version"] < "2015-02-21":
        empty = "0"
    standard = ["", "", str(length) if length else empty, "", lower.get("content-type", ""), "", ""]
    standard += [lower.get("if-match", ""), lower.get("if-none-match", ""), "", ""]
    standard.insert(7, lower.get("if-modified-since", ""))
    named = [name for name in sorted(lower) if name.startswith("x-ms-")]
    if lower["x-ms-version"] < "2016-05-31":
        named = [name for name in named if lower[name]]
    canonical = [f"{name}:{lower[name]}" for name in named]
    resource = [f"/{ACCOUNT}{path}"]
    parameters = {}
    for name, value in query:
        parameters.setdefault(name.lower(), []).append(value)
    resource += [f"{name}:{','.join(sorted(values))}" for name, values in sorted(parameters.items())]
    text = "\n".join([request.method] + standard[:11] + canonical + resource)
    signature = hmac.new(base64.b64decode(request.key), text.encode(), hashlib.sha256).digest()
    return f"SharedKey {ACCOUNT}:{base64.b64encode(signature).decode()}"
