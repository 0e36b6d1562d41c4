"""Sends the requests of .NET's administration client: ATOM over HTTP, on the connection string's port."""

import http.client
import ssl
import xml.etree.ElementTree as xml

from client import sas

ATOM = "{http://www.w3.org/2005/Atom}"
CONNECT = "{http://schemas.microsoft.com/netservices/2010/10/servicebus/connect}"


class Failed(Exception):
    """A refused request, with its status."""


class Administration:
    def __init__(self, door):
        self.door = door
        self.scheme = "http" if door.name == "amqp" else "https"

    def ask(self, method, path, query="enrich=False&", body=None, headers=()):
        address = ("127.0.0.1", self.door.port)
        if self.scheme == "http":
            connection = http.client.HTTPConnection(*address, timeout=20)
        else:
            context = ssl.create_default_context(cafile=self.door.authority)
            # The certificate is for this name and for the address.
            connection = http.client.HTTPSConnection(*address, timeout=20, context=context)
        audience = f"{self.scheme}://{self.door.host}:{self.door.port}/{path}"
        more = {
            "Authorization": sas(audience, self.door.rule, self.door.key, 1_200),
            "Host": f"{self.door.host}:{self.door.port}",
            "User-Agent": "azsdk-net-Messaging.ServiceBus/7.20.1",
            "x-ms-client-request-id": "11111111-2222-3333-4444-555555555555",
            **dict(headers),
        }
        if body is not None:
            more["Content-Type"] = "application/atom+xml;type=entry;charset=utf-8"
        connection.request(method, f"/{path}?{query}api-version=2021-05", body, more)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        if answer.status >= 300:
            error = xml.fromstring(text)
            assert error.tag == "Error" and error.find("Code").text == str(answer.status), text
            assert error.find("Detail").text, text
            raise Failed(answer.status)
        return xml.fromstring(text) if text else None

    def put(self, name, elements, headers=(), kind="QueueDescription"):
        body = (
            '<?xml version="1.0" encoding="utf-8"?><entry xmlns="http://www.w3.org/2005/Atom">'
            f'<content type="application/xml"><{kind} '
            'xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect">'
            f"{elements}</{kind}></content></entry>"
        )
        return read(self.ask("PUT", name, "", body, headers), kind)

    def get(self, name, kind="QueueDescription"):
        return read(self.ask("GET", name), kind)

    def delete(self, name):
        self.ask("DELETE", name, "")

    def names(self, path="$Resources/queues"):
        """Requests pages of 100 until one has fewer."""
        names = []
        while True:
            query = f"enrich=False&$skip={len(names)}&$top=100&"
            found = self.ask("GET", path, query).findall(f"{ATOM}entry")
            names += [entry.find(f"{ATOM}title").text for entry in found]
            if len(found) < 100:
                return names

    def namespace(self):
        return self.ask("GET", "$namespaceinfo", "")


def read(entry, kind):
    """The name, which it reads from the title, and the elements of the description, as texts."""
    assert entry.tag == f"{ATOM}entry", entry.tag
    description = entry.find(f"{ATOM}content").find(f"{CONNECT}{kind}")
    elements = {element.tag.removeprefix(CONNECT): element.text for element in description}
    return entry.find(f"{ATOM}title").text, elements, description


def elements(description):
    """The body of an update, made from the previous answer."""
    return "".join(xml.tostring(element, encoding="unicode") for element in description)


# The prefixes that .NET makes up for the namespaces of attributes.
_TYPE = 'p4:type="{}" xmlns:p4="http://www.w3.org/2001/XMLSchema-instance"'
_TYPED = "{http://www.w3.org/2001/XMLSchema-instance}type"


def typed(name, kind, inner):
    """A filter or an action."""
    return f"<{name} {_TYPE.format(kind)}>{inner}</{name}>"


def values(name, entries):
    """Properties or parameters: texts with their types."""
    items = "".join(
        f"<KeyValueOfstringanyType><Key>{key}</Key><Value {_TYPE.format('l28:' + kind)} "
        f'xmlns:l28="http://www.w3.org/2001/XMLSchema">{text}</Value></KeyValueOfstringanyType>'
        for key, (kind, text) in entries.items()
    )
    return f"<{name}>{items}</{name}>"


def rule(description):
    """The filter and the action of a rule: the type of each, its elements as texts, and its values with their types."""
    def part(name):
        element = description.find(f"{CONNECT}{name}")
        texts, found = {}, {}
        for child in element:
            texts[child.tag.removeprefix(CONNECT)] = child.text
            for entry in child:
                value = entry.find(f"{CONNECT}Value")
                # It cuts the prefix off that the namespace of the type has.
                prefix, _, kind = value.attrib[_TYPED].partition(":")
                assert prefix == "d6p1", value.attrib
                found[entry.find(f"{CONNECT}Key").text] = (kind, value.text)
        return element.attrib[_TYPED], texts, found

    return part("Filter"), part("Action")
