package kew.conformance;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.atomic.AtomicInteger;

/** A proxy before the server: counts connections, and answers the first requests itself. */
final class Front implements AutoCloseable {
    private static final String BODY = "<?xml version=\"1.0\" encoding=\"utf-8\"?><Error><Code>ServerBusy</Code>"
        + "<Message>The server is currently unable to receive requests.</Message></Error>";
    private static final String BUSY = "HTTP/1.1 503 Service Unavailable\r\nx-ms-error-code: ServerBusy\r\n"
        + "Retry-After: 0\r\nContent-Type: application/xml\r\nConnection: close\r\n"
        + "Content-Length: " + BODY.length() + "\r\n\r\n" + BODY;

    final AtomicInteger connections = new AtomicInteger();
    private final int busy;
    private final ServerSocket listener;

    Front(int busy) throws IOException {
        this.busy = busy;
        listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        start(this::accept);
    }

    int port() {
        return listener.getLocalPort();
    }

    @Override
    public void close() throws IOException {
        listener.close();
    }

    private interface Work {
        void run() throws IOException;
    }

    /** If a connection breaks, the SDK handles it, so the scenario shows it. */
    private static void start(Work work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (IOException broken) {
                // See above.
            }
        });
        thread.setDaemon(true);
        thread.start();
    }

    private void accept() throws IOException {
        for (;;) {
            Socket client = listener.accept();
            boolean first = connections.incrementAndGet() <= busy;
            start(() -> serve(client, first));
        }
    }

    private static void serve(Socket client, boolean busy) throws IOException {
        try (client) {
            if (busy) {
                client.getInputStream().read(new byte[65536]);
                client.getOutputStream().write(BUSY.getBytes(StandardCharsets.US_ASCII));
                return;
            }
            try (Socket kew = new Socket(InetAddress.getLoopbackAddress(), Server.port())) {
                start(() -> copy(client.getInputStream(), kew.getOutputStream()));
                copy(kew.getInputStream(), client.getOutputStream());
            }
        }
    }

    private static void copy(InputStream from, OutputStream to) throws IOException {
        try (to) {
            from.transferTo(to);
        }
    }
}
