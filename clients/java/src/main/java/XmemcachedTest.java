import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import net.rubyeye.xmemcached.CommandFactory;
import net.rubyeye.xmemcached.GetsResponse;
import net.rubyeye.xmemcached.MemcachedClient;
import net.rubyeye.xmemcached.MemcachedClientBuilder;
import net.rubyeye.xmemcached.XMemcachedClientBuilder;
import net.rubyeye.xmemcached.command.BinaryCommandFactory;
import net.rubyeye.xmemcached.command.TextCommandFactory;
import net.rubyeye.xmemcached.exception.MemcachedException;
import net.rubyeye.xmemcached.impl.KetamaMemcachedSessionLocator;
import net.rubyeye.xmemcached.utils.AddrUtil;

/** xmemcached: both protocols, pooled connections, commands merged by its optimiser. */
public final class XmemcachedTest {
    public static void main(String[] args) throws Exception {
        for (CommandFactory factory : new CommandFactory[] {new TextCommandFactory(), new BinaryCommandFactory()}) {
            MemcachedClientBuilder builder = new XMemcachedClientBuilder(AddrUtil.getAddresses(Check.SERVER));
            builder.setCommandFactory(factory);
            builder.setConnectionPoolSize(3);
            builder.setOpTimeout(20_000);
            MemcachedClient client = builder.build();
            everything(client, factory.getProtocol().toString().toLowerCase());
            client.shutdown();
        }

        MemcachedClientBuilder builder = new XMemcachedClientBuilder(AddrUtil.getAddresses(Check.SERVERS));
        builder.setSessionLocator(new KetamaMemcachedSessionLocator());
        builder.setOpTimeout(20_000);
        MemcachedClient spread = builder.build();
        List<String> keys = new ArrayList<>();
        for (int n = 0; n < 1000; n++) {
            keys.add("spread:" + n);
            Check.same(spread.set("spread:" + n, 0, n), true, "set over three servers");
        }
        Check.same(spread.get(keys).size(), 1000, "three servers by ketama");
        spread.shutdown();
        Check.done();
    }

    private static void everything(MemcachedClient m, String name) throws Exception {
        m.flushAll();
        byte[] every = new byte[256];
        for (int i = 0; i < every.length; i++) {
            every[i] = (byte) i;
        }
        for (Object thing : new Object[] {every, "text", 42, 1L << 40, 2.5, true, new ArrayList<>(List.of("nuthatch"))}) {
            Check.same(m.set("typed", 0, thing), true, name + " set");
            Check.same(m.get("typed"), thing, name + " get: flags tell the type");
        }
        Check.same(m.get("absent"), null, name + " get of an absent key");
        Check.same(m.add("typed", 0, "no"), false, name + " add on present");
        Check.same(m.add("b", 0, "mid"), true, name + " add on absent");
        Check.same(m.replace("absent", 0, "no"), false, name + " replace on absent");
        Check.same(m.append("b", ">"), true, name + " append");
        Check.same(m.prepend("b", "<"), true, name + " prepend");
        Check.same(m.get("b"), "<mid>", name + " after append and prepend");
        Check.same(m.delete("b"), true, name + " delete");
        Check.same(m.delete("b"), false, name + " second delete");

        Check.same(m.incr("n", 5, 10), 10L, name + " incr on absent starts at the default");
        Check.same(m.incr("n", 5), 15L, name + " incr");
        Check.same(m.decr("n", 6), 9L, name + " decr");
        Check.same(m.decr("n", 100), 0L, name + " decr below nothing");
        m.set("word", 0, "nuthatch");
        String refusal = null;
        try {
            m.incr("word", 1);
        } catch (MemcachedException error) {
            refusal = "refused";
        }
        Check.same(refusal, "refused", name + " incr of a word");

        m.set("c", 0, "1");
        GetsResponse<String> got = m.gets("c");
        Check.same(got.getValue(), "1", name + " gets");
        Check.same(m.cas("c", 0, "2", got.getCas()), true, name + " cas that matches");
        Check.same(m.cas("c", 0, "3", got.getCas()), false, name + " cas that is out of date");
        Check.same(m.get("c"), "2", name + " after both cas");

        Collection<String> keys = new ArrayList<>();
        for (int n = 0; n < 1000; n++) {
            keys.add("many:" + n);
            m.setWithNoReply("many:" + n, 0, "value " + n);
        }
        // Three pooled connections: what was sent without waiting may still be on its way on another one.
        for (int n = 0; n < 1000; n++) {
            m.set("many:" + n, 0, "value " + n);
        }
        Map<String, String> many = m.get(keys);
        Check.same(many.size(), 1000, name + " get of 1000 keys");
        Check.same(many.get("many:777"), "value 777", name + " one of them");

        Check.same(m.set("large", 0, Check.LARGE), true, name + " set of 900 KiB");
        Check.same(m.get("large"), Check.LARGE, name + " get of 900 KiB");
        Check.same(m.getVersions().size(), 1, name + " versions");
        Check.same(m.getStats().values().iterator().next().get("pointer_size"), "64", name + " stats");

        m.set("brief", 2, "1");
        m.set("touched", 2, "2");
        m.set("got", 2, "3");
        Check.same(m.touch("touched", 100), true, name + " touch");
        if (name.equals("binary")) {
            Check.same(m.getAndTouch("got", 100), "3", name + " getAndTouch");
        }
        Check.passSeconds(2);
        Check.same(m.get("brief"), null, name + " after the expiry");
        Check.same(m.get("touched"), "2", name + " after the touched expiry");
        m.flushAll();
        Check.same(m.get("touched"), null, name + " get after flush");
    }
}
