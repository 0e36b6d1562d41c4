"""The connection string of emulators, which names a port that may be taken.

As a program it runs the scenario in a network namespace that has only a loopback device.
"""

import fcntl
import socket
import struct
import sys

from azure.storage.queue import QueueServiceClient

from kew import NO_RETRIES, Server

PORT = 10001

SIOCGIFFLAGS = 0x8913
SIOCSIFFLAGS = 0x8914
IFF_UP = 1


def check(data_dir):
    server = Server(data_dir, listen=f"127.0.0.1:{PORT}").start()
    try:
        text = "UseDevelopmentStorage=true"
        with QueueServiceClient.from_connection_string(text, **NO_RETRIES) as service:
            with service.create_queue("emulated") as queue:
                queue.send_message("text")
                assert queue.receive_message().content == "text"
    finally:
        server.close()


def raise_loopback():
    """The device of a new namespace is off."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = fcntl.ioctl(any_socket, SIOCGIFFLAGS, struct.pack("16sH14x", b"lo", 0))
        _, flags = struct.unpack("16sH14x", request)
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | IFF_UP))


if __name__ == "__main__":
    raise_loopback()
    check(sys.argv[1])
