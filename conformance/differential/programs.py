"""Random programs: sensible requests, and invalid ones."""

import service

VERSION = "2024-11-04"
QUEUES = ["jobs", "other-1"]
ODD_QUEUES = ["ab", "Upper", "a--b", "-abc", "a" * 63, "a" * 64, "under_score", "$root"]
# No time passes while a program runs, so that both services see the same. Only messages that are always
# hidden, or never, can be compared.
VISIBILITIES = ["0", "600", "604800", "604801", "-1", "abc", "", "1.5", "99999999999"]
LIVES = ["-1", "600", "604800", "604801", "0", "-2", "abc", "", "2147483647", "99999999999"]
COUNTS = ["1", "2", "32", "33", "0", "-1", "abc", ""]
PAGES = ["1", "2", "5000", "5001", "0", "-1", "abc", ""]
VERSIONS = ["2026-04-06", "2018-03-28", "2015-02-21", "2009-09-19", "1999-01-01", "bogus"]
TEXTS = [
    "hello", "", " ", "äöü 😀", "a &amp; b &lt;c&gt;", "<![CDATA[<x>]]>", "line\nline", "aGVsbG8=",
    "x" * 65536, "x" * 65537, "ä" * 32768, "ä" * 32769, "  spaces  ", "&#9;&#10;", "&#1;",
]
ODD_BODIES = [
    b"", b"hello", b"<QueueMessage>", b"<QueueMessage/>", b"<Other><MessageText>x</MessageText></Other>",
    b"<QueueMessage><MessageText>x</MessageText><Extra>y</Extra></QueueMessage>",
    b"<QueueMessage><MessageText><b>x</b></MessageText></QueueMessage>",
    b"<QueueMessage><MessageText>a</MessageText><MessageText>b</MessageText></QueueMessage>",
    b"\xef\xbb\xbf<QueueMessage><MessageText>mark</MessageText></QueueMessage>",
    b"<!DOCTYPE x><QueueMessage><MessageText>x</MessageText></QueueMessage>",
    b"<QueueMessage><MessageText>\xff</MessageText></QueueMessage>",
]
METADATA = [
    {}, {"a": "1"}, {"a": "2"}, {"Owner": "Me", "b_2": "x y"}, {"1bad": "x"}, {"empty": ""},
    {"big": "v" * 9000},
]
RECEIPTS = [None, "", "invalid", "AAAAAAAAAAAAAAAAAAAAAA=="]
POLICY = (b"<SignedIdentifiers><SignedIdentifier><Id>%s</Id><AccessPolicy><Start>2026-01-01</Start>"
          b"<Expiry>2027-01-01T00:00:00Z</Expiry><Permission>%s</Permission></AccessPolicy>"
          b"</SignedIdentifier></SignedIdentifiers>")
POLICIES = [
    b"", b"<SignedIdentifiers/>", POLICY % (b"one", b"raup"), POLICY % (b"two", b"r"),
    POLICY % (b"x" * 65, b"r"), POLICY % (b"odd", b"z"), b"<SignedIdentifiers>", b"<Other/>",
]
RULE = (b"<CorsRule><AllowedOrigins>%s</AllowedOrigins><AllowedMethods>%s</AllowedMethods>"
        b"<AllowedHeaders>*</AllowedHeaders><ExposedHeaders>*</ExposedHeaders>"
        b"<MaxAgeInSeconds>%s</MaxAgeInSeconds></CorsRule>")
PROPERTIES = [b"<Cors/>", b"<Cors>" + RULE % (b"http://a", b"GET,PUT", b"10") + b"</Cors>",
              b"<Cors>" + RULE % (b"*", b"FETCH", b"10") + b"</Cors>",
              b"<Cors>" + RULE % (b"*", b"GET", b"-1") + b"</Cors>",
              b"<Cors>" + RULE % (b"*", b"GET", b"1") * 6 + b"</Cors>", b"<Unknown/>"]


class Request:
    """Requests to both services. Messages are named by the order in which they were seen."""

    def __init__(self, kind, method, queue=None, query=(), body=b"", headers=(), message=None):
        self.kind, self.method, self.queue = kind, method, queue
        self.query, self.body = list(query), body
        self.headers = {"x-ms-version": VERSION, **dict(headers)}
        self.message, self.receipt = message, None
        self.key = service.KEY
        self.odd = []

    def path(self, known):
        if self.queue is None:
            return "/"
        if self.kind not in ("put", "get", "peek", "clear", "update", "delete message", "odd verb"):
            return f"/{self.queue}"
        path = f"/{self.queue}/messages"
        if self.kind in ("update", "delete message"):
            path += "/" + self._message(known)[0]
        return path

    def query_for(self, known):
        query = list(self.query)
        if self.kind in ("update", "delete message"):
            receipt = self._message(known)[1] if self.receipt is None else self.receipt[0]
            if receipt is not None:
                query.insert(0, ("popreceipt", receipt))
        return query

    def _message(self, known):
        messages = known.get(self.queue, [])
        absent = ("01234567-0000-4000-8000-000000000000", "AAAAAAAAAAAAAAAAAAAAAA==")
        return messages[self.message % len(messages)] if messages else absent

    def __str__(self):
        text = f"{self.kind}: {self.method} {self.queue or '/'} {self.query} {self.headers}"
        if self.message is not None:
            text += f" message {self.message} receipt {self.receipt or 'its own'}"
        return f"{text} body {self.body[:100]!r} of {len(self.body)} bytes; odd: {self.odd}"


