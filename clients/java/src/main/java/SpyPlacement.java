import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Proxy;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import net.spy.memcached.DefaultHashAlgorithm;
import net.spy.memcached.KetamaNodeLocator;
import net.spy.memcached.MemcachedNode;

/** Answers where spymemcached's ketama places keys. See ../../../../php/placement.php for what comes in and goes out. */
public final class SpyPlacement {
    public static void main(String[] args) throws Exception {
        List<String> keys = Files.readAllLines(Path.of(args[0]), StandardCharsets.UTF_8);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        int answers = 0;
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split("\t", -1);
            List<MemcachedNode> nodes = new ArrayList<>();
            for (String server : words[4].split(";")) {
                String[] parts = server.split(" ");
                nodes.add(node(new InetSocketAddress(parts[0], Integer.parseInt(parts[1]))));
            }
            KetamaNodeLocator locator = new KetamaNodeLocator(nodes, DefaultHashAlgorithm.KETAMA_HASH);
            StringBuilder answer = new StringBuilder(words[0]);
            for (String key : keys) {
                answer.append(' ').append(nodes.indexOf(locator.getPrimary(key)));
            }
            System.out.println(answer);
            answers++;
        }
        System.out.println("ok " + answers);
    }

    /** A node that has an address and no connection. */
    private static MemcachedNode node(InetSocketAddress address) {
        Class<?>[] type = {MemcachedNode.class};
        return (MemcachedNode) Proxy.newProxyInstance(MemcachedNode.class.getClassLoader(), type, (self, method, args) -> {
            switch (method.getName()) {
                case "getSocketAddress": return address;
                case "hashCode": return System.identityHashCode(self);
                case "equals": return self == args[0];
                case "toString": return address.toString();
                default: throw new UnsupportedOperationException(method.getName());
            }
        });
    }
}
