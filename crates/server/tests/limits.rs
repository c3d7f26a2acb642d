//! What the process as a whole may use: descriptors and memory. Against the built program, because the tests' own process is no
//! measure; and a program of its own, because it raises the limit of its own descriptors, and what a server is served and uses in a
//! second is asked without other tests beside it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use nuthatch_testkit::spawn::{Launch, Spawned};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};

fn connect(server: &Spawned) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", server.port())).expect("the kernel accepts");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
    stream
}

/// Whether the server answers on `stream` within `patience`.
fn is_served(mut stream: &TcpStream, patience: Duration) -> bool {
    stream.set_read_timeout(Some(patience)).expect("a timeout");
    let asked = stream.write_all(b"mn\r\n").is_ok();
    let mut answer = [0; 4];
    let answered = asked && stream.read_exact(&mut answer).is_ok();
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
    answered && &answer == b"MN\r\n"
}

#[test]
fn without_descriptors_accepting_pauses_and_does_not_spin() {
    let server = Launch::memcached().start();
    let open = std::fs::read_dir(format!("/proc/{}/fd", server.pid())).expect("the server is running").count() as u64;
    let pid = Pid::from_raw(server.pid() as i32);
    let limit = Rlimit { current: Some(open + 10), maximum: Some(open + 10) };
    prlimit(pid, Resource::Nofile, limit).expect("a lower limit");

    let clients: Vec<_> = (0..20).map(|_| connect(&server)).collect();
    let served: Vec<_> = clients.iter().filter(|client| is_served(client, Duration::from_millis(200))).collect();
    assert!((5..15).contains(&served.len()), "{} of 20 are served with about 10 descriptors", served.len());
    let before = server.processor_time();
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(1) {
        assert!(is_served(served[0], Duration::from_secs(10)), "those that are connected notice nothing");
        std::thread::sleep(Duration::from_millis(20));
    }
    let used = server.processor_time() - before;
    assert!(used < Duration::from_millis(300), "{used:?} of processor time in a second of waiting");

    let left: Vec<_> =
        clients.iter().filter(|client| !served.iter().any(|other| std::ptr::eq(*other, *client))).collect();
    for client in &served {
        client.shutdown(std::net::Shutdown::Both).expect("closed");
    }
    let turn = left.iter().filter(|client| is_served(client, Duration::from_secs(2))).count();
    assert!(turn >= 5, "{turn} of those that waited are served once there is room");
}

#[test]
fn a_full_server_with_a_thousand_connections_keeps_to_its_memory() {
    let own = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: own.maximum, ..own }).expect("the hard limit");
    const MEGABYTES: u64 = 32;
    let server = Launch::memcached().args(["-m", "32", "-c", "2000"]).start();
    let mut clients: Vec<_> = (0..1000).map(|_| connect(&server)).collect();
    let value = "x".repeat(1000);
    for (batch, client) in clients.iter_mut().enumerate().take(60) {
        let mut request = String::new();
        for n in 0..1000 {
            request += &format!("set key-{batch}-{n} 0 0 1000 noreply\r\n{value}\r\n");
        }
        client.write_all(request.as_bytes()).expect("the server reads");
        assert!(is_served(client, Duration::from_secs(20)));
    }
    // Each connection asks for much and reads nothing, and begins a value that does not come.
    let multiget = format!("get{}\r\n", (0..40).map(|n| format!(" key-59-{n}")).collect::<String>());
    for client in &mut clients {
        client.write_all(multiget.repeat(5).as_bytes()).expect("the server reads");
        client.write_all(format!("set partial 0 0 8000\r\n{}", "y".repeat(3000)).as_bytes()).expect("the server reads");
    }
    let allowed = MEGABYTES * (1 << 20) * 103 / 100 + (24 << 20);
    let neighbour = connect(&server);
    for _ in 0..20 {
        assert!(is_served(&neighbour, Duration::from_secs(10)));
        let resident = server.resident_bytes();
        assert!(resident <= allowed, "{resident} bytes are resident, {allowed} are allowed");
        std::thread::sleep(Duration::from_millis(20));
    }
}
