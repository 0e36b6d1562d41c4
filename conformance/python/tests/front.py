"""A proxy before the server: counts connections, and answers the first requests itself."""

import contextlib
import socket
import threading

BODY = (
    b'<?xml version="1.0" encoding="utf-8"?><Error><Code>ServerBusy</Code>'
    b"<Message>The server is currently unable to receive requests.</Message></Error>"
)
BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nx-ms-error-code: ServerBusy\r\n"
    b"Content-Type: application/xml\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s"
) % (len(BODY), BODY)


class Front:
    def __init__(self, port, busy=0):
        self.kew = port
        self.busy = busy
        self.connections = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self):
        return self.listener.getsockname()[1]

    def __enter__(self):
        return self

    def __exit__(self, *error):
        # Wakes the thread that waits for a connection. Closing alone does not.
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            busy = self.connections <= self.busy
            threading.Thread(target=self._serve, args=(client, busy), daemon=True).start()

    def _serve(self, client, busy):
        with client, contextlib.suppress(OSError):
            if busy:
                client.recv(65536)
                client.sendall(BUSY)
                return
            with socket.create_connection(("127.0.0.1", self.kew)) as kew:
                back = threading.Thread(target=copy, args=(kew, client), daemon=True)
                back.start()
                copy(client, kew)
                back.join()


def copy(source, target):
    with contextlib.suppress(OSError):
        while chunk := source.recv(65536):
            target.sendall(chunk)
        target.shutdown(socket.SHUT_WR)
