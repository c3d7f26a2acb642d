//! Runs a server from start to end: prepare the process, start, obey signals, stop.
//!
//! | signal | what happens |
//! |---|---|
//! | `INT`, `TERM`, `USR1` | answers in flight are finished, then the server ends; a second one ends it at once |
//! | `HUP` | the configuration file and the files of users and certificates are read again and put in force; no connection is closed |

use std::io::{self, Write as _};
use std::process::exit;
use std::sync::Arc;
use std::thread;

use nuthatch_server::settings::port_file::{self, Bound};
use nuthatch_server::settings::{Address, ListenerSettings, Loaded, Note, Settings, Sources};
use nuthatch_server::{Running, Server, StartError};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::failure::Failure;
use crate::process::PidFile;
use crate::{command, detach, process, say};

/// A line on standard error. That nobody reads it any more is no reason to stop serving; `eprintln!` would panic.
macro_rules! complain {
    ($($what:tt)*) => {
        drop(writeln!(io::stderr(), $($what)*))
    };
}

/// Serves until a signal or a client's `shutdown` ends it.
pub(crate) fn serve(sources: &Sources) -> Result<(), Failure> {
    let (settings, notes) = match sources.load()? {
        Loaded::Serve(settings, notes) => (*settings, notes),
        Loaded::Print(asked) => return say::print(&command::asked(asked, sources.as_memcached)),
    };
    let name = if sources.as_memcached { "memcached" } else { "nuthatch" };
    let waiting = settings.process.daemonize.then(|| detach::detach(settings.verbosity)).transpose()?;
    say_notes(name, &settings, &notes);
    // Before root is given up: a key may be readable by root alone.
    let server = Server::prepare(settings.clone()).map_err(failure)?;
    process::prepare(&settings)?;
    if process::is_root() && settings.listeners.iter().any(|listener| !listener.address.is_local()) {
        complain!("{name}: warning: root serves the network; -u USER gives root up before anything is listened on");
    }
    if settings.process.lock_memory
        && let Err(reason) = process::lock_memory()
    {
        complain!("{name}: warning: {reason}");
    }

    let signals = Signals::catch()?;
    let running = Arc::new(server.start().map_err(failure)?);
    let bound = bound_listeners(&settings, &running.addresses());
    write_port_file(name, &settings, &bound);
    let pid_file = write_pid_file(name, &settings);
    match waiting {
        Some(waiting) => waiting.ready(),
        None if sources.as_memcached => {}
        // A terminal that has gone is no reason to stop serving.
        None => drop(say::print(&say::greeting(&settings, &bound))),
    }

    signals.obey(&running, name, sources);
    drop(pid_file);
    Ok(())
}

/// What the main thread waits for.
enum Event {
    Stop,
    Reload,
    Ended,
}

/// Signals, caught from before the server starts so that none is missed.
struct Signals {
    runtime: Runtime,
    events: UnboundedReceiver<Event>,
    sender: UnboundedSender<Event>,
}

impl Signals {
    fn catch() -> Result<Signals, Failure> {
        let failed = |error: io::Error| Failure::system(format!("expected to catch signals: {error}"));
        let runtime = Builder::new_current_thread().enable_io().build().map_err(failed)?;
        let (sender, events) = unbounded_channel();
        let _entered = runtime.enter();
        for (kind, event) in [
            (SignalKind::interrupt(), (|| Event::Stop) as fn() -> Event),
            (SignalKind::terminate(), || Event::Stop),
            (SignalKind::user_defined1(), || Event::Stop),
            (SignalKind::hangup(), || Event::Reload),
        ] {
            let mut stream = signal(kind).map_err(failed)?;
            let sender = sender.clone();
            runtime.spawn(async move {
                while stream.recv().await.is_some() {
                    // The receiver goes only with the process.
                    let _ = sender.send(event());
                }
            });
        }
        drop(_entered);
        Ok(Signals { runtime, events, sender })
    }

    /// Obeys signals until the server has ended.
    fn obey(self, running: &Arc<Running>, name: &str, sources: &Sources) {
        let Signals { runtime, mut events, sender } = self;
        let waiting = Arc::clone(running);
        thread::spawn(move || {
            waiting.wait();
            let _ = sender.send(Event::Ended);
        });
        runtime.block_on(async {
            let mut is_stopping = false;
            while let Some(event) = events.recv().await {
                match event {
                    Event::Ended => return,
                    Event::Stop if is_stopping => {
                        if let Some(path) = &running.settings().process.pid_file {
                            let _ = std::fs::remove_file(path);
                        }
                        exit(1);
                    }
                    Event::Stop => {
                        is_stopping = true;
                        running.stop();
                    }
                    Event::Reload => reload(running, name, sources),
                }
            }
        });
    }
}

