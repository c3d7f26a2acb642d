//! SQL tables behind pools, over the wire: unmodified clients read and write rows.

use std::sync::Arc;
use std::time::Duration;

use crate::common::binary::frame;
use crate::common::{Client, address, eventually, listener, settings};
use nuthatch_rows::{Database, Table};
use nuthatch_server::backend::table::{TableBackend, now};
use nuthatch_server::settings::{Policy, PoolSettings, RouteSettings, Settings, TableSettings};
use nuthatch_server::{Running, Server};
use rusqlite::Connection;
use tempfile::TempDir;

struct World {
    server: Running,
    dir: TempDir,
}

impl World {
    fn client(&self) -> Client {
        Client::connect(&self.server)
    }

    fn sql(&self, text: &str) {
        let connection = Connection::open(self.dir.path().join("shop.db")).expect("the file");
        connection.busy_timeout(Duration::from_secs(20)).expect("a timeout");
        connection.execute_batch(text).expect("a statement");
    }
}

/// The mapping of `accounts` in a file of `dir`.
fn mapping(dir: &TempDir) -> nuthatch_rows::Settings {
    let database = Database::sqlite(&dir.path().join("shop.db")).expect("a path");
    let mut mapping = nuthatch_rows::Settings::new("accounts", database, "accounts", &["id"], &["name"]);
    (mapping.flags, mapping.cas) = (Some("flags".into()), Some("cas".into()));
    mapping.expiry = Some("expires".into());
    mapping.timeout = Duration::from_secs(20);
    mapping
}

/// A server whose one pool stands before a table `accounts`: id, name, flags, cas, expires.
fn start(ttl_max_seconds: u32, flush: bool) -> World {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let table = Table::open_checked(mapping(&dir), Arc::new(now)).expect("the mapping fits");
    let pool =
        PoolSettings { backend: Some("accounts".to_owned()), ttl_max_seconds, ..PoolSettings::named("accounts") };
    let settings = Settings { pools: vec![pool], listeners: vec![listener(0)], ..settings() };
    let prepared = Server::prepare(settings).expect("settings are good");
    let prepared = prepared.with_backend("accounts", Arc::new(TableBackend::new("accounts", table, flush)));
    World { server: prepared.start().expect("the server starts"), dir }
}

#[test]
fn forgetting_forgets_the_copies_of_rows_and_no_row() {
    let world = start(600, false);
    let mut client = world.client();
    client.ask("set u:1 0 0 1\r\n1\r\nms u:2 1 Lt\r\n1\r\n", "STORED\r\nHD\r\n");
    for (number, forget) in ["prefix u:", "tag t"].into_iter().enumerate() {
        let number = number + 2;
        client.send("get u:1 u:2\r\n");
        client.read_until("END\r\n");
        world.sql(&format!("UPDATE accounts SET name = '{number}'"));
        client.ask(format!("forget {forget}\r\n"), "OK\r\n");
        let expected = format!("VALUE u:1 0 1\r\n{number}\r\nVALUE u:2 0 1\r\n{number}\r\nEND\r\n");
        client.ask("get u:1 u:2\r\n", expected);
    }
}

