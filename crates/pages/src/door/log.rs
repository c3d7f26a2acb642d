//! The access log: a line for each request, in Squid's native format, the combined one of Apache, or JSON.
//!
//! Lines are made where the answer ends and written by a thread of the log's own. A worker never waits for it: when it
//! is behind by [`LINES_WAITING_MAX`] lines, further ones are counted and left out, and the count is written instead.
//!
//! | squid | |
//! |---|---|
//! | `time.ms elapsed client code/status bytes method url user hierarchy/server type` | `%ts.%03tu %6tr %>a %Ss/%03>Hs %<st %rm %ru %[un %Sh/%<a %mt` |

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use http::header::{REFERER, USER_AGENT};
use http::{HeaderMap, HeaderValue};

/// Lines that wait to be written.
const LINES_WAITING_MAX: usize = 16 * 1024;

/// Bytes of a field of the client's that are logged.
const FIELD_BYTES_MAX: usize = 1024;

/// How lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Squid's native format.
    Squid,
    /// Apache's combined format, with Squid's result at the end as in Squid's own `combined`.
    Combined,
    /// An object a line.
    Json,
}

/// How a request was answered, as Squid names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultCode {
    /// From memory, fresh.
    MemHit,
    /// From memory, and the client has it already.
    ImsHit,
    /// Fetched; there was nothing in memory.
    Miss,
    /// Fetched with others who wanted the same.
    CollapsedMiss,
    /// Fetched without looking, as the request or an earlier answer wanted.
    MissPass,
    /// Fetched because the client asked for it.
    ClientRefreshMiss,
    /// The origin said that what was in memory still holds.
    RefreshUnmodified,
    /// The origin had a newer one.
    RefreshModified,
    /// The origin failed, and the stale one was served.
    RefreshFailOld,
    /// From memory, stale, while it is refreshed or because the client takes it.
    StaleHit,
    /// Refused.
    Denied,
    /// Only what is in memory was wanted, and it was not there.
    OffHit,
    /// Another protocol from here on.
    Tunnel,
    /// Done here, without a page.
    None,
}

impl ResultCode {
    /// Squid's name.
    pub fn name(self) -> &'static str {
        match self {
            ResultCode::MemHit => "TCP_MEM_HIT",
            ResultCode::ImsHit => "TCP_IMS_HIT",
            ResultCode::Miss | ResultCode::MissPass => "TCP_MISS",
            ResultCode::CollapsedMiss => "TCP_CF_MISS",
            ResultCode::ClientRefreshMiss => "TCP_CLIENT_REFRESH_MISS",
            ResultCode::RefreshUnmodified => "TCP_REFRESH_UNMODIFIED",
            ResultCode::RefreshModified => "TCP_REFRESH_MODIFIED",
            ResultCode::RefreshFailOld => "TCP_REFRESH_FAIL_OLD",
            ResultCode::StaleHit => "TCP_STALE_HIT",
            ResultCode::Denied => "TCP_DENIED",
            ResultCode::OffHit => "TCP_OFFLINE_HIT",
            ResultCode::Tunnel => "TCP_TUNNEL",
            ResultCode::None => "NONE_NONE",
        }
    }

    /// Was the answer made of what was in memory?
    pub fn is_hit(self) -> bool {
        matches!(
            self,
            ResultCode::MemHit
                | ResultCode::ImsHit
                | ResultCode::RefreshUnmodified
                | ResultCode::RefreshFailOld
                | ResultCode::StaleHit
        )
    }

    /// Whom it came from: nobody, or the origin.
    fn hierarchy(self) -> &'static str {
        match self {
            ResultCode::MemHit
            | ResultCode::ImsHit
            | ResultCode::StaleHit
            | ResultCode::Denied
            | ResultCode::OffHit
            | ResultCode::None => "HIER_NONE/-",
            _ => "FIRSTUP_PARENT/origin",
        }
    }
}

