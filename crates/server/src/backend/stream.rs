//! Following the servers of a fleet: each tells of what is stored and deleted (`watch`), and the copies of it are dropped.
//!
//! Runs on the control thread, for each pool with a fleet behind it. A connection that begins, ends or breaks, lines that
//! a server left out because they were not read fast enough, and a line that cannot be understood all mean the same:
//! something may have changed unseen, hence everything is forgotten. A server that knows no deletions (memcached 1.6.18)
//! is asked for mutations alone; one that refuses to be watched leaves copies the life they have anyway. What servers do
//! not tell of at all is listed in docs/tier.md.

use std::io;
use std::time::Duration;

use nuthatch_fleet::client::ServerAddr;
use nuthatch_proto::forget::Forget;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc::{Sender, channel};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::Changes;

/// Between two tries at a server that is away.
const PAUSE: Duration = Duration::from_secs(1);

/// How long connecting may take, and the answer to `watch`.
const PATIENCE: Duration = Duration::from_secs(5);

/// Changes that may wait to be acted on; then servers are read no further, and leave lines out.
const WAITING_MAX: usize = 4096;

/// A line has a key of at most 250 bytes, each of at most three characters, and some short words.
const LINE_BYTES_MAX: usize = 4096;

/// What one server's stream says.
enum News {
    Changed(Vec<u8>),
    Forgotten(Named),
    Gap,
    /// How the stream of server number so many stands; an error says why there is none.
    Stands(usize, Result<&'static str, String>),
}

/// A prefix or tag that a server forgot.
#[derive(Debug, PartialEq, Eq)]
enum Named {
    Prefix(Vec<u8>),
    Tag(Vec<u8>),
}

/// What a line says.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    Changed(Vec<u8>),
    Forgotten(Named),
    Unchanged,
    Unknown,
}

/// Whose changes are followed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Watched {
    /// None while they are not known.
    pub(super) servers: Vec<ServerAddr>,
    /// What stands before every key.
    pub(super) namespace: Vec<u8>,
}

/// Follows the servers that `watched` names, until it is gone.
pub(super) async fn follow(mut watched: watch::Receiver<Watched>, mut changes: Box<dyn Changes>) {
    loop {
        let Watched { servers, namespace } = watched.borrow_and_update().clone();
        if servers.is_empty() {
            changes.following(false, "the servers are not known yet");
        }
        let mut stands: Vec<Result<&'static str, String>> = vec![Err("not connected yet".to_owned()); servers.len()];
        let (news, mut heard) = channel(WAITING_MAX);
        // Dropped, it ends what it started.
        let mut watches = JoinSet::new();
        for (number, server) in servers.iter().enumerate() {
            watches.spawn(watch(number, server.clone(), news.clone()));
        }
        loop {
            let told = tokio::select! {
                biased;
                changed = watched.changed() => match changed {
                    Ok(()) => break,
                    Err(_) => return,
                },
                Some(told) = heard.recv() => told,
            };
            match told {
                News::Changed(key) => {
                    if let Some(key) = key.strip_prefix(&namespace[..]) {
                        changes.changed(key);
                    }
                }
                News::Forgotten(Named::Tag(tag)) => changes.forgotten(Forget::Tag(&tag)),
                News::Forgotten(Named::Prefix(prefix)) => match prefix.strip_prefix(&namespace[..]) {
                    Some(prefix @ [_, ..]) => changes.forgotten(Forget::Prefix(prefix)),
                    // All of this fleet's keys begin with it.
                    _ if namespace.starts_with(&prefix) => changes.gap(),
                    _ => {}
                },
                News::Gap => changes.gap(),
                News::Stands(number, how) => {
                    stands[number] = how.map_err(|why| format!("{}: {why}", servers[number]));
                    let away = stands.iter().find_map(|how| how.as_ref().err());
                    let lacking = stands.iter().find_map(|how| how.as_ref().ok().filter(|lacking| !lacking.is_empty()));
                    changes.following(away.is_none(), away.map_or(lacking.copied().unwrap_or(""), String::as_str));
                }
            }
        }
        // Keys may live on other servers by now.
        changes.gap();
    }
}

/// Follows one server, whatever happens to it.
async fn watch(number: usize, server: ServerAddr, news: Sender<News>) {
    loop {
        let mut was_followed = false;
        let why = match timeout(PATIENCE, connect(&server)).await {
            Err(_) => "cannot be connected to in time".to_owned(),
            Ok(Err(error)) => error.to_string(),
            Ok(Ok(stream)) => listen(number, stream, &news, &mut was_followed).await,
        };
        if news.send(News::Stands(number, Err(why))).await.is_err() {
            return;
        }
        // What was changed since the end is not known of. A try in vain changes nothing: copies live for `ttl_max` then.
        if was_followed && news.send(News::Gap).await.is_err() {
            return;
        }
        sleep(PAUSE).await;
    }
}