#[test]
fn every_command_means_on_rows_what_it_means_to_memcached() {
    let world = start(0, true);
    let mut client = world.client();
    client.ask("set a 5 0 3\r\nAda\r\n", "STORED\r\n");
    client.ask("get a b\r\n", "VALUE a 5 3\r\nAda\r\nEND\r\n");
    client.ask("add a 0 0 1\r\nx\r\n", "NOT_STORED\r\n");
    client.ask("replace b 0 0 1\r\nx\r\n", "NOT_STORED\r\n");
    client.ask("append a 0 0 1\r\n!\r\n", "STORED\r\n");
    client.ask("prepend a 0 0 1\r\n>\r\n", "STORED\r\n");
    client.ask("mg a v f t\r\n", "VA 5 f5 t-1\r\n>Ada!\r\n");
    client.ask("gat 100 a\r\n", "VALUE a 5 5\r\n>Ada!\r\nEND\r\n");
    client.ask("mg a s T0 t v\r\n", "VA 5 s5 t-1\r\n>Ada!\r\n");
    client.ask("touch a 0\r\n", "TOUCHED\r\n");
    client.ask("incr a 1\r\n", "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n");
    client.ask("set n 0 0 2\r\n41\r\n", "STORED\r\n");
    client.ask("incr n 1\r\n", "42\r\n");
    client.ask("decr n 50\r\n", "0\r\n");
    client.ask("ma n D7 v t T60\r\n", "VA 1 t60\r\n7\r\n");
    client.ask("ma new N0 J13 v\r\n", "VA 2\r\n13\r\n");
    client.ask("ms m 2 c N0 MA\r\nhi\r\n", "HD c");
    client.read_until("\r\n");
    client.send("gets a\r\n");
    let answer = client.read_until("END\r\n");
    let unique: u64 = answer.lines().next().and_then(|line| line.rsplit(' ').next()?.parse().ok()).expect("a unique");
    world.sql("UPDATE accounts SET name = 'by sql' WHERE id = 'a'");
    client.ask(format!("cas a 0 0 1 {unique}\r\nx\r\n"), "EXISTS\r\n");
    client.ask("get a\r\n", "VALUE a 5 6\r\nby sql\r\nEND\r\n");
    client.ask("delete a\r\n", "DELETED\r\n");
    client.ask("delete a\r\n", "NOT_FOUND\r\n");
    client.ask("mg n v k R30\r\n", "SERVER_ERROR table accounts: meta flag R means nothing to a row\r\n");
    client.ask("flush_all\r\n", "OK\r\n");
    client.ask("get n\r\n", "END\r\n");
}

#[test]
fn flush_all_deletes_nothing_unless_it_is_allowed() {
    let world = start(60, false);
    let mut client = world.client();
    client.ask("set a 0 0 1\r\n1\r\n", "STORED\r\n");
    client.ask(
        "flush_all\r\n",
        "SERVER_ERROR table accounts: flush_all would delete every row and is not allowed, see its key flush\r\n",
    );
    client.ask("get a\r\n", "VALUE a 0 1\r\n1\r\nEND\r\n");
}

#[test]
fn a_row_that_sql_changes_is_forgotten_by_the_cache() {
    let world = start(3600, false);
    let mut client = world.client();
    eventually(|| client.stat("stats pools", "accounts:tier_stream") == "following");
    client.ask("set a 0 0 3\r\nold\r\n", "STORED\r\n");
    for _ in 0..3 {
        client.ask("get a\r\n", "VALUE a 0 3\r\nold\r\nEND\r\n");
    }
    world.sql("UPDATE accounts SET name = 'new' WHERE id = 'a'");
    eventually(|| {
        client.send("get a\r\n");
        client.read_until("END\r\n").contains("\r\nnew\r\n")
    });
}

#[test]
fn a_row_goes_by_its_tables_name_too_and_copies_agree() {
    let world = start(3600, false);
    let mut client = world.client();
    client.ask("set a 0 0 1\r\n1\r\n", "STORED\r\n");
    client.ask("get @@accounts.a\r\n", "VALUE @@accounts.a 0 1\r\n1\r\nEND\r\n");
    client.ask("set a 0 0 1\r\n2\r\n", "STORED\r\n");
    client.ask("get @@accounts.a a\r\n", "VALUE @@accounts.a 0 1\r\n2\r\nVALUE a 0 1\r\n2\r\nEND\r\n");
    client.ask("incr @@accounts.a 5\r\n", "7\r\n");
    client.ask("get a\r\n", "VALUE a 0 1\r\n7\r\nEND\r\n");
    client.ask("delete @@accounts.a\r\n", "DELETED\r\n");
    client.ask("get a\r\n", "END\r\n");
}

/// Listener 0 serves a pool before the table of `mapping`, listener 1 one without a backend; `rows:` keys are the first's.
fn by_settings(mapping: nuthatch_rows::Settings, policy: Policy) -> Settings {
    let accounts = PoolSettings { backend: Some("accounts".to_owned()), policy, ..PoolSettings::named("accounts") };
    Settings {
        pools: vec![accounts, PoolSettings::named("plain")],
        tables: vec![TableSettings { rows: mapping, flush: false, range_max: 3, lanes: 4, delimiter: ".".to_owned() }],
        listeners: vec![listener(0), listener(1)],
        routes: vec![RouteSettings { prefix: b"rows:".to_vec(), pool: 0 }],
        ..settings()
    }
}

