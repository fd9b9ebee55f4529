// java Charge.java AMOUNT: charge a card and wait for the outcome, with a JDK of Java 17 and no library.
// java Charge.java: settle the payment that a crash left open.
//
// The program prints what the cashier should see. Exit codes:
// 0 paid; 3 not paid; 6 paid, but another amount; 4 an operator has to check the payment;
// 5 AMOUNT was not charged, because an open payment was settled or another charge runs;
// 2 wrong usage; 1 the program failed, and the payment may be open.
import static java.nio.charset.StandardCharsets.UTF_8;
import static java.nio.file.StandardCopyOption.ATOMIC_MOVE;
import static java.nio.file.StandardOpenOption.*;

import java.io.IOException;
import java.math.BigDecimal;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
import java.nio.channels.FileChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import java.util.*;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

class Charge {
    static final Path DIRECTORY = Path.of(env("TILL_DIR", "."));
    static final Path OPEN = DIRECTORY.resolve("open-payment"); // the payment without an outcome: id, made, amount
    static final Path SOCKET = Path.of(env("POSD_SOCKET", "/run/posd/till.sock"));
    static String id, shown = "", notYet = ""; // last: used after the open payment is settled

    static FileChannel lock; // one run at a time; the lock is released when this program ends, also by a crash

    public static void main(String[] arguments) throws Exception {
        lock = FileChannel.open(DIRECTORY.resolve("open-payment.lock"), CREATE, WRITE);
        if (lock.tryLock() == null) {
            String first = arguments.length > 0 ? arguments[0] + " WAS NOT CHARGED: " : "";
            System.out.println(first + "another charge of this till is running");
            System.exit(5);
        }
        boolean leftOpen = Files.exists(OPEN);
        if (leftOpen) notYet = arguments.length > 0 ? arguments[0] : "";
        // Id and amount are on disk before the call.
        else if (arguments.length == 1) store(UUID.randomUUID() + "\n" + Instant.now() + "\n" + arguments[0]);
        else {
            System.err.println("usage: java Charge.java AMOUNT");
            System.exit(2);
        }
        String[] stored = Files.readString(OPEN).split("\n", 3);
        String made = stored[1], amount = stored[2];
        id = stored[0];
        if (leftOpen) show("First, the payment of " + amount + " that was left open:");

        boolean mayBeStarted = leftOpen; // then ask for the outcome; start only if posd says never_started
        for (int tries = 0;;) {
            // The amount is a text: a binary float is not exact. After 2 seconds the text is shown again.
            Answer answer = mayBeStarted ? call("GET", "/outcome?timeout=2&amounts=text", "")
                : call("PUT", "", "{\"amount\": {\"subtotal_iva0\": " + quoted(amount) + "}}");
            int status = answer.status;
            String text = answer.get("display.text"), detail = answer.get("detail"), step = answer.get("next_step");
            String lostUntil = answer.get("records_missing_until"), after = answer.get("retry_after_seconds");
            // No restore lost a record made after that time. A `made` in the future comes from a wrong clock and proves nothing.
            boolean newer = !lostUntil.isEmpty() && Instant.parse(made).isAfter(Instant.parse(lostUntil))
                && !Instant.parse(made).isAfter(Instant.now());
            boolean neverStarted = newer || answer.get("never_started").equals("true");
            if (mayBeStarted && status == 200) {
                if (step.equals("done")) {
                    String paid = answer.get("authorized_amount"), tip = answer.get("tip");
                    BigDecimal asked = new BigDecimal(amount).add(new BigDecimal(tip.isEmpty() ? "0" : tip));
                    boolean all = paid.isEmpty() || new BigDecimal(paid).compareTo(asked) == 0;
                    end(text + ", ticket " + answer.get("ticket_number"), all ? 0 : 6); // 6: a gift card had less money
                }
                if (step.equals("new_id_ok"))
                    end(text + ": " + answer.get("result") + " " + answer.get("failure_reason.message"), 3);
                end(text + " (payment " + id + ")", 4);
            } else if (status == 200 || status == 201 || status == 202) {
                mayBeStarted = true;
                show(text);
            } else if (mayBeStarted && neverStarted) {
                mayBeStarted = false;
            } else {
                boolean wait = status == 0 || step.equals("same_call") || mayBeStarted && (status == 429 || status >= 500);
                if (neverStarted && (!wait || ++tries == 3)) end("NOT PAID: " + detail, 3);
                if (!wait) end("CALL THE SUPERVISOR: " + detail + " (payment " + id + ")", 4);
                mayBeStarted = true;
                show(detail.isEmpty() ? "One moment, please" : detail); // posd restarts, or the terminal is busy
                Thread.sleep(1000 * (after.isEmpty() ? 1 : Long.parseLong(after)));
            }
        }
    }

    /** The body's values by their names; `get` returns "" for a null or missing value. */
    record Answer(int status, Map<String, String> body) {
        String get(String name) {
            return body.getOrDefault(name, "");
        }
    }

