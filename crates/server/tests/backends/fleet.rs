//! A pool before a fleet of real memcached servers: in every protocol, as if the client spoke with memcached itself; one
//! fetch for a hot key; a server that is away; changes by others, how long they go unseen.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use crate::common::{Client, PATIENCE, address, eventually, listener, settings, source};
use crate::{count, follow};
use nuthatch_fleet::membership::Source;
use nuthatch_fleet::{FleetSettings, Protocol, ServerSpec};
use nuthatch_server::settings::{PoolSettings, Settings};
use nuthatch_server::{Running, Server};
use nuthatch_testkit::conversation::{Scope, hold};
use nuthatch_testkit::{Launch, Spawned, spawn};

fn memcached() -> Spawned {
    Launch::real_memcached().args(["-t", "1", "-m", "256", "-o", "no_lru_maintainer,no_lru_crawler"]).start()
}

/// A server whose pool `tiered` stands before a fleet of servers on `ports`.
fn before(ports: &[u16], protocol: Protocol, ttl_max_seconds: u32) -> Settings {
    let fleet = FleetSettings {
        servers: ports.iter().map(|port| source(*port)).collect(),
        protocol,
        connect_timeout: Duration::from_secs(1),
        read_timeout: Duration::from_secs(2),
        timeout: Duration::from_secs(2),
        failure_limit: 1,
        retry_timeout: Duration::from_millis(200),
        ..FleetSettings::named("shared")
    };
    let pool = PoolSettings { backend: Some("shared".to_owned()), ttl_max_seconds, ..PoolSettings::named("tiered") };
    Settings { pools: vec![pool], fleets: vec![fleet], listeners: vec![listener(0)], ..settings() }
}

fn start(settings: Settings) -> Running {
    Server::start(settings).expect("the server starts")
}

fn ports(servers: &[Spawned]) -> Vec<u16> {
    servers.iter().map(Spawned::port).collect()
}

/// One of memcached's own counters.
fn asked(server: &Spawned, counter: &str) -> u64 {
    Client::of_port(server.port()).number(counter)
}

#[test]
fn conversations_go_through_a_fleet_as_with_its_server_itself() {
    let servers = [Launch::memcached().args(["-m", "256"]).start()];
    let server = start(before(&ports(&servers), Protocol::Meta, 0));
    let at = spawn::Address::Tcp(address(&server, 0).port());
    for seed in 0..4 {
        Client::connect(&server).ask("flush_all\r\n", "OK\r\n");
        hold(&at, seed, Scope::of_ours(2000));
    }
}

#[test]
fn every_command_reaches_the_server_of_its_key_in_each_protocol_of_the_fleet() {
    for protocol in [Protocol::Text, Protocol::Meta, Protocol::Binary] {
        let servers = [memcached(), memcached(), memcached()];
        let server = start(before(&ports(&servers), protocol, 5));
        let mut client = Client::connect(&server);
        let (mut keys, mut values) = (String::new(), String::new());
        for number in 0..60 {
            client.ask(format!("set k{number} {number} 100 3\r\n{number:03}\r\n"), "STORED\r\n");
            keys += &format!(" k{number}");
            values += &format!("VALUE k{number} {number} 3\r\n{number:03}\r\n");
        }
        for _ in 0..2 {
            client.ask(format!("get{keys}\r\n"), format!("{values}END\r\n"));
        }
        for server in &servers {
            assert!(asked(server, "curr_items") > 5, "keys are spread");
        }
        client.ask("add k1 0 0 1\r\nx\r\nreplace k1 0 0 1\r\n7\r\nincr k1 5\r\n", "NOT_STORED\r\nSTORED\r\n12\r\n");
        client.ask(
            "append k1 0 0 1\r\n!\r\nget k1\r\nincr k1 1\r\n",
            "STORED\r\nVALUE k1 0 3\r\n12!\r\nEND\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
        );
        client.send("gets k2\r\n");
        let line = client.read_until("END\r\n");
        let cas = line.lines().next().and_then(|line| line.rsplit(' ').next()).expect("a unique").to_owned();
        client.ask(format!("cas k2 0 0 1 {cas}\r\nx\r\ncas k2 0 0 1 {cas}\r\ny\r\n"), "STORED\r\nEXISTS\r\n");
        client.ask(
            "touch k2 50\r\ntouch none 50\r\ngat 60 k2 none\r\n",
            "TOUCHED\r\nNOT_FOUND\r\nVALUE k2 0 1\r\nx\r\nEND\r\n",
        );
        client.ask("delete k2\r\ndelete k2\r\nget k2\r\n", "DELETED\r\nNOT_FOUND\r\nEND\r\n");
        if protocol != Protocol::Binary {
            client.ask("mg k3 t v Oq k\r\nmd k3 C1\r\n", "VA 3 t100 Oq kk3\r\n003\r\nEX\r\n");
            client.ask("ms a2V5IDE= 2 b c0\r\n".replace(" c0", ""), "");
            client.ask("hi\r\nmg a2V5IDE= b v k\r\n", "HD\r\nVA 2 ka2V5IDE= b\r\nhi\r\n");
        }
        client.ask("flush_all\r\nget k5\r\n", "OK\r\nEND\r\n");
        client.send("stats fleet\r\n");
        let told = client.read_until("END\r\n");
        for server in &servers {
            assert!(told.contains(&format!("shared:127.0.0.1:{}:state Up", server.port())), "{told}");
        }
    }
}

