import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import net.spy.memcached.AddrUtil;
import net.spy.memcached.CASResponse;
import net.spy.memcached.CASValue;
import net.spy.memcached.ConnectionFactoryBuilder;
import net.spy.memcached.ConnectionFactoryBuilder.Locator;
import net.spy.memcached.ConnectionFactoryBuilder.Protocol;
import net.spy.memcached.DefaultHashAlgorithm;
import net.spy.memcached.FailureMode;
import net.spy.memcached.MemcachedClient;

/** spymemcached: both protocols, everything asynchronous on one connection, gets merged into one by its optimiser. */
public final class SpyTest {
    public static void main(String[] args) throws Exception {
        System.setProperty("net.spy.log.LoggerImpl", "net.spy.memcached.compat.log.SLF4JLogger");
        for (Protocol protocol : Protocol.values()) {
            MemcachedClient client = new MemcachedClient(
                new ConnectionFactoryBuilder().setProtocol(protocol).setOpTimeout(20_000).setShouldOptimize(true).build(),
                AddrUtil.getAddresses(Check.SERVER));
            everything(client, protocol.toString().toLowerCase());
            client.shutdown();
        }

        MemcachedClient spread = new MemcachedClient(
            new ConnectionFactoryBuilder().setProtocol(Protocol.BINARY).setLocatorType(Locator.CONSISTENT)
                .setHashAlg(DefaultHashAlgorithm.KETAMA_HASH)
                // Otherwise what is asked for before a connection stands goes to another server.
                .setFailureMode(FailureMode.Retry).setOpTimeout(20_000).build(),
            AddrUtil.getAddresses(Check.SERVERS));
        List<String> keys = new ArrayList<>();
        for (int n = 0; n < 1000; n++) {
            keys.add("spread:" + n);
            spread.set("spread:" + n, 0, n);
        }
        spread.waitForQueues(20, java.util.concurrent.TimeUnit.SECONDS);
        Check.same(spread.getBulk(keys).size(), 1000, "three servers by ketama");
        for (Map<String, String> stats : spread.getStats().values()) {
            Check.same(Integer.parseInt(stats.get("curr_items")) > 0, true, "every server holds some");
        }
        spread.shutdown();
        Check.done();
    }

    private static void everything(MemcachedClient m, String name) throws Exception {
        Check.same(m.flush().get(), true, name + " flush");
        byte[] every = new byte[256];
        for (int i = 0; i < every.length; i++) {
            every[i] = (byte) i;
        }
        for (Object thing : new Object[] {every, "", "text", 42, 1L << 40, 2.5, true, new ArrayList<>(List.of("nuthatch"))}) {
            Check.same(m.set("typed", 0, thing).get(), true, name + " set");
            Check.same(m.get("typed"), thing, name + " get: flags tell the type");
        }
        Check.same(m.get("absent"), null, name + " get of an absent key");
        String longest = String.join("", Collections.nCopies(250, "k"));
        Check.same(m.set(longest, 0, "v").get(), true, name + " set of a 250-byte key");
        Check.same(m.get(longest), "v", name + " get of a 250-byte key");
        Check.same(m.add("typed", 0, "no").get(), false, name + " add on present");
        Check.same(m.add("b", 0, "mid").get(), true, name + " add on absent");
        Check.same(m.replace("absent", 0, "no").get(), false, name + " replace on absent");
        Check.same(m.append("b", ">").get(), true, name + " append");
        Check.same(m.prepend("b", "<").get(), true, name + " prepend");
        Check.same(m.append("absent", ">").get(), false, name + " append on absent");
        Check.same(m.get("b"), "<mid>", name + " after append and prepend");
        Check.same(m.replace("b", 0, "new").get(), true, name + " replace on present");
        Check.same(m.delete("b").get(), true, name + " delete");
        Check.same(m.delete("b").get(), false, name + " second delete");

        Check.same(m.incr("n", 5, 10L, 0), 10L, name + " incr on absent starts at the default");
        Check.same(m.incr("n", 5), 15L, name + " incr");
        Check.same(m.decr("n", 6), 9L, name + " decr");
        Check.same(m.decr("n", 100), 0L, name + " decr below nothing");
        Check.same(m.incr("absent", 1), -1L, name + " incr on absent");
        m.set("word", 0, "nuthatch").get();
        Check.same(m.asyncIncr("word", 1).getStatus().isSuccess(), false, name + " incr of a word");

        m.set("c", 0, "1").get();
        CASValue<Object> got = m.gets("c");
        Check.same(got.getValue(), "1", name + " gets");
        Check.same(m.cas("c", got.getCas(), "2"), CASResponse.OK, name + " cas that matches");
        Check.same(m.cas("c", got.getCas(), "3"), CASResponse.EXISTS, name + " cas that is out of date");
        Check.same(m.cas("absent", got.getCas(), "3"), CASResponse.NOT_FOUND, name + " cas on absent");
        Check.same(m.get("c"), "2", name + " after all cas");

        List<String> keys = new ArrayList<>();
        for (int n = 0; n < 1000; n++) {
            keys.add("many:" + n);
            m.set("many:" + n, 0, "value " + n);
        }
        Map<String, Object> many = m.getBulk(keys);
        Check.same(many.size(), 1000, name + " getBulk of 1000 keys");
        Check.same(many.get("many:777"), "value 777", name + " one of them");
        List<java.util.concurrent.Future<Object>> under = new ArrayList<>();
        for (String key : keys) {
            under.add(m.asyncGet(key));
        }
        for (int n = 0; n < 1000; n++) {
            Check.same(under.get(n).get(), "value " + n, name + " 1000 gets under way at once");
        }

        Check.same(m.set("large", 0, Check.LARGE).get(), true, name + " set of 900 KiB");
        Check.same(m.get("large"), Check.LARGE, name + " get of 900 KiB");
        // The client itself refuses values above 20 MiB only, so the server has to.
        Check.same(m.set("large", 0, Check.TOO_LARGE).getStatus().isSuccess(), false, name + " set of 2 MiB");
        Check.same(m.get("large"), null, name + " a refused set leaves no stale value");

        Check.same(m.getVersions().size(), 1, name + " versions");
        Check.same(m.getStats().values().iterator().next().get("pointer_size"), "64", name + " stats");
        Check.same(m.getStats("settings").values().iterator().next().get("item_size_max"), "1048576", name + " stats settings");
        Check.same(m.getStats("items").size(), 1, name + " stats items");

        m.set("brief", 2, "1").get();
        m.set("touched", 2, "2").get();
        m.set("got", 2, "3").get();
        Check.same(m.touch("touched", 100).get(), true, name + " touch");
        Check.same(m.touch("absent", 100).get(), false, name + " touch on absent");
        if (name.equals("binary")) {
            Check.same(m.getAndTouch("got", 100).getValue(), "3", name + " getAndTouch");
            Check.same(m.getAndTouch("absent", 100), null, name + " getAndTouch on absent");
        }
        Check.passSeconds(2);
        Check.same(m.get("brief"), null, name + " after the expiry");
        Check.same(m.get("touched"), "2", name + " after the touched expiry");
        Check.same(m.get("got"), name.equals("binary") ? "3" : null, name + " after getAndTouch's expiry");
        Check.same(m.flush().get(), true, name + " flush");
        Check.same(m.get("touched"), null, name + " get after flush");
    }
}