#[test]
fn a_table_of_the_settings_is_reached_by_listener_prefix_and_name() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let server = Server::start(by_settings(mapping(&dir), Policy::Caching)).expect("the server starts");
    let (mut rows, mut plain) = (Client::connect(&server), Client::connect_to(address(&server, 1)));
    rows.ask("set a 0 0 1\r\n1\r\n", "STORED\r\n");
    plain.ask("get a\r\n", "END\r\n");
    plain.ask("get @@accounts.a\r\n", "VALUE @@accounts.a 0 1\r\n1\r\nEND\r\n");
    plain.ask("set rows:b 0 0 1\r\n2\r\n", "STORED\r\n");
    rows.ask("get rows:b\r\n", "VALUE rows:b 0 1\r\n2\r\nEND\r\n");
    assert_eq!(rows.stat("stats pools", "accounts:tier_backend"), "table accounts");
}

#[test]
fn policies_leave_the_table_alone_or_refuse_everything() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let server = Server::start(by_settings(mapping(&dir), Policy::Memory)).expect("the server starts");
    let mut client = Client::connect(&server);
    client.ask("set a 0 0 1\r\n1\r\n", "STORED\r\n");
    client.ask("get a\r\n", "VALUE a 0 1\r\n1\r\nEND\r\n");
    assert!(!dir.path().join("shop.db").exists(), "no table is opened");
    let dir = tempfile::tempdir().expect("a temporary directory");
    let server = Server::start(by_settings(mapping(&dir), Policy::Disabled)).expect("the server starts");
    let mut client = Client::connect(&server);
    client.ask("set a 0 0 1\r\n1\r\n", "SERVER_ERROR the policy of pool accounts disables this command\r\n");
    client.ask("get a\r\n", "SERVER_ERROR the policy of pool accounts disables this command\r\n");
}

#[test]
fn a_mapping_that_does_not_fit_stops_the_start_with_its_sentence() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    drop(Server::start(by_settings(mapping(&dir), Policy::Caching)).expect("the table is made"));
    let mut wrong = mapping(&dir);
    wrong.value = vec!["nome".to_owned()];
    let Err(error) = Server::start(by_settings(wrong, Policy::Caching)) else { panic!("it is refused") };
    let error = error.to_string();
    assert_eq!(
        error,
        "table.accounts: table accounts: value column nome does not exist, only id, name, flags, cas, expires"
    );
}

#[test]
fn a_database_that_is_away_is_an_error_with_its_reason_and_no_reason_not_to_start() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let url = format!("mysql://root@localhost/shop?socket={}/none", dir.path().display());
    let away = nuthatch_rows::Settings::new("accounts", Database::new(&url).expect("a URL"), "t", &["id"], &["v"]);
    let server = Server::start(by_settings(away, Policy::Caching)).expect("the server starts");
    let mut client = Client::connect(&server);
    for request in ["get a\r\n", "set a 0 0 1\r\n1\r\n", "incr a 1\r\n"] {
        client.send(request);
        let answer = client.read_until("\r\n");
        assert!(answer.starts_with("SERVER_ERROR mysql://root@localhost/shop: cannot connect: "), "{answer}");
    }
}

/// Rows B, C, D, H and M of `accounts`.
fn letters(client: &mut Client) {
    for letter in ["B", "C", "D", "H", "M"] {
        client.ask(format!("set {letter} 0 0 1\r\n{letter}\r\n"), "STORED\r\n");
    }
}

fn values(keys: &[&str]) -> String {
    let value = |key: &&str| format!("VALUE {key} 0 1\r\n{}\r\n", key.rsplit('.').next().unwrap_or_default());
    keys.iter().map(value).collect::<String>() + "END\r\n"
}

#[test]
fn ranges_are_read_over_the_wire() {
    let world = start(3600, false);
    let mut client = world.client();
    letters(&mut client);
    for (asked, found) in [
        ("@>B", &["C", "D", "H", "M"][..]),
        ("@>=B@<D", &["B", "C"]),
        ("@<H@>B", &["C", "D"]),
        ("@<=C", &["B", "C"]),
        ("@>M", &[]),
        ("M @>=H B", &["M", "H", "M", "B"]),
        ("@@accounts.@>=H", &["@@accounts.H", "@@accounts.M"]),
        // No ranges, and no rows.
        ("@> @", &[]),
    ] {
        client.ask(format!("get {asked}\r\n"), values(found));
    }
    // What the same connection wrote before is in it, what SQL wrote too.
    client.ask("set N 0 0 1\r\nN\r\nget @>M\r\n", format!("STORED\r\n{}", values(&["N"])));
    world.sql("UPDATE accounts SET name = 'n' WHERE id = 'N'");
    client.ask("get @>M\r\n", "VALUE N 0 1\r\nn\r\nEND\r\n");
}