/// An open access log. The thread ends when the last of these is gone.
pub struct AccessLog {
    format: LogFormat,
    path: PathBuf,
    lines: Option<SyncSender<String>>,
    left_out: Arc<AtomicU64>,
    reopen: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl AccessLog {
    /// Opens the file at `path`, to append to it.
    ///
    /// # Errors
    /// It cannot be opened, or no thread be started.
    pub fn open(path: &Path, format: LogFormat) -> io::Result<Arc<AccessLog>> {
        let file = append_to(path)?;
        let (lines, waiting) = sync_channel(LINES_WAITING_MAX);
        let (left_out, reopen) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let writer =
            Writer { file, path: path.to_owned(), left_out: Arc::clone(&left_out), reopen: Arc::clone(&reopen) };
        let thread = std::thread::Builder::new().name("access-log".to_owned()).spawn(move || writer.run(waiting))?;
        Ok(Arc::new(AccessLog {
            format,
            path: path.to_owned(),
            lines: Some(lines),
            left_out,
            reopen,
            thread: Mutex::new(Some(thread)),
        }))
    }

    /// Where it is written, and how.
    pub fn target(&self) -> (&Path, LogFormat) {
        (&self.path, self.format)
    }

    /// Has the file opened anew before the next line: it may have been rotated away.
    pub fn reopen(&self) {
        self.reopen.store(true, Ordering::Release);
    }

    fn write(&self, line: String) {
        if let Some(lines) = &self.lines
            && lines.try_send(line).is_err()
        {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        drop(self.lines.take());
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // It writes what is left and ends.
            let _ = thread.join();
        }
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

/// The log's thread.
struct Writer {
    file: File,
    path: PathBuf,
    left_out: Arc<AtomicU64>,
    reopen: Arc<AtomicBool>,
}

impl Writer {
    fn run(mut self, waiting: Receiver<String>) {
        let mut batch = String::new();
        while let Ok(line) = waiting.recv() {
            batch.clear();
            batch.push_str(&line);
            // What has come meanwhile goes in one write.
            while batch.len() < 256 * 1024
                && let Ok(line) = waiting.try_recv()
            {
                batch.push_str(&line);
            }
            let left_out = self.left_out.swap(0, Ordering::Relaxed);
            if left_out > 0 {
                let _ = writeln!(batch, "# {left_out} lines left out: the disk was too slow");
            }
            if self.reopen.swap(false, Ordering::AcqRel)
                && let Ok(file) = append_to(&self.path)
            {
                self.file = file;
            }
            // A full disk is no reason to stop serving, and there is nowhere to say so for each line.
            let _ = self.file.write_all(batch.as_bytes());
        }
    }
}

/// A line that is being made.
pub(crate) struct Entry {
    log: Arc<AccessLog>,
    begun: Instant,
    client: Option<IpAddr>,
    method: String,
    url: String,
    version: &'static str,
    referer: String,
    user_agent: String,
    content_type: String,
    status: u16,
    code: ResultCode,
    bytes: u64,
    failure: Option<String>,
}

/// What a line says of a request.
pub(crate) struct Asking<'a> {
    pub(crate) method: &'a str,
    /// As it is shown.
    pub(crate) url: String,
    /// As the client sent them, or empty.
    pub(crate) referer: &'a [u8],
    pub(crate) user_agent: &'a [u8],
}

impl<'a> Asking<'a> {
    pub(crate) fn new(method: &'a str, url: String, headers: &'a HeaderMap) -> Asking<'a> {
        let field = |name| headers.get(name).map_or(&[][..], HeaderValue::as_bytes);
        Asking { method, url, referer: field(REFERER), user_agent: field(USER_AGENT) }
    }
}

impl Entry {
    /// A request that begins now.
    pub(crate) fn begin(
        log: &Arc<AccessLog>,
        client: Option<IpAddr>,
        version: http::Version,
        asking: Asking<'_>,
    ) -> Box<Entry> {
        let Asking { method, url, referer, user_agent } = asking;
        Box::new(Entry {
            log: Arc::clone(log),
            begun: Instant::now(),
            client,
            method: method.to_owned(),
            url,
            version: match version {
                http::Version::HTTP_10 => "HTTP/1.0",
                http::Version::HTTP_2 => "HTTP/2.0",
                _ => "HTTP/1.1",
            },
            referer: shown(referer),
            user_agent: shown(user_agent),
            content_type: String::new(),
            status: 0,
            code: ResultCode::Miss,
            bytes: 0,
            failure: None,
        })
    }

    /// The head of its answer.
    pub(crate) fn answered(&mut self, status: u16, code: ResultCode, content_type: Option<&[u8]>) {
        self.status = status;
        self.code = code;
        if let Some(value) = content_type {
            let value = shown(value);
            self.content_type = value.split(';').next().unwrap_or_default().trim().to_owned();
        }
    }

