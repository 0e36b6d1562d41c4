// A proxy before the server: counts connections, and answers the first requests itself.

import net from "node:net";

const BODY =
  '<?xml version="1.0" encoding="utf-8"?><Error><Code>ServerBusy</Code>' +
  "<Message>The server is currently unable to receive requests.</Message></Error>";

const BUSY =
  "HTTP/1.1 503 Service Unavailable\r\nx-ms-error-code: ServerBusy\r\nRetry-After: 0\r\n" +
  "Content-Type: application/xml\r\nConnection: close\r\n" +
  `Content-Length: ${BODY.length}\r\n\r\n${BODY}`;

export class Front {
  constructor(port, busy = 0) {
    this.connections = 0;
    this.server = net.createServer((client) => {
      this.connections += 1;
      client.on("error", () => client.destroy());
      if (this.connections <= busy) {
        client.once("data", () => client.end(BUSY));
        return;
      }
      const kew = net.connect(port, "127.0.0.1");
      kew.on("error", () => client.destroy());
      kew.on("close", () => client.destroy());
      client.on("close", () => kew.destroy());
      client.pipe(kew).pipe(client);
    });
  }

  open() {
    return new Promise((resolve) =>
      this.server.listen(0, "127.0.0.1", () => resolve(this.server.address().port)),
    );
  }

  close() {
    this.server.close();
  }
}