class Generator:
    def __init__(self, random):
        self.random = random
        self.next = None

    def start(self):
        return [Request("create", "PUT", name) for name in QUEUES]

    def request(self):
        kinds = [self.put] * 6 + [self.get] * 4 + [self.update, self.delete_message] * 3
        kinds += [self.create, self.metadata, self.metadata, self.list, self.list, self.peek, self.peek]
        kinds += [self.acl, self.set_acl, self.properties, self.clear, self.delete, self.other]
        request = self.next or self.random.choice(kinds)()
        # A changed setting is read before something else empties the services.
        is_set = request.kind == "set acl" and self.random.random() < 0.5
        self.next = Request("acl", "GET", request.queue, [("comp", "acl")]) if is_set else None
        self.spoil(request)
        return request

    def spoil(self, request):
        """Sometimes makes a part wrong that all requests have."""
        choice = self.random.random()
        if choice < 0.02:
            request.key = None
            request.odd.append("unsigned")
        elif choice < 0.04:
            request.key = "AAAA"
            request.odd.append("another key")
        elif choice < 0.05:
            request.headers["x-ms-date"] = "Sat, 21 Nov 2020 00:00:00 GMT"
            request.odd.append("old date")
        elif choice < 0.09:
            request.headers["x-ms-version"] = self.random.choice(VERSIONS)
            request.odd.append("version")
        elif choice < 0.12:
            request.headers["x-ms-client-request-id"] = self.random.choice(["abc", "x" * 1025])
        elif choice < 0.14 and request.queue:
            request.queue = self.random.choice(ODD_QUEUES)
            request.odd.append("queue")
        elif choice < 0.16 and request.queue:
            request.queue = "absent"

    def queue(self):
        return self.random.choice(QUEUES)

    def maybe(self, name, values):
        """A parameter, usually left out; the first values of a list are valid ones."""
        if self.random.random() < 0.6:
            return []
        good = self.random.random() < 0.5
        return [(name, self.random.choice(values[:3] if good else values))]

    def text(self):
        if self.random.random() < 0.15:
            return self.random.choice(ODD_BODIES)
        text = self.random.choice(TEXTS[:4] if self.random.random() < 0.5 else TEXTS)
        return f"<QueueMessage><MessageText>{text}</MessageText></QueueMessage>".encode()

    def put(self):
        query = self.maybe("visibilitytimeout", VISIBILITIES) + self.maybe("messagettl", LIVES)
        return Request("put", "POST", self.queue(), query, self.text(), {"Content-Type": "application/xml"})

    def get(self):
        query = self.maybe("numofmessages", COUNTS) + self.maybe("visibilitytimeout", VISIBILITIES)
        return Request("get", "GET", self.queue(), query)

    def peek(self):
        query = [("peekonly", "true")] + self.maybe("numofmessages", COUNTS)
        return Request("peek", "GET", self.queue(), query)

    def update(self):
        query = [("visibilitytimeout", self.random.choice(VISIBILITIES))]
        body = self.text() if self.random.random() < 0.7 else b""
        request = Request("update", "PUT", self.queue(), query, body, {"Content-Type": "application/xml"},
                          self.random.randrange(8))
        return self.with_receipt(request)

    def delete_message(self):
        request = Request("delete message", "DELETE", self.queue(), message=self.random.randrange(8))
        return self.with_receipt(request)

    def with_receipt(self, request):
        if self.random.random() < 0.15:
            request.receipt = [self.random.choice(RECEIPTS)]
            request.odd.append("receipt")
        return request

    def meta(self):
        pairs = self.random.choice(METADATA[:4] if self.random.random() < 0.7 else METADATA)
        return {f"x-ms-meta-{name}": value for name, value in pairs.items()}

    def create(self):
        return Request("create", "PUT", self.queue(), headers=self.meta())

    def delete(self):
        return Request("delete", "DELETE", self.queue())

    def clear(self):
        return Request("clear", "DELETE", self.queue())

    def metadata(self):
        if self.random.random() < 0.5:
            method = self.random.choice(["GET", "HEAD"])
            return Request("metadata", method, self.queue(), [("comp", "metadata")])
        return Request("set metadata", "PUT", self.queue(), [("comp", "metadata")], headers=self.meta())

    def list(self):
        query = [("comp", "list")] + self.maybe("maxresults", PAGES)
        query += self.maybe("prefix", ["jobs", "o", "zzz", ""])
        query += self.maybe("include", ["metadata", "metadata", "metadata", "other"])
        return Request("list", "GET", None, query)

    def acl(self):
        return Request("acl", self.random.choice(["GET", "HEAD"]), self.queue(), [("comp", "acl")])

    def set_acl(self):
        body = self.random.choice(POLICIES)
        return Request("set acl", "PUT", self.queue(), [("comp", "acl")], body)

    def properties(self):
        query = [("restype", "service"), ("comp", "properties")]
        if self.random.random() < 0.4:
            return Request("properties", "GET", None, query)
        body = b"<StorageServiceProperties>%s</StorageServiceProperties>"
        return Request("set properties", "PUT", None, query, body % self.random.choice(PROPERTIES))

    def other(self):
        if self.random.random() < 0.3:
            return Request("stats", "GET", None, [("restype", "service"), ("comp", "stats")])
        method = self.random.choice(["PATCH", "PUT", "HEAD"])
        query = self.random.choice([[], [("comp", "unknown")]])
        return Request("odd verb", method, self.queue(), query)