#[test]
fn a_range_brings_no_more_rows_than_the_settings_say() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let server = Server::start(by_settings(mapping(&dir), Policy::Caching)).expect("the server starts");
    let mut client = Client::connect(&server);
    letters(&mut client);
    client.ask("get @>B\r\n", values(&["C", "D", "H"]));
    let mut settings = by_settings(mapping(&dir), Policy::Caching);
    settings.tables[0].range_max = 0;
    server.reload(&settings).expect("it is reloaded");
    eventually(|| {
        client.send("get @>B\r\n");
        client.read_until("END\r\n") == "END\r\n"
    });
}

#[test]
fn a_connection_chooses_its_table_and_others_keep_theirs() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let server = Server::start(by_settings(mapping(&dir), Policy::Caching)).expect("the server starts");
    let (mut one, mut other) = (Client::connect_to(address(&server, 1)), Client::connect_to(address(&server, 1)));
    one.ask("set a 0 0 5\r\nplain\r\n", "STORED\r\n");
    one.ask("get @@none\r\n", "END\r\n");
    one.ask("get a\r\n", "VALUE a 0 5\r\nplain\r\nEND\r\n");
    one.ask(
        "get @@accounts\r\nget a\r\nset a 0 0 3\r\nrow\r\n",
        "VALUE @@accounts 0 13\r\nshop/accounts\r\nEND\r\nEND\r\nSTORED\r\n",
    );
    one.ask("get a\r\n", "VALUE a 0 3\r\nrow\r\nEND\r\n");
    one.ask("delete a\r\n", "DELETED\r\n");
    other.ask("get a\r\n", "VALUE a 0 5\r\nplain\r\nEND\r\n");
    // A table that goes leaves its connections to their listeners.
    let gone = Settings {
        pools: vec![PoolSettings::named("accounts"), PoolSettings::named("plain")],
        tables: Vec::new(),
        ..by_settings(mapping(&dir), Policy::Caching)
    };
    let mut without_routes = gone;
    without_routes.routes.clear();
    server.reload(&without_routes).expect("it is reloaded");
    eventually(|| {
        one.send("get a\r\n");
        one.read_until("END\r\n").contains("\r\nplain\r\n")
    });
}

#[test]
fn naming_a_table_from_elsewhere_neither_empties_it_nor_writes_beside_it() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut settings = by_settings(mapping(&dir), Policy::Caching);
    (settings.tables[0].flush, settings.tables[0].delimiter) = (true, "::".to_owned());
    settings.routes.clear();
    let server = Server::start(settings).expect("the server starts");
    let (mut rows, mut plain) = (Client::connect(&server), Client::connect_to(address(&server, 1)));
    rows.ask("set a 0 0 3\r\nrow\r\n", "STORED\r\n");
    plain.ask("set b 0 0 1\r\n1\r\nflush_all\r\nget b\r\n", "STORED\r\nOK\r\nEND\r\n");
    plain.ask("get @@accounts::a\r\n", "VALUE @@accounts::a 0 3\r\nrow\r\nEND\r\n");
    for key in ["@@accounts.a", "@@acounts::a"] {
        let refused = format!("SERVER_ERROR table accounts: no table has keys such as {key}\r\n");
        rows.ask(format!("set {key} 0 0 1\r\n1\r\n"), refused);
        rows.ask(format!("get {key}\r\n"), "END\r\n");
    }
    rows.ask("get @@accounts\r\n", "VALUE @@accounts 0 13\r\nshop/accounts\r\nEND\r\n");
    rows.ask("flush_all\r\nget a\r\n", "OK\r\nEND\r\n");
}