    pub(crate) fn add_bytes(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// Why it is refused, or what went wrong on the way.
    pub(crate) fn failed(&mut self, why: &dyn std::fmt::Display) {
        self.failure = Some(why.to_string());
    }

    fn line(&self, at: SystemTime) -> String {
        let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let elapsed = self.begun.elapsed().as_millis();
        let client = self.client.map_or_else(|| "-".to_owned(), |address| address.to_string());
        let Entry { method, url, version, referer, user_agent, content_type, status, code, bytes, .. } = self;
        let or_dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
        let (code, hierarchy) = (code.name(), self.code.hierarchy());
        let mut line = match self.log.format {
            LogFormat::Squid => {
                let (seconds, millis, kind) = (since.as_secs(), since.subsec_millis(), or_dash(content_type));
                format!(
                    "{seconds}.{millis:03} {elapsed:>6} {client} {code}/{status:03} {bytes} {method} {url} - {hierarchy} {kind}"
                )
            }
            LogFormat::Combined => {
                let when = combined_date(since.as_secs());
                let (referer, user_agent) = (or_dash(referer), or_dash(user_agent));
                let hierarchy = hierarchy.split('/').next().unwrap_or_default();
                format!(
                    "{client} - - [{when}] \"{method} {url} {version}\" {status} {bytes} \"{referer}\" \"{user_agent}\" {code}:{hierarchy}"
                )
            }
            LogFormat::Json => {
                let mut line = format!("{{\"time\":{}.{:03}", since.as_secs(), since.subsec_millis());
                let _ = write!(line, ",\"elapsed_ms\":{elapsed},\"status\":{status},\"bytes\":{bytes}");
                let failure = self.failure.as_deref().unwrap_or_default();
                for (name, text) in [
                    ("client", client.as_str()),
                    ("code", code),
                    ("method", method),
                    ("url", url),
                    ("version", version),
                    ("type", content_type),
                    ("referer", referer),
                    ("user_agent", user_agent),
                    ("failure", failure),
                ] {
                    if !text.is_empty() {
                        let _ = write!(line, ",\"{name}\":{}", json(text));
                    }
                }
                line.push('}');
                line
            }
        };
        line.push('\n');
        line
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.log.write(self.line(SystemTime::now()));
    }
}

/// A client's bytes as a log may show them: no quotes, no spaces that end a column, no control characters.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in &bytes[..bytes.len().min(FIELD_BYTES_MAX)] {
        match byte {
            b' '..=b'~' if !matches!(byte, b'"' | b'\\') => text.push(char::from(*byte)),
            byte => {
                let _ = write!(text, "\\x{byte:02x}");
            }
        }
    }
    text
}

/// A string of JSON. What is shown has no control characters, but its escapes have backslashes.
fn json(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => {
                quoted.push('\\');
                quoted.push(character);
            }
            character if character.is_control() => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(character));
            }
            character => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}

/// `21/Nov/2026:18:00:00 +0000`
fn combined_date(unix_seconds: u64) -> String {
    // "Sat, 21 Nov 2026 18:00:00 GMT"
    let date = crate::rules::format_date(unix_seconds as i64);
    match (date.get(5..7), date.get(8..11), date.get(12..16), date.get(17..25)) {
        (Some(day), Some(month), Some(year), Some(time)) => format!("{day}/{month}/{year}:{time} +0000"),
        _ => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn line(format: LogFormat) -> String {
        let folder = tempfile::tempdir().expect("a folder");
        let log = AccessLog::open(&folder.path().join("access.log"), format).expect("a log");
        let mut headers = HeaderMap::new();
        headers.insert(USER_AGENT, "evil\"agent".parse().expect("a value"));
        let url = "http://a.example/x".to_owned();
        let asking = Asking::new("GET", url, &headers);
        let mut entry = Entry::begin(&log, "127.0.0.1".parse().ok(), http::Version::HTTP_11, asking);
        entry.answered(200, ResultCode::MemHit, Some(b"text/html; charset=utf-8"));
        entry.add_bytes(1234);
        entry.begun = Instant::now();
        entry.line(UNIX_EPOCH + Duration::from_millis(1_795_284_000_042))
    }

    #[test]
    fn lines_are_those_of_squid_and_apache() {
        assert_eq!(
            line(LogFormat::Squid),
            "1795284000.042      0 127.0.0.1 TCP_MEM_HIT/200 1234 GET http://a.example/x - HIER_NONE/- text/html\n"
        );
        assert_eq!(
            line(LogFormat::Combined),
            "127.0.0.1 - - [21/Nov/2026:18:00:00 +0000] \"GET http://a.example/x HTTP/1.1\" 200 1234 \"-\" \"evil\\x22agent\" TCP_MEM_HIT:HIER_NONE\n"
        );
        assert_eq!(
            line(LogFormat::Json),
            "{\"time\":1795284000.042,\"elapsed_ms\":0,\"status\":200,\"bytes\":1234,\"client\":\"127.0.0.1\",\"code\":\"TCP_MEM_HIT\",\"method\":\"GET\",\"url\":\"http://a.example/x\",\"version\":\"HTTP/1.1\",\"type\":\"text/html\",\"user_agent\":\"evil\\\\x22agent\"}\n"
        );
    }

    #[test]
    fn a_log_that_was_rotated_away_is_opened_anew_and_nothing_is_lost() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("access.log");
        let log = AccessLog::open(&path, LogFormat::Squid).expect("a log");
        log.write("one\n".to_owned());
        let deadline = Instant::now() + Duration::from_secs(30);
        while std::fs::read_to_string(&path).expect("a file") != "one\n" {
            assert!(Instant::now() < deadline, "it is not written");
            std::thread::yield_now();
        }
        std::fs::rename(&path, folder.path().join("access.log.1")).expect("rotated");
        log.reopen();
        log.write("two\n".to_owned());
        drop(log);
        assert_eq!(std::fs::read_to_string(&path).expect("a file"), "two\n");
    }
}
