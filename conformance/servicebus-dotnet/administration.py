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

    def put(self, name, elements, headers=()):
        body = (
            '<?xml version="1.0" encoding="utf-8"?><entry xmlns="http://www.w3.org/2005/Atom">'
            '<content type="application/xml"><QueueDescription '
            'xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect">'
            f"{elements}</QueueDescription></content></entry>"
        )
        return read(self.ask("PUT", name, "", body, headers))

    def get(self, name):
        return read(self.ask("GET", name))

    def delete(self, name):
        self.ask("DELETE", name, "")

    def names(self):
        """Requests pages of 100 until one has fewer."""
        names = []
        while True:
            query = f"enrich=False&$skip={len(names)}&$top=100&"
            found = self.ask("GET", "$Resources/queues", query).findall(f"{ATOM}entry")
            names += [entry.find(f"{ATOM}title").text for entry in found]
            if len(found) < 100:
                return names

    def namespace(self):
        return self.ask("GET", "$namespaceinfo", "")


def read(entry):
    """The name, which it reads from the title, and the elements of the description, as texts."""
    assert entry.tag == f"{ATOM}entry", entry.tag
    description = entry.find(f"{ATOM}content").find(f"{CONNECT}QueueDescription")
    elements = {element.tag.removeprefix(CONNECT): element.text for element in description}
    return entry.find(f"{ATOM}title").text, elements, description


def elements(description):
    """The body of an update, made from the previous answer."""
    return "".join(xml.tostring(element, encoding="unicode") for element in description)
