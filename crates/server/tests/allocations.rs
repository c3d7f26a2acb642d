//! What a router's gets allocate: nothing. A program of its own with one test, because all threads' allocations are counted.

mod common;

use std::alloc::System;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use common::binary::frame;
use common::{Client, address, listener, settings, source};
use nuthatch_fleet::{FleetSettings, Protocol};
use nuthatch_server::settings::{PoolSettings, Settings};
use nuthatch_server::{Running, Server};
use nuthatch_testkit::Launch;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static COUNTED: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Requests that are counted together, and how often at most: something else may allocate meanwhile, such as the control
/// thread at its ticks. They are sent together, so that it has little time for that however busy the machine is.
const COUNTED_REQUESTS: usize = 200;
const COUNTS_MAX: usize = 20;

/// A client whose buffers are there already.
struct Bare {
    stream: TcpStream,
    heard: Vec<u8>,
}

impl Bare {
    fn connect(server: &Running) -> Bare {
        let stream = TcpStream::connect(address(server, 0)).expect("connected");
        stream.set_nodelay(true).expect("a TCP socket");
        Bare { stream, heard: Vec::new() }
    }

    fn ask(&mut self, requests: &[u8], answers: &[u8]) {
        self.stream.write_all(requests).expect("sent");
        self.heard.resize(answers.len(), 0);
        self.stream.read_exact(&mut self.heard).expect("answered");
        assert!(self.heard == answers, "another answer");
    }

    /// What is answered, in so many bytes.
    fn learn(&mut self, request: &[u8], answer_bytes: usize) -> Vec<u8> {
        self.stream.write_all(request).expect("sent");
        let mut answer = vec![0; answer_bytes];
        self.stream.read_exact(&mut answer).expect("answered");
        answer
    }

    /// The fewest allocations that such requests were seen to cost, each.
    fn allocations(&mut self, request: &[u8], answer: &[u8]) -> f64 {
        let (requests, answers) = (request.repeat(COUNTED_REQUESTS), answer.repeat(COUNTED_REQUESTS));
        // Buffers grow to what they are going to hold.
        self.ask(&requests, &answers);
        let mut fewest = f64::MAX;
        for _ in 0..COUNTS_MAX {
            let region = Region::new(COUNTED);
            self.ask(&requests, &answers);
            let change = region.change();
            fewest = fewest.min((change.allocations + change.reallocations) as f64 / COUNTED_REQUESTS as f64);
            // What is less than one for each is not theirs.
            if fewest < 0.5 {
                break;
            }
        }
        fewest
    }
}

#[test]
fn a_routers_gets_allocate_nothing() {
    let member = Launch::memcached().start();
    for protocol in [Protocol::Meta, Protocol::Text, Protocol::Binary] {
        let fleet = FleetSettings { servers: vec![source(member.port())], protocol, ..FleetSettings::named("shared") };
        let pool =
            PoolSettings { backend: Some("shared".to_owned()), ttl_max_seconds: 0, ..PoolSettings::named("tiered") };
        let settings = Settings { pools: vec![pool], fleets: vec![fleet], listeners: vec![listener(0)], ..settings() };
        let server = Server::start(settings).expect("the server starts");
        let mut client = Client::connect(&server);
        client.ask("set one 0 0 3\r\n111\r\nset two 0 0 3\r\n222\r\n", "STORED\r\nSTORED\r\n");
        let (mut text, mut binary) = (Bare::connect(&server), Bare::connect(&server));
        let frame = frame(0x00, "one").bytes();
        let answer_to_frame = binary.learn(&frame, 24 + 4 + 3);
        assert!(answer_to_frame.ends_with(b"111"), "{answer_to_frame:?}");
        for (request, answer) in [
            (&b"get one\r\n"[..], &b"VALUE one 0 3\r\n111\r\nEND\r\n"[..]),
            (b"get none\r\n", b"END\r\n"),
            (b"get one none two\r\n", b"VALUE one 0 3\r\n111\r\nVALUE two 0 3\r\n222\r\nEND\r\n"),
            (b"get one\r\nget two\r\n", b"VALUE one 0 3\r\n111\r\nEND\r\nVALUE two 0 3\r\n222\r\nEND\r\n"),
            (b"mg one v\r\n", b"VA 3\r\n111\r\n"),
            (&frame, &answer_to_frame),
        ] {
            let client = if request == frame { &mut binary } else { &mut text };
            let each = client.allocations(request, answer);
            let request = request.escape_ascii();
            println!("{protocol:?} {request}: {each}");
            assert!(each < 0.5, "{request} by a fleet's {protocol:?}: {each} allocations for each");
        }
    }
}