    static final Timer LIMIT = new Timer(true);

    static TimerTask closing(SocketChannel channel) {
        return new TimerTask() {
            public void run() {
                try {
                    channel.close(); // ends the call that waits
                } catch (IOException closed) {
                    // it has ended
                }
            }
        };
    }

    /** Call posd about this payment. Status 0: no complete reply of posd arrived. */
    static Answer call(String method, String path, String body) {
        byte[] bytes = body.getBytes(UTF_8);
        String head = method + " /v1/transactions/" + id + path + " HTTP/1.1\r\nHost: posd\r\nConnection: close\r\n"
            + "Content-Type: application/json\r\nContent-Length: " + bytes.length + "\r\n\r\n";
        try (SocketChannel channel = SocketChannel.open(StandardProtocolFamily.UNIX)) {
            LIMIT.schedule(closing(channel), 30_000); // milliseconds
            channel.connect(UnixDomainSocketAddress.of(SOCKET));
            for (ByteBuffer part : List.of(ByteBuffer.wrap(head.getBytes(UTF_8)), ByteBuffer.wrap(bytes)))
                while (part.hasRemaining()) channel.write(part);
            String[] answer = new String(Channels.newInputStream(channel).readAllBytes(), UTF_8).split("\r\n\r\n", 2);
            Map<String, String> values = flat(answer[1]); // incomplete: it throws
            if (values.containsKey("code") || values.containsKey("display.text"))
                return new Answer(Integer.parseInt(answer[0].split(" ")[1]), values);
        } catch (IOException | RuntimeException trouble) {
            // no reply
        }
        return new Answer(0, Map.of());
    }

    /** Write the payment to the disk, completely or not at all. */
    static void store(String text) throws IOException {
        Path fresh = DIRECTORY.resolve("open-payment.new");
        try (FileChannel file = FileChannel.open(fresh, CREATE, TRUNCATE_EXISTING, WRITE)) {
            ByteBuffer bytes = ByteBuffer.wrap(text.getBytes(UTF_8));
            while (bytes.hasRemaining()) file.write(bytes);
            file.force(true);
        }
        Files.move(fresh, OPEN, ATOMIC_MOVE);
        try (FileChannel directory = FileChannel.open(DIRECTORY, READ)) {
            directory.force(true);
        }
    }

    /** Print the result and exit. A payment that an operator has to check stays stored. */
    static void end(String words, int code) throws IOException {
        show(words);
        if (code == 4) System.exit(code);
        Files.delete(OPEN); // a till books the result first
        if (!notYet.isEmpty()) show(notYet + " WAS NOT CHARGED: the payment that was left open was settled instead");
        System.exit(notYet.isEmpty() ? code : 5);
    }

    static void show(String text) {
        if (!text.equals(shown)) System.out.println(text);
        shown = text;
    }

    static String env(String name, String otherwise) {
        return System.getenv().getOrDefault(name, otherwise);
    }

    static final Pattern TOKEN = Pattern.compile(
        "\\s*(?:([{\\[])|([}\\]])|,|\"([^\"\\\\]*+(?:\\\\.[^\"\\\\]*+)*+)\"\\s*(:)?|([-+.\\w]+))\\s*");

    /**
     * Read a JSON object as names and values: "outcome.result" is the result in the outcome, "attention.detail" has the
     * details of the whole list. A till uses a library for this; the JDK has none. Throw if the object is incomplete.
     */
    static Map<String, String> flat(String json) {
        Map<String, String> values = new HashMap<>();
        Deque<String> around = new ArrayDeque<>();
        Matcher token = TOKEN.matcher(json);
        String prefix = "", name = "";
        for (int at = 0; at < json.length(); at = token.end()) {
            if (!token.find(at) || token.start() != at) throw new IllegalArgumentException("no JSON");
            String text = token.group(3) == null ? token.group(5) : unescaped(token.group(3));
            if (token.group(1) != null) {
                around.push(prefix);
                prefix += name.isEmpty() ? "" : name + ".";
                name = "";
            } else if (token.group(2) != null) {
                prefix = around.pop();
                name = "";
            } else if (token.group(4) != null) name = text;
            else if (text != null && !"null".equals(token.group(5)))
                values.merge(prefix + name, text, (one, next) -> one + "; " + next);
        }
        if (values.isEmpty() || !around.isEmpty()) throw new IllegalArgumentException("half a JSON");
        return values;
    }

    static String unescaped(String text) {
        return Pattern.compile("\\\\(?:u(....)|([nrtbf])|(.))").matcher(text).replaceAll(found -> Matcher.quoteReplacement(
            found.group(1) != null ? "" + (char) Integer.parseInt(found.group(1), 16)
            : found.group(2) != null ? found.group().translateEscapes() : found.group(3)));
    }

    static String quoted(String text) {
        return '"' + text.replace("\\", "\\\\").replace("\"", "\\\"") + '"';
    }
}
