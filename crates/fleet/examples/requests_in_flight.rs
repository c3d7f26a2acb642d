//! What a get costs this client, with many under way at a time, against a server of your own:
//!
//! ```console
//! $ memcached -p 11311 -t 1 &
//! $ cargo run --release -p nuthatch-fleet --example requests_in_flight -- 127.0.0.1:11311 text 800
//! ```
//!
//! Prints the processor time of the client's only thread for each get, and how much of it was the client's own and how
//! much the kernel's. The arguments are the server (`unix:PATH` for a socket), the protocol and how many tasks get keys.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nuthatch_fleet::client::{Client, Config, Modulo, Protocol, ServerAddr, Servers, Want};

const KEYS: usize = 10_000;
const GETS: usize = 2_000_000;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (server, protocol, tasks) = match words[..] {
        [server] => (server, "text", "800"),
        [server, protocol] => (server, protocol, "800"),
        [server, protocol, tasks] => (server, protocol, tasks),
        _ => return usage("a server"),
    };
    let protocol = match protocol {
        "text" => Protocol::Text,
        "meta" => Protocol::Meta,
        "binary" => Protocol::Binary,
        _ => return usage("text, meta or binary"),
    };
    let addr = match (server.strip_prefix("unix:"), server.rsplit_once(':')) {
        (Some(path), _) => ServerAddr::unix(path),
        (None, Some((host, port))) => match port.parse() {
            Ok(port) => ServerAddr::tcp(host, port),
            Err(_) => return usage("HOST:PORT"),
        },
        (None, None) => return usage("HOST:PORT or unix:PATH"),
    };
    let Ok(tasks) = tasks.parse::<usize>() else { return usage("a number of tasks") };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.map_err(|error| error.to_string()).and_then(|runtime| {
        let config = Config { protocol, ..Config::new(Servers::new(vec![addr], Modulo::of)) };
        runtime.block_on(run(config, tasks)).map_err(|error| error.to_string())
    }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("requests_in_flight: {error}");
            ExitCode::FAILURE
        }
    }
}

fn usage(expected: &str) -> ExitCode {
    eprintln!("requests_in_flight: expected {expected}: SERVER [text|meta|binary] [TASKS]");
    ExitCode::from(2)
}

async fn run(config: Config, tasks: usize) -> Result<(), nuthatch_fleet::client::Error> {
    let client = Client::new(config)?;
    let value = [b'v'; 100];
    for number in 0..KEYS {
        client.set(key(number).as_bytes(), &value, 0, 0).await?;
    }
    for round in 0..3 {
        let (user, system) = thread_time();
        let start = Instant::now();
        let gets = GETS / tasks;
        let handles: Vec<_> = (0..tasks)
            .map(|task| {
                let client = client.clone();
                tokio::spawn(async move {
                    let keys: Vec<String> = (0..16).map(|n| key((task * 16 + n) % KEYS)).collect();
                    let mut hits = 0;
                    for n in 0..gets {
                        let item = client.get(keys[n % 16].as_bytes(), Want::VALUE).await?;
                        hits += usize::from(item.is_some_and(|item| item.value.len() == 100));
                    }
                    Ok::<usize, nuthatch_fleet::client::Error>(hits)
                })
            })
            .collect();
        let mut hits = 0;
        for handle in handles {
            hits += handle.await.expect("no task panics")?;
        }
        assert_eq!(hits, gets * tasks, "every get is a hit");
        let took = start.elapsed();
        let (user, system) = (thread_time().0 - user, thread_time().1 - system);
        let each = |time: Duration| time.as_nanos() / (gets * tasks) as u128;
        println!(
            "round {round}: {} ns of processor time a get ({} client, {} kernel), {} gets/s",
            each(user + system),
            each(user),
            each(system),
            (gets * tasks) as u128 * 1_000_000_000 / took.as_nanos(),
        );
    }
    Ok(())
}

fn key(number: usize) -> String {
    format!("key:{number:020}")
}

/// User and system time of this thread.
fn thread_time() -> (Duration, Duration) {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).expect("the kernel counts a thread's time");
    let duration = |time: nix::sys::time::TimeVal| Duration::new(time.tv_sec() as u64, time.tv_usec() as u32 * 1000);
    (duration(usage.user_time()), duration(usage.system_time()))
}