#[test]
fn every_command_honours_the_name_of_a_table() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let server = Server::start(by_settings(mapping(&dir), Policy::Caching)).expect("the server starts");
    let mut client = Client::connect_to(address(&server, 1));
    for (asked, answer) in [
        ("set @@accounts.n 0 0 1\r\n1\r\n", "STORED\r\n"),
        ("add @@accounts.n 0 0 1\r\n2\r\n", "NOT_STORED\r\n"),
        ("replace @@accounts.n 0 0 1\r\n3\r\n", "STORED\r\n"),
        ("append @@accounts.n 0 0 1\r\n4\r\n", "STORED\r\n"),
        ("prepend @@accounts.n 0 0 1\r\n2\r\n", "STORED\r\n"),
        ("cas @@accounts.n 0 0 1 1\r\n2\r\n", "EXISTS\r\n"),
        ("incr @@accounts.n 1\r\n", "235\r\n"),
        ("decr @@accounts.n 2\r\n", "233\r\n"),
        ("touch @@accounts.n 0\r\n", "TOUCHED\r\n"),
        ("gat 0 @@accounts.n\r\n", "VALUE @@accounts.n 0 3\r\n233\r\nEND\r\n"),
        ("mg @@accounts.n v\r\n", "VA 3\r\n233\r\n"),
        ("ma @@accounts.n v\r\n", "VA 3\r\n234\r\n"),
        ("ms @@accounts.m 1\r\nx\r\n", "HD\r\n"),
        ("md @@accounts.m\r\n", "HD\r\n"),
        ("get n\r\n", "END\r\n"),
        ("delete @@accounts.n\r\n", "DELETED\r\n"),
        ("get @@accounts.n\r\n", "END\r\n"),
    ] {
        client.ask(asked, answer);
    }
}

#[test]
fn the_binary_protocols_commands_honour_the_name_of_a_table() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let server = Server::start(by_settings(mapping(&dir), Policy::Caching)).expect("the server starts");
    let mut client = Client::connect_to(address(&server, 1));
    let (stored, counts) = ([0; 8], |by: u64| [&by.to_be_bytes()[..], &[0; 12]].concat());
    let (get, set, add, replace, delete, incr, decr) = (0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06);
    let (getk, append, prepend, touch, gat) = (0x0c, 0x0e, 0x0f, 0x1c, 0x1d);
    let row = |opcode| frame(opcode, "@@accounts.n");
    for (request, answer) in [
        (row(set).extras(stored).value("1"), Ok("")),
        (row(add).extras(stored).value("2"), Err(2)),
        (row(replace).extras(stored).value("3"), Ok("")),
        (row(append).value("4"), Ok("")),
        (row(prepend).value("2"), Ok("")),
        (row(set).extras(stored).value("2").cas(1), Err(2)),
        (row(incr).extras(counts(1)), Ok("\0\0\0\0\0\0\0\u{eb}")),
        (row(decr).extras(counts(2)), Ok("\0\0\0\0\0\0\0\u{e9}")),
        (row(touch).extras([0; 4]), Ok("")),
        (row(gat).extras([0; 4]), Ok("233")),
        (row(get), Ok("233")),
        (row(getk), Ok("233")),
        (frame(get, "n"), Err(1)),
        (frame(get, "rows:n"), Err(1)),
        (row(delete), Ok("")),
        (row(get), Err(1)),
    ] {
        let opcode = request.opcode;
        let told = client.call(&request);
        let letters: String = told.value.iter().copied().map(char::from).collect();
        let came = if told.status == 0 { Ok(letters.as_str()) } else { Err(told.status) };
        assert_eq!(came, answer, "{opcode:#x}");
        assert_eq!(told.key, if opcode == getk { &b"@@accounts.n"[..] } else { b"" }, "{opcode:#x}");
    }
}

