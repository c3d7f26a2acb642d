import java.io.IOException;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Objects;
import java.util.Random;

/** What the Java clients' tests share: where the server is, comparing, and letting time pass. See clients/README.md. */
final class Check {
    static final String SERVER = System.getenv("SERVER");
    static final String SERVERS = System.getenv("SERVERS");
    static final byte[] LARGE = new byte[900 * 1024];
    static final byte[] TOO_LARGE = new byte[2 * 1024 * 1024];
    private static int checks;

    static {
        new Random(7).nextBytes(LARGE);
        new Random(8).nextBytes(TOO_LARGE);
    }

    private Check() {}

    static void same(Object got, Object expected, String what) {
        checks++;
        boolean equal = got instanceof byte[] && expected instanceof byte[]
            ? Arrays.equals((byte[]) got, (byte[]) expected)
            : Objects.equals(got, expected);
        if (!equal) {
            System.out.println(what + ": expected " + shortened(expected) + " and got " + shortened(got));
            System.exit(1);
        }
    }

    private static String shortened(Object value) {
        String text = String.valueOf(value);
        return text.length() < 300 ? text : text.substring(0, 300) + " …";
    }

    static void passSeconds(int seconds) throws IOException, InterruptedException {
        if (!"debugtime".equals(System.getenv("CLOCK"))) {
            Thread.sleep((seconds + 1) * 1000L);
            return;
        }
        String[] where = SERVER.split(":");
        try (Socket control = new Socket(where[0], Integer.parseInt(where[1]))) {
            control.getOutputStream().write(("debugtime " + (seconds + 1) + "\r\n").getBytes(StandardCharsets.US_ASCII));
            same(new String(control.getInputStream().readNBytes(4), StandardCharsets.US_ASCII), "OK\r\n", "debugtime");
        }
    }

    static void done() {
        System.out.println("ok " + checks);
        System.exit(0);
    }
}
