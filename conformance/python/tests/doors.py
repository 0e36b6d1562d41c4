"""The ways to the server: by protocol, and by the place of the account in the address."""

import socket

import pytest

from kew import NO_RETRIES, TLS


class Door:
    """The options of the SDK's client."""

    def __init__(self, server, scheme, host=None):
        self.server = server
        self.scheme = scheme
        self.host = host
        self.options = dict(NO_RETRIES)
        if scheme == "https":
            self.options["connection_verify"] = str(TLS / "ca.pem")

    def part(self, name):
        text = self.server.connection_string.rstrip(";")
        return dict(part.split("=", 1) for part in text.split(";"))[name]

    @property
    def account(self):
        return self.part("AccountName")

    @property
    def key(self):
        return self.part("AccountKey")

    def url(self, port=None, suffix=""):
        """The address of the account or, with a suffix, of its secondary."""
        port = port or self.server.port
        if self.host:
            return f"{self.scheme}://{self.account}{suffix}.{self.host}:{port}"
        return f"{self.scheme}://127.0.0.1:{port}/{self.account}{suffix}"

    @property
    def connection_string(self):
        return (
            f"DefaultEndpointsProtocol={self.scheme};AccountName={self.account};"
            f"AccountKey={self.key};QueueEndpoint={self.url()};"
        )


# Every scenario of a queue runs through each of these.
DOORS = {
    "http-path": ("http", None),
    "http-host": ("http", "queue.localhost"),
    "https-path": ("https", None),
    "https-host": ("https", "queue.localhost"),
}


def _only(is_meant):
    """Runs a scenario only through the doors that it is meant for, instead of skipping the others."""
    meant = {name: door for name, door in DOORS.items() if is_meant(*door)}
    return pytest.mark.parametrize("door", meant.values(), ids=meant.keys(), indirect=True)


OVER_HTTP = _only(lambda scheme, host: scheme == "http")
OVER_HTTPS = _only(lambda scheme, host: scheme == "https")
BY_HOST = _only(lambda scheme, host: host)


def resolve_localhost():
    """Not every resolver knows that all names under localhost are this machine."""
    ask = socket.getaddrinfo

    def getaddrinfo(host, *arguments, **options):
        if isinstance(host, str) and host.endswith(".localhost"):
            host = "127.0.0.1"
        return ask(host, *arguments, **options)

    socket.getaddrinfo = getaddrinfo
