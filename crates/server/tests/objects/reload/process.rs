//! What a server has once: its workers, how many may connect, who may; and settings that are the same, or cannot be right.

use nuthatch_server::settings::{Address, PoolSettings, Settings};

use super::{is_refused, nothing, reload, scratch, tcp};
use crate::common::{Client, address, eventually, own_address, settings, start};

#[test]
fn the_same_settings_change_nothing() {
    let server = start(settings());
    let before = server.addresses();
    assert_eq!(reload(&server, &settings()), nothing());
    assert_eq!(server.addresses(), before, "a port that the system chose is kept");
    let named = Settings { listeners: vec![tcp(address(&server, 0), 0)], ..settings() };
    assert_eq!(reload(&server, &named), nothing(), "and may be named then");
}

#[test]
fn what_cannot_be_right_changes_nothing() {
    let users = scratch("bad-users");
    std::fs::write(&users, "nonsense\n").expect("a file");
    let (kept, added) = (own_address(), own_address());
    let first = Settings { listeners: vec![tcp(kept, 0)], ..settings() };
    let server = start(first.clone());
    let mut client = Client::connect_to(kept);
    client.ask("set a 0 0 1\r\n1\r\n", "STORED\r\n");
    let next = Settings { listeners: vec![tcp(added, 0)], workers: 4, ..settings() };
    let bad_users = Settings { auth_file: Some(users.clone()), ..next.clone() };
    let error = server.reload(&bad_users).expect_err("a bad file").to_string();
    assert!(error.ends_with("line 1: a line is user:password"), "{error}");
    let tiny = PoolSettings { memory_bytes: 1000, ..PoolSettings::named("tiny") };
    let bad_pool = Settings { pools: vec![PoolSettings::named("default"), tiny], ..next };
    let error = server.reload(&bad_pool).expect_err("a bad pool").to_string();
    assert!(error.starts_with("pool tiny: a memory limit of 1000 bytes is not possible here"), "{error}");
    assert_eq!(*server.settings(), first);
    assert_eq!(server.addresses(), [Address::Tcp(kept)]);
    client.ask("get a\r\n", "VALUE a 0 1\r\n1\r\nEND\r\n");
    assert!(is_refused(added));
    std::fs::remove_file(users).expect("the file");
}

#[test]
fn a_server_that_has_ended_takes_no_settings() {
    let server = start(settings());
    server.stop();
    server.wait();
    assert_eq!(server.reload(&settings()).expect_err("it has ended").to_string(), "the server has ended");
}

#[test]
fn workers_are_raised_and_lowered_and_their_connections_stay() {
    let with = |workers| Settings { workers, ..settings() };
    let server = start(with(2));
    let mut clients: Vec<_> = (0..4).map(|_| Client::connect(&server)).collect();
    let on = |client: &mut Client, worker: usize| {
        client.send("stats workers\r\n");
        let prefix = format!("STAT {worker}:curr_connections ");
        let all = client.read_until("END\r\n");
        all.lines().find_map(|line| line.strip_prefix(&prefix)?.parse::<usize>().ok())
    };
    for client in &mut clients {
        client.ask("mn\r\n", "MN\r\n");
    }
    assert_eq!(reload(&server, &with(5)).changed, ["workers: 2 to 5"]);
    clients.extend((0..10).map(|_| Client::connect(&server)));
    for client in &mut clients {
        client.ask("mn\r\n", "MN\r\n");
    }
    assert_eq!(clients[0].number("threads"), 5);
    assert_eq!([0, 1, 2, 3, 4].map(|worker| on(&mut clients[0], worker)), [4, 4, 2, 2, 2].map(Some));

    reload(&server, &with(1));
    assert_eq!(clients[0].number("threads"), 1);
    clients.extend((0..6).map(|_| Client::connect(&server)));
    for client in &mut clients {
        client.ask("mn\r\n", "MN\r\n");
    }
    assert_eq!([0, 1, 4].map(|worker| on(&mut clients[0], worker)), [10, 4, 2].map(Some), "new ones go to the first");

    // Two are wanted again while they still serve; the others end with their connections.
    reload(&server, &with(3));
    clients.extend((0..3).map(|_| Client::connect(&server)));
    for client in &mut clients {
        client.ask("mn\r\n", "MN\r\n");
    }
    assert_eq!([0, 1, 2, 3, 4].map(|worker| on(&mut clients[0], worker)), [11, 5, 3, 2, 2].map(Some));
    reload(&server, &with(1));
    let mut last = clients.swap_remove(0);
    drop(clients);
    eventually(|| (1..5).all(|worker| on(&mut last, worker).is_none()));
    let before = last.number("total_connections");
    reload(&server, &with(4));
    let mut others: Vec<_> = (0..4).map(|_| Client::connect(&server)).collect();
    for client in &mut others {
        client.ask("mn\r\n", "MN\r\n");
    }
    assert_eq!([1, 2, 3].map(|worker| on(&mut last, worker)), [1, 1, 1].map(Some));
    assert_eq!(last.number("total_connections"), before + 4);
}