/// Reads the sources again. What cannot be read changes nothing and is said.
fn reload(running: &Running, name: &str, sources: &Sources) {
    let (mut settings, notes) = match sources.load() {
        Ok(Loaded::Serve(settings, notes)) => (*settings, notes),
        Ok(Loaded::Print(_)) => return,
        Err(problem) => return complain!("{name}: reload: nothing changed: {problem}"),
    };
    for note in notes.iter().filter(|note| note.always) {
        complain!("{name}: reload: warning: {}", note.text);
    }
    let before = running.settings();
    if let Err(failure) = process::raise_descriptor_limit(&settings) {
        complain!("{name}: reload: connections_max stays at {}: {failure}", before.connections_max);
        settings.connections_max = before.connections_max;
    }
    let reloaded = match running.reload(&settings) {
        Ok(reloaded) => reloaded,
        Err(error) => return complain!("{name}: reload: nothing changed: {error}"),
    };
    for line in reloaded.changed.iter().chain(&reloaded.failed) {
        complain!("{name}: reload: {line}");
    }
    for change in &reloaded.waiting {
        complain!("{name}: reload: after a restart: {change}");
    }
    let settings = running.settings();
    write_port_file(name, &settings, &bound_listeners(&settings, &running.addresses()));
    complain!("{name}: reload: done");
}

pub(crate) fn failure(error: StartError) -> Failure {
    match error {
        StartError::Credentials(error) => Failure::credentials(error.to_string()),
        StartError::Tls(error) => Failure::certificates(error.to_string()),
        error => Failure::system(error.to_string()),
    }
}

fn say_notes(name: &str, settings: &Settings, notes: &[Note]) {
    for note in notes.iter().filter(|note| note.always || settings.verbosity > 0) {
        complain!("{name}: {}{}", if note.always { "warning: " } else { "" }, note.text);
    }
}

/// The settings' listeners that were opened, with the addresses they have. An address nobody asked for by itself may be missing.
fn bound_listeners(settings: &Settings, addresses: &[Address]) -> Vec<ListenerSettings> {
    let mut wanted = settings.listeners.iter();
    let matching = |address: &Address| {
        let listener = wanted.find(|listener| is_bound_form(&listener.address, address))?;
        Some(ListenerSettings { address: address.clone(), ..listener.clone() })
    };
    addresses.iter().filter_map(matching).collect()
}

/// Whether `bound` is what became of `wanted`: the same, or with a port in the place of 0.
fn is_bound_form(wanted: &Address, bound: &Address) -> bool {
    match (wanted, bound) {
        (Address::Tcp(wanted), Address::Tcp(bound)) | (Address::Udp(wanted), Address::Udp(bound)) => {
            wanted.ip() == bound.ip() && (wanted.port() == 0 || wanted.port() == bound.port())
        }
        // A mode that could not be changed does not make it another socket.
        (Address::Unix { path: wanted, .. }, Address::Unix { path: bound, .. }) => wanted == bound,
        _ => false,
    }
}

/// `MEMCACHED_PORT_FILENAME`, at the start and when a reload may have changed the ports. As in memcached, a file that cannot be written is said and stops nothing.
fn write_port_file(name: &str, settings: &Settings, bound: &[ListenerSettings]) {
    let Some(path) = &settings.process.port_file else { return };
    let ports = bound.iter().filter_map(|listener| match listener.address {
        Address::Tcp(address) => Some(Bound::Tcp(address)),
        Address::Udp(address) => Some(Bound::Udp(address)),
        Address::Unix { .. } => None,
    });
    if let Err(error) = port_file::write(path, &ports.collect::<Vec<_>>()) {
        complain!("{name}: warning: MEMCACHED_PORT_FILENAME {}: the ports are not written: {error}", path.display());
    }
}

/// `-P`. As in memcached, a file that cannot be written is said and stops nothing.
fn write_pid_file(name: &str, settings: &Settings) -> Option<PidFile> {
    let path = settings.process.pid_file.as_ref()?;
    if let Some(pid) = PidFile::running(path) {
        complain!("{name}: warning: -P {}: the file named process {pid}, which is running", path.display());
    }
    match PidFile::write(path) {
        Ok(file) => Some(file),
        Err(error) => {
            complain!("{name}: warning: -P {}: the process id is not written: {error}", path.display());
            None
        }
    }
}