/// Nothing is sent on a connection that watches, so that only the system can notice that the other end is gone: in eleven
/// seconds, in which copies go on living for `ttl_max`.
fn keepalive() -> TcpKeepalive {
    TcpKeepalive::new().with_time(Duration::from_secs(5)).with_interval(Duration::from_secs(2)).with_retries(3)
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

async fn connect(server: &ServerAddr) -> io::Result<Box<dyn Stream>> {
    Ok(match server {
        ServerAddr::Tcp { host, port } => {
            let stream = TcpStream::connect((host.as_str(), *port)).await?;
            SockRef::from(&stream).set_tcp_keepalive(&keepalive())?;
            Box::new(stream)
        }
        ServerAddr::Unix(path) => Box::new(UnixStream::connect(path).await?),
    })
}

/// Asks to be told, and passes on what is told, until the end: why it came.
async fn listen(number: usize, stream: Box<dyn Stream>, news: &Sender<News>, was_followed: &mut bool) -> String {
    let mut lines = Lines { stream, buffer: Vec::new() };
    let mut lacking = "";
    let mut answer = lines.ask(b"watch mutations deletions\r\n").await;
    if answer.as_ref().is_ok_and(|answer| answer == b"ERROR") {
        lacking = "deletions are not told of by every server";
        answer = lines.ask(b"watch mutations\r\n").await;
    }
    match answer {
        Ok(answer) if answer == b"OK" => {}
        Ok(answer) => return format!("refuses to be watched: {}", answer.escape_ascii()),
        Err(error) => return error.to_string(),
    }
    *was_followed = true;
    // From now on every change is told of. What was fetched before may be older than one that was not.
    for told in [News::Gap, News::Stands(number, Ok(lacking))] {
        if news.send(told).await.is_err() {
            return String::new();
        }
    }
    loop {
        let told = match lines.next().await {
            Ok(line) => match read(&line) {
                Line::Changed(key) => News::Changed(key),
                Line::Forgotten(named) => News::Forgotten(named),
                Line::Unchanged => continue,
                Line::Unknown => News::Gap,
            },
            Err(error) => return error.to_string(),
        };
        if news.send(told).await.is_err() {
            return String::new();
        }
    }
}

struct Lines {
    stream: Box<dyn Stream>,
    buffer: Vec<u8>,
}

impl Lines {
    async fn ask(&mut self, request: &[u8]) -> io::Result<Vec<u8>> {
        let asked = async {
            self.stream.write_all(request).await?;
            self.next().await
        };
        timeout(PATIENCE, asked).await.map_err(|_| io::Error::other("does not answer in time"))?
    }

    /// The next line, without its end.
    async fn next(&mut self) -> io::Result<Vec<u8>> {
        loop {
            if let Some(end) = self.buffer.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Ok(line.trim_ascii_end().to_vec());
            }
            if self.buffer.len() > LINE_BYTES_MAX {
                return Err(io::Error::other("sent a line that does not end"));
            }
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(io::Error::other("has closed the connection"));
            }
        }
    }
}

/// Reads a line of `watch mutations deletions`. One that is no event, `skipped=N` above all, is unknown.
fn read(line: &[u8]) -> Line {
    let word = |name: &[u8]| line.split(|&byte| byte == b' ').find_map(|word| word.strip_prefix(name));
    let status = word(b"status=").unwrap_or_default();
    if word(b"type=") == Some(b"forget") {
        let named = |name: &[u8]| word(name).and_then(decoded).filter(|name| !name.is_empty());
        let prefix = || named(b"prefix=").map(Named::Prefix);
        return named(b"tag=").map(Named::Tag).or_else(prefix).map_or(Line::Unknown, Line::Forgotten);
    }
    match (word(b"type="), word(b"key=").and_then(decoded)) {
        (Some(b"item_store"), Some(_)) if [&b"not_stored"[..], b"exists", b"not_found"].contains(&status) => {
            Line::Unchanged
        }
        (Some(b"item_store" | b"deleted"), Some(key)) => Line::Changed(key),
        _ => Line::Unknown,
    }
}

/// The bytes of a key that is shown with every byte but letters, digits and `-._~` as `%XX`.
fn decoded(shown: &[u8]) -> Option<Vec<u8>> {
    let mut key = Vec::with_capacity(shown.len());
    let mut rest = shown;
    while let [byte, after @ ..] = rest {
        rest = after;
        if *byte != b'%' {
            key.push(*byte);
            continue;
        }
        let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
        key.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &rest[2..];
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_memcached_tell_which_key_has_changed() {
        let line = |line: &str| read(line.as_bytes());
        let changed = |key: &[u8]| Line::Changed(key.to_vec());
        let of = "ts=1795286822.473399 gid=2 type=item_store";
        assert_eq!(line(&format!("{of} key=a status=stored cmd=set ttl=0 clsid=1 cfd=29 size=1")), changed(b"a"));
        assert_eq!(line(&format!("{of} key=k%25%C3%A9 status=stored cmd=append ttl=0")), changed("k%é".as_bytes()));
        assert_eq!(line(&format!("{of} key=big status=too_large cmd=set ttl=0 clsid=29")), changed(b"big"));
        assert_eq!(line(&format!("{of} key=a status=exists cmd=cas ttl=0 clsid=1")), Line::Unchanged);
        assert_eq!(line(&format!("{of} key=a status=not_stored cmd=add ttl=0")), Line::Unchanged);
        assert_eq!(line("ts=1.2 gid=9 type=deleted key=a%20b cmd=md clsid=1 size=2"), changed(b"a b"));
        let of = "ts=1.2 gid=7 type=forget";
        let prefix = Line::Forgotten(Named::Prefix(b"page:7:".to_vec()));
        assert_eq!(line(&format!("{of} prefix=page%3A7%3A cmd=delete cfd=31")), prefix);
        assert_eq!(line(&format!("{of} tag=a%20b cmd=forget cfd=3")), Line::Forgotten(Named::Tag(b"a b".to_vec())));
        assert_eq!(line(&format!("{of} tag= cmd=forget cfd=3")), Line::Unknown);
        assert_eq!(line(&format!("{of} something=a")), Line::Unknown);
        assert_eq!(line("skipped=12"), Line::Unknown);
        assert_eq!(line(&format!("{of} key=a%2")), Line::Unknown);
        assert_eq!(line(""), Line::Unknown);
    }
}
