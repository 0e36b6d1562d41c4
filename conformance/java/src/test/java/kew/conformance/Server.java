package kew.conformance;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/** Runs kew as a process on a free port, from the first scenario to the last. */
final class Server {
    private static final int PATIENCE_SECONDS = 30;
    private static final Server SHARED = new Server();

    private final Map<String, String> facts = new HashMap<>();

    static String fact(String name) {
        return SHARED.facts.get(name);
    }

    static int port() {
        String address = fact("KEW_QUEUE_LISTEN");
        return Integer.parseInt(address.substring(address.lastIndexOf(':') + 1));
    }

    /** A part of the connection string that kew prints. */
    static String part(String name) {
        for (String part : fact("KEW_QUEUE_CONNECTION_STRING").split(";")) {
            if (part.startsWith(name + "=")) {
                return part.substring(name.length() + 1);
            }
        }
        throw new IllegalArgumentException(name);
    }

    private Server() {
        try {
            start();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private void start() throws IOException {
        Path directory = Files.createTempDirectory("kew-java-");
        String tls = System.getenv("KEW_TEST_TLS");
        ProcessBuilder builder = new ProcessBuilder(System.getenv("KEW_BINARY"), "serve",
            "--data-dir", directory.resolve("data").toString(), "--queue-listen", "127.0.0.1:0",
            "--tls-cert", tls + "/server.pem", "--tls-key", tls + "/server.key");
        builder.environment().keySet().removeIf(name -> name.startsWith("KEW_"));
        // It keeps its log, which the suite checks at its end.
        Process process = builder.start();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> end(process, directory)));
        Thread late = new Thread(() -> killLate(process));
        late.setDaemon(true);
        late.start();
        BufferedReader lines =
            new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
        while (!facts.containsKey("KEW_READY")) {
            String line = lines.readLine();
            if (line == null) {
                throw new IOException("kew did not become ready");
            }
            int at = line.indexOf('=');
            facts.put(line.substring(0, at), line.substring(at + 1).replace("'", ""));
        }
        late.interrupt();
    }

    private static void killLate(Process process) {
        try {
            Thread.sleep(PATIENCE_SECONDS * 1000L);
            process.destroyForcibly();
        } catch (InterruptedException ready) {
            Thread.currentThread().interrupt();
        }
    }

    private static void end(Process process, Path directory) {
        process.destroy();
        try (var files = Files.walk(directory)) {
            if (!process.waitFor(PATIENCE_SECONDS, TimeUnit.SECONDS)) {
                process.destroyForcibly();
            }
            files.sorted((a, b) -> b.compareTo(a)).forEach(file -> file.toFile().delete());
        } catch (IOException | InterruptedException error) {
            error.printStackTrace();
        }
    }
}