/// The port of a server that has one answer to everything.
fn refusing(answer: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut answers = stream.try_clone().expect("a second handle");
                let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
                while let Some(line) = lines.next() {
                    // Values in this test are a line each.
                    if line.split(' ').next().is_some_and(|word| STORES.contains(&word)) && lines.next().is_none() {
                        return;
                    }
                    if answers.write_all(format!("{answer}\r\n").as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    port
}

const STORES: [&str; 5] = ["set", "add", "append", "cas", "ms"];

#[test]
fn what_a_server_refuses_is_refused_in_its_own_words_and_never_a_miss() {
    for protocol in [Protocol::Text, Protocol::Meta] {
        for line in
            ["SERVER_ERROR 307 busy", "SERVER_ERROR out of memory", "SERVER_ERROR too large", "CLIENT_ERROR bad key"]
        {
            let server = start(before(&[refusing(line)], protocol, 5));
            let mut client = Client::connect(&server);
            for command in [
                "get k",
                "gets k",
                "get k j",
                "set k 0 0 1\r\nx",
                "add k 0 0 1\r\nx",
                "append k 0 0 1\r\nx",
                "cas k 0 0 1 7\r\nx",
                "delete k",
                "touch k 5",
                "gat 5 k",
                "incr k 1",
                "mg k v",
                "mg k v t",
                "ms k 1\r\nx",
                "ms k 1 I\r\nx",
                "md k",
                "ma k",
                "flush_all",
            ] {
                client.ask(format!("{command}\r\n"), format!("{line}\r\n"));
            }
            client.ask("set k 0 0 1 noreply\r\nx\r\ndelete k noreply\r\nmn\r\n", "MN\r\n");
        }
    }
}

#[test]
fn a_hot_key_costs_the_fleet_one_get_in_ttl_max() {
    let servers = [memcached()];
    let server = start(before(&ports(&servers), Protocol::Meta, 5));
    let mut clients: Vec<_> = (0..10).map(|_| Client::connect(&server)).collect();
    clients[0].ask("debugtime p\r\nset hot 0 0 1\r\n1\r\n", "OK\r\nSTORED\r\n");
    // A stream that begins later than that would take one more copy along.
    eventually(|| clients[0].stat("stats pools", "tiered:tier_stream").starts_with("following"));
    let before = asked(&servers[0], "cmd_get");
    for second in 0..20 {
        for client in &mut clients {
            client.ask("get hot\r\nget hot\r\n", "VALUE hot 0 1\r\n1\r\nEND\r\n".repeat(2));
        }
        if second < 19 {
            clients[0].ask("debugtime 1\r\n", "OK\r\n");
        }
    }
    // The copy that the set left goes when the server tells of that set, unless it has told of it before.
    let fetches = asked(&servers[0], "cmd_get") - before;
    assert!((3..=4).contains(&fetches), "400 gets in 20 seconds cost {fetches}");
}

#[test]
fn a_server_that_is_away_is_named_and_the_others_go_on() {
    let mut servers = vec![memcached(), memcached()];
    let server = start(before(&ports(&servers), Protocol::Text, 5));
    let mut client = Client::connect(&server);
    for number in 0..20 {
        client.ask(format!("set k{number} 0 0 1\r\n1\r\n"), "STORED\r\n");
    }
    let gone = servers.remove(1);
    let port = gone.port();
    drop(gone);
    client.ask("debugtime 6\r\n", "OK\r\n");
    let (mut served, mut named) = (0, 0);
    for number in 0..20 {
        client.send(format!("get k{number}\r\n"));
        let answer = client.read_until("\r\n");
        if answer.starts_with("VALUE") {
            client.expect("1\r\nEND\r\n");
            served += 1;
        } else {
            assert!(answer.starts_with(&format!("SERVER_ERROR fleet shared: server 127.0.0.1:{port} ")), "{answer}");
            named += 1;
        }
    }
    assert!(served > 2 && named > 2, "{served} served, {named} not");
}

#[test]
fn a_reload_changes_the_servers_of_a_fleet_and_forgets_what_lay_elsewhere() {
    let servers = [memcached(), memcached()];
    let first = before(&[servers[0].port()], Protocol::Meta, 500);
    let server = start(first.clone());
    let mut client = Client::connect(&server);
    client.ask("set k 0 0 5\r\nfirst\r\nget k\r\n", "STORED\r\nVALUE k 0 5\r\nfirst\r\nEND\r\n");
    let mut second = Settings { listeners: server.settings().listeners.clone(), ..first };
    second.fleets[0].servers = vec![source(servers[1].port())];
    let reloaded = server.reload(&second).expect("it reloads");
    assert!(reloaded.failed.is_empty(), "{reloaded:?}");
    eventually(|| {
        client.send("get k\r\n");
        client.read_until("END\r\n") == "END\r\n"
    });
    client.ask("set k 0 0 6\r\nsecond\r\n", "STORED\r\n");
    assert_eq!((asked(&servers[0], "curr_items"), asked(&servers[1], "curr_items")), (1, 1));
    let mut bad = second;
    bad.fleets[0].servers = vec![Source::Server(ServerSpec::new("127.0.0.1", 1).weighing(0))];
    let reloaded = server.reload(&bad).expect("it reloads");
    assert_eq!(reloaded.failed.len(), 1, "{reloaded:?}");
    client.ask("get k\r\n", "VALUE k 0 6\r\nsecond\r\nEND\r\n");
}

/// A writer on one host and a reader on another: how long the reader was answered the older value, at most, over some
/// writes; and how often.
fn staleness(writer: &Running, reader: &Running, writes: u32) -> (Duration, u32) {
    let (mut writer, mut reader) = (Client::connect(writer), Client::connect(reader));
    let (mut longest, mut stale) = (Duration::ZERO, 0);
    for number in 0..writes {
        writer.ask(format!("set k 0 0 8\r\n{number:08}\r\n"), "STORED\r\n");
        let written = Instant::now();
        let mut was_stale = false;
        loop {
            reader.send("get k\r\n");
            let answer = reader.read_until("END\r\n");
            if answer.contains(&format!("{number:08}")) {
                break;
            }
            was_stale = true;
            assert!(written.elapsed() < PATIENCE, "it is never seen");
        }
        if was_stale {
            stale += 1;
            longest = longest.max(written.elapsed());
        }
    }
    (longest, stale)
}

#[test]
fn what_another_host_writes_is_seen_at_once_where_the_servers_tell_of_it_and_after_ttl_max_elsewhere() {
    let with = [memcached(), memcached(), memcached()];
    let without = Launch::real_memcached().args(["-t", "1", "-W"]).start();
    let nuthatch = Launch::memcached().start();
    for (name, ports, tells, writes) in [
        ("three memcached", ports(&with), true, 50),
        ("a Nuthatch", vec![nuthatch.port()], true, 50),
        ("a memcached with -W", vec![without.port()], false, 3),
    ] {
        // Far longer than the test takes where changes are told of.
        let ttl_max = if tells { 600 } else { 2 };
        let hosts = [(); 2].map(|()| start(before(&ports, Protocol::Meta, ttl_max)));
        if tells {
            for host in &hosts {
                let mut client = Client::connect(host);
                follow(&mut client);
            }
        }
        let (longest, stale) = staleness(&hosts[0], &hosts[1], writes);
        println!("{name}: {stale} of {writes} writes were not seen at once, {} ms at the longest", longest.as_millis());
        if !tells {
            assert!(longest < Duration::from_secs(10), "a copy of 2 s went unseen for {longest:?}");
            let state = Client::connect(&hosts[1]).stat("stats pools", "tiered:tier_stream");
            assert!(state.starts_with("none: ") && state.contains("refuses to be watched"), "{state}");
        }
    }
}

#[test]
fn a_stream_that_breaks_forgets_every_copy_and_is_taken_up_again() {
    let servers = [memcached()];
    let server = start(before(&ports(&servers), Protocol::Meta, 600));
    let mut client = Client::connect(&server);
    follow(&mut client);
    let gaps = count(&mut client, "tier_gaps");
    client.ask("set k 0 0 1\r\n1\r\n", "STORED\r\n");
    // What was stored through here is told of as well: wait for that, so that the copy is one that was fetched since.
    eventually(|| count(&mut client, "tier_changes") > 0);
    client.ask("get k\r\nget k\r\n", "VALUE k 0 1\r\n1\r\nEND\r\n".repeat(2));
    // The watcher is one of memcached's connections; a server that is gone takes them all along.
    let port = servers[0].port();
    let [gone] = servers;
    drop(gone);
    eventually(|| client.stat("stats pools", "tiered:tier_stream").starts_with("none: "));
    assert!(count(&mut client, "tier_gaps") > gaps);
    client.send("get k\r\n");
    let answer = client.read_until("\r\n");
    assert!(answer.starts_with("SERVER_ERROR fleet shared: "), "{answer}");
    let back = Launch::real_memcached().args(["-t", "1", "-p", &port.to_string(), "-l", "127.0.0.1"]).start();
    follow(&mut client);
    eventually(|| {
        client.send("set k 0 0 1\r\n2\r\n");
        client.read_until("\r\n") == "STORED\r\n"
    });
    assert_eq!(asked(&back, "curr_items"), 1);
}