#[test]
fn each_kind_of_command_has_its_policy() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let with = |change: fn(&mut PoolSettings)| {
        let mut settings = by_settings(mapping(&dir), Policy::Caching);
        settings.pools[0].ttl_max_seconds = 3600;
        change(&mut settings.pools[0]);
        settings
    };
    let server = Server::start(with(|pool| {
        pool.policies.delete = Some(Policy::Disabled);
        pool.policies.flush = Some(Policy::Memory);
    }))
    .expect("the server starts");
    let refused = "SERVER_ERROR the policy of pool accounts disables this command\r\n";
    let mut client = Client::connect(&server);
    client.ask("set a 0 0 1\r\n1\r\n", "STORED\r\n");
    client.ask("delete a\r\n", refused);
    client.ask("md a\r\n", refused);
    client.ask("get a\r\n", "VALUE a 0 1\r\n1\r\nEND\r\n");
    client.ask("flush_all\r\n", "OK\r\n");
    let fetches = client.stat("stats pools", "accounts:tier_fetches");
    client.ask("get a\r\n", "VALUE a 0 1\r\n1\r\nEND\r\n");
    assert_ne!(client.stat("stats pools", "accounts:tier_fetches"), fetches, "the copy was forgotten, the row was not");

    // Writes to memory alone, and reads that look there first.
    server.reload(&with(|pool| pool.policies.set = Some(Policy::Memory))).expect("it is reloaded");
    let mut client = Client::connect(&server);
    client.ask("set b 0 0 1\r\n2\r\n", "STORED\r\n");
    client.ask("get a b\r\n", "VALUE a 0 1\r\n1\r\nVALUE b 0 1\r\n2\r\nEND\r\n");
    client.ask("get @>=a\r\n", "VALUE a 0 1\r\n1\r\nEND\r\n");

    // Reads of the table alone, and writes that leave no copy.
    let table =
        |pool: &mut PoolSettings| (pool.policies.get, pool.policies.set) = (Some(Policy::Table), Some(Policy::Table));
    let settings = {
        let mut settings = with(|_| {});
        table(&mut settings.pools[0]);
        settings
    };
    server.reload(&settings).expect("it is reloaded");
    let mut client = Client::connect(&server);
    client.ask("set a 0 0 1\r\n3\r\n", "STORED\r\n");
    let hits = client.stat("stats pools", "accounts:tier_hits");
    client.ask("get a\r\nget a\r\nget b\r\n", "VALUE a 0 1\r\n3\r\nEND\r\nVALUE a 0 1\r\n3\r\nEND\r\nEND\r\n");
    assert_eq!(client.stat("stats pools", "accounts:tier_hits"), hits);
}

#[test]
fn a_row_that_is_not_there_is_asked_for_once_until_something_changes() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut settings = by_settings(mapping(&dir), Policy::Caching);
    // For longer than the test.
    settings.pools[0].miss_ttl = Duration::from_secs(3600);
    let server = Server::start(settings).expect("the server starts");
    let mut client = Client::connect(&server);
    eventually(|| client.stat("stats pools", "accounts:tier_stream") == "following");
    for _ in 0..5 {
        client.ask("get a\r\n", "END\r\n");
        client.ask("mg a v\r\n", "EN\r\n");
    }
    assert_eq!(client.stat("stats tables", "accounts:keys_read"), "1");
    assert_eq!(client.stat("stats tables", "accounts:known_misses"), "9");
    client.ask("set a 0 0 1\r\n1\r\n", "STORED\r\n");
    client.ask("get a\r\n", "VALUE a 0 1\r\n1\r\nEND\r\n");
    client.ask("delete a\r\n", "DELETED\r\n");
    client.ask("get a\r\nget a\r\n", "END\r\nEND\r\n");
    assert_eq!(client.stat("stats tables", "accounts:keys_read"), "2");
    let connection = Connection::open(dir.path().join("shop.db")).expect("the file");
    connection.busy_timeout(Duration::from_secs(20)).expect("a timeout");
    connection.execute("INSERT INTO accounts (id, name) VALUES ('a', 'sql')", ()).expect("a row");
    eventually(|| {
        client.send("get a\r\n");
        client.read_until("END\r\n").contains("\r\nsql\r\n")
    });
}

#[test]
fn a_table_tells_what_it_did() {
    let world = start(3600, false);
    let mut client = world.client();
    eventually(|| client.stat("stats tables", "accounts:stream") == "following");
    client.ask("set a 0 0 1\r\n1\r\n", "STORED\r\n");
    client.ask("get a\r\nget a\r\n", "VALUE a 0 1\r\n1\r\nEND\r\nVALUE a 0 1\r\n1\r\nEND\r\n");
    world.sql("UPDATE accounts SET name = '2'");
    eventually(|| client.stat("stats tables", "accounts:stream_lag_ms") != "unknown");
    // How late the change was heard of is known before the copy is gone.
    eventually(|| client.stat("stats pools", "accounts:items") == "0");
    client.ask("get a\r\n", "VALUE a 0 1\r\n2\r\nEND\r\n");
    for (name, is) in [("hits", "2"), ("fills", "1"), ("coalesced_misses", "0"), ("commits", "1")] {
        assert_eq!(client.stat("stats tables", &format!("accounts:{name}")), is, "{name}");
    }
    assert_eq!(client.stat("stats tables", "accounts:changes_per_commit"), "1.00");
}