/// The threads of this process that have `name`.
fn threads_called(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux");
    let names = tasks.flatten().filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|comm| comm.trim_end() == name).count()
}

#[test]
fn a_worker_too_many_ends_once_it_has_nothing_to_do() {
    // No other test has as many.
    let with = |workers| Settings { workers, ..settings() };
    let server = start(with(20));
    eventually(|| threads_called("worker-19") == 1);
    reload(&server, &with(19));
    eventually(|| threads_called("worker-19") == 0);
    reload(&server, &with(20));
    eventually(|| threads_called("worker-19") == 1);
}

#[test]
fn the_number_of_connections_follows() {
    let with = |connections_max, connections_max_fast| Settings { connections_max, connections_max_fast, ..settings() };
    let server = start(with(2, true));
    let mut first = Client::connect(&server);
    let mut second = Client::connect(&server);
    second.ask("mn\r\n", "MN\r\n");
    let mut third = Client::connect(&server);
    third.expect("ERROR Too many open connections\r\n");
    reload(&server, &with(3, true));
    let mut third = Client::connect(&server);
    third.ask("mn\r\n", "MN\r\n");
    reload(&server, &with(1, false));
    for client in [&mut first, &mut second, &mut third] {
        client.ask("mn\r\n", "MN\r\n");
    }
    let mut waiting = Client::connect(&server);
    waiting.send("mn\r\n");
    eventually(|| first.number("accepting_conns") == 0);
    reload(&server, &with(4, false));
    waiting.expect("MN\r\n");
}

#[test]
fn passwords_are_asked_of_those_who_connect_after_they_were_demanded() {
    let users = scratch("users");
    std::fs::write(&users, "anna:old\n").expect("a file");
    let place = own_address();
    let open = Settings { listeners: vec![tcp(place, 0)], ..settings() };
    let locked = Settings { auth_file: Some(users.clone()), ..open.clone() };
    let server = start(open.clone());
    let mut early = Client::connect_to(place);
    early.ask("set a 0 0 1\r\n1\r\n", "STORED\r\n");
    reload(&server, &locked);
    let mut later = Client::connect_to(place);
    later.ask("get a\r\n", "CLIENT_ERROR unauthenticated\r\n");
    let mut later = Client::connect_to(place);
    later.ask("set x 0 0 8\r\nanna old\r\n", "STORED\r\n");
    early.ask("get a\r\n", "VALUE a 0 1\r\n1\r\nEND\r\n");

    // A password that was taken away is good for nobody, connected or not.
    let mut waiting = Client::connect_to(place);
    std::fs::write(&users, "anna:new\n").expect("a file");
    assert_eq!(reload(&server, &locked), nothing());
    for client in [&mut waiting, &mut Client::connect_to(place)] {
        client.ask("set x 0 0 8\r\nanna old\r\n", "CLIENT_ERROR authentication failure\r\n");
        client.ask("set x 0 0 8\r\nanna new\r\n", "STORED\r\n");
    }
    later.ask("get a\r\n", "VALUE a 0 1\r\n1\r\nEND\r\n");

    // Binary with SASL is another matter altogether; text connections that are open go on.
    let sasl = Settings { sasl_file: Some(users.clone()), ..open.clone() };
    reload(&server, &sasl);
    let mut binary = Client::connect_to(place);
    binary.send("get a\r\n");
    binary.expect_close();
    later.ask("get a\r\n", "VALUE a 0 1\r\n1\r\nEND\r\n");
    reload(&server, &open);
    Client::connect_to(place).ask("get a\r\n", "VALUE a 0 1\r\n1\r\nEND\r\n");
    std::fs::remove_file(users).expect("the file");
}
