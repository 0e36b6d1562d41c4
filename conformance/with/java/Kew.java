package kew.conformance;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.TimeUnit;

/** The server that the script has started, and Kew's own command line, which looks at it from outside. */
final class Kew {
    static final Duration PATIENCE = Duration.ofSeconds(30);

    private Kew() {
    }

    /** The connection string of Service Bus: that of the emulator, or that of TLS. */
    static String bus(boolean tls) {
        return System.getenv(tls ? "KEW_BUS_CONNECTION_STRING_TLS" : "KEW_BUS_CONNECTION_STRING");
    }

    static String storage(boolean tls) {
        return System.getenv(tls ? "KEW_QUEUE_CONNECTION_STRING_TLS" : "KEW_QUEUE_CONNECTION_STRING");
    }

    static Map<String, String> parts(String connectionString) {
        Map<String, String> parts = new HashMap<>();
        for (String part : connectionString.split(";")) {
            String[] pair = part.split("=", 2);
            parts.put(pair[0], pair[1]);
        }
        return parts;
    }

    static String run(String... arguments) {
        List<String> command = new ArrayList<>(List.of(System.getenv("KEW_BINARY")));
        command.addAll(List.of(arguments));
        try {
            Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
            String output = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
            if (process.waitFor() != 0) {
                throw new AssertionError(command + ": " + output);
            }
            return output;
        } catch (IOException problem) {
            throw new UncheckedIOException(problem);
        } catch (InterruptedException stopped) {
            throw new AssertionError(stopped);
        }
    }

    /** Waits until the server has no message there any more, not even a locked one. */
    static void awaitEmpty(String service, String name) throws InterruptedException {
        Instant deadline = Instant.now().plus(PATIENCE);
        while (true) {
            String counts = run(service, "show", "--json", name);
            if (counts.contains("\"active_messages\":0,") || counts.contains("\"approximate_message_count\":0,")) {
                return;
            }
            if (Instant.now().isAfter(deadline)) {
                throw new AssertionError("messages are left: " + counts);
            }
            Thread.sleep(50);
        }
    }

    /** Waits for these texts, in any order. A text may come again: with a failure, a library repeats a delivery. */
    static void expect(BlockingQueue<String> got, String... texts) throws InterruptedException {
        List<String> missing = new ArrayList<>(List.of(texts));
        Instant deadline = Instant.now().plus(PATIENCE);
        while (!missing.isEmpty()) {
            String text = got.poll(Math.max(0, Duration.between(Instant.now(), deadline).toMillis()), TimeUnit.MILLISECONDS);
            if (text == null) {
                throw new AssertionError("did not arrive: " + missing);
            }
            missing.remove(text);
        }
    }
}