#[test]
fn a_reload_changes_a_table_or_says_why_it_cannot_be() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let server = Server::start(by_settings(mapping(&dir), Policy::Caching)).expect("the server starts");
    let mut client = Client::connect(&server);
    client.ask("set a 0 0 3\r\nold\r\n", "STORED\r\n");
    let mut wrong = mapping(&dir);
    wrong.value = vec!["nome".to_owned()];
    let why = server.reload(&by_settings(wrong, Policy::Caching)).expect_err("it does not fit").to_string();
    assert!(why.starts_with("table.accounts: table accounts: value column nome does not exist"), "{why}");
    client.ask("get a\r\n", "VALUE a 0 3\r\nold\r\nEND\r\n");
    client.ask("set b 0 0 1\r\nb\r\n", "STORED\r\n");
    let mut other = mapping(&dir);
    other.table = "others".to_owned();
    server.reload(&by_settings(other, Policy::Caching)).expect("it is reloaded");
    eventually(|| {
        client.send("get a\r\n");
        client.read_until("END\r\n") == "END\r\n"
    });
    client.ask("set a 0 0 3\r\nnew\r\n", "STORED\r\n");
    let connection = Connection::open(dir.path().join("shop.db")).expect("the file");
    let name = |table: &str| -> String {
        let text = format!("SELECT name FROM {table} WHERE id = 'a'");
        connection.query_row(&text, (), |row| row.get(0)).expect("the row")
    };
    assert_eq!((name("accounts"), name("others")), ("old".to_owned(), "new".to_owned()));
}

#[test]
fn a_pool_that_a_reload_changes_hears_of_changes_to_its_table() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let with = |ttl_max_seconds| {
        let mut settings = by_settings(mapping(&dir), Policy::Caching);
        settings.pools[0].ttl_max_seconds = ttl_max_seconds;
        settings
    };
    let server = Server::start(with(3600)).expect("the server starts");
    let mut client = Client::connect(&server);
    client.ask("set a 0 0 1\r\n0\r\n", "STORED\r\n");
    // What follows a reload forgets copies too, for the first change at most.
    for change in 1..=4 {
        if change % 2 == 1 {
            server.reload(&with(3600 + change)).expect("it is reloaded");
            eventually(|| client.stat("stats pools", "accounts:tier_stream") == "following");
        }
        client.send("get a\r\n");
        client.read_until("END\r\n");
        let connection = Connection::open(dir.path().join("shop.db")).expect("the file");
        connection.busy_timeout(Duration::from_secs(20)).expect("a timeout");
        connection.execute("UPDATE accounts SET name = ?1 WHERE id = 'a'", [change.to_string()]).expect("a row");
        eventually(|| {
            client.send("get a\r\n");
            client.read_until("END\r\n") == format!("VALUE a 0 1\r\n{change}\r\nEND\r\n")
        });
    }
}

#[test]
fn a_database_that_does_not_answer_holds_up_nobody_but_the_reload() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let silent = std::os::unix::net::UnixListener::bind(dir.path().join("silent")).expect("a socket");
    let server = Server::start(by_settings(mapping(&dir), Policy::Caching)).expect("the server starts");
    let url = format!("mysql://root@localhost/shop?socket={}/silent", dir.path().display());
    let mut away = nuthatch_rows::Settings::new("accounts", Database::new(&url).expect("a URL"), "t", &["id"], &["v"]);
    away.timeout = Duration::from_secs(60);
    std::thread::scope(|scope| {
        let reload = scope.spawn(|| server.reload(&by_settings(away, Policy::Caching)));
        let asked = silent.accept().expect("the reload asks the database");
        // The control thread accepts connections.
        let mut client = Client::connect(&server);
        client.ask("set a 0 0 1\r\n1\r\n", "STORED\r\n");
        assert!(!reload.is_finished());
        // No socket any more: whoever asks is told at once.
        drop(asked);
        std::fs::remove_file(dir.path().join("silent")).expect("the socket");
        drop(silent);
        reload.join().expect("no panic").expect("an outage is no reason not to");
    });
}
