//! A scripted web server: it counts what it is asked, answers as its script says, and misbehaves on request.
//!
//! One thread a connection, blocking: what a test holds back by a [`Gate`] stays back until the test opens it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long anything waits for a test that has gone wrong.
const PATIENCE: Duration = Duration::from_secs(60);

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct Request {
    /// The method.
    pub method: String,
    /// The target.
    pub target: String,
    /// Names in lower case, and values.
    pub fields: Vec<(String, String)>,
    /// The body, without its framing.
    pub body: Vec<u8>,
}

impl Request {
    /// The value of a field, the first if there are several.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }
}

/// What an origin's bytes go over: a socket, or one with encryption around it.
pub trait Link: Read + Write {}

impl<T: Read + Write> Link for T {}

/// Where a script answers.
pub struct Answer<'a> {
    link: &'a mut BufReader<Box<dyn Link>>,
    socket: &'a TcpStream,
    is_open: &'a mut bool,
}

impl Answer<'_> {
    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let link = self.link.get_mut();
        *self.is_open &= link.write_all(bytes.as_ref()).and_then(|()| link.flush()).is_ok();
    }

    /// A whole answer: a status with its reason, header lines without their ends, a body.
    pub fn reply(&mut self, status: &str, lines: &[&str], body: impl AsRef<[u8]>) {
        let body = body.as_ref();
        let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        let head = format!("HTTP/1.1 {status}\r\n{lines}Content-Length: {}\r\n\r\n", body.len());
        self.send([head.as_bytes(), body].concat());
    }

    /// Closes the connection, in order as far as the socket goes: encryption is not told.
    pub fn close(&mut self) {
        let _ = self.socket.shutdown(Shutdown::Both);
        *self.is_open = false;
    }

    /// What the client sends after its request, as another protocol.
    pub fn take(&mut self, bytes: usize) -> Vec<u8> {
        let mut taken = vec![0; bytes];
        match self.link.read_exact(&mut taken) {
            Ok(()) => taken,
            Err(_) => {
                *self.is_open = false;
                Vec::new()
            }
        }
    }
}

/// Something that a test opens.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    /// Whoever waits goes on, and whoever comes.
    pub fn open(&self) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.1.notify_all();
    }

    /// Waits until it is open.
    ///
    /// # Panics
    /// When nobody opens it.
    pub fn wait(&self) {
        let is_open = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (is_open, _) =
            self.0.1.wait_timeout_while(is_open, PATIENCE, |is_open| !*is_open).unwrap_or_else(PoisonError::into_inner);
        assert!(*is_open, "nobody opens the gate");
    }
}

/// A web server that runs. Dropped, it accepts no more.
#[derive(Debug)]
pub struct Origin {
    scheme: &'static str,
    address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
    connections: Arc<AtomicUsize>,
    open: Arc<()>,
    is_over: Arc<AtomicBool>,
}

impl Origin {
    /// Starts one on a port of its own; `script` answers each request.
    ///
    /// # Panics
    /// When there is no port.
    pub fn start(script: impl Fn(&Request, &mut Answer<'_>) + Send + Sync + 'static) -> Origin {
        Origin::start_over("http", |socket| Box::new(socket), script)
    }

    /// The same with something around its sockets, for which addresses begin with `scheme`.
    ///
    /// # Panics
    /// When there is no port.
    pub fn start_over(
        scheme: &'static str,
        wrap: impl Fn(TcpStream) -> Box<dyn Link> + Send + Sync + 'static,
        script: impl Fn(&Request, &mut Answer<'_>) + Send + Sync + 'static,
    ) -> Origin {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let (wrap, script) = (Arc::new(wrap), Arc::new(script));
        let requests = Arc::<Mutex<Vec<Request>>>::default();
        let (connections, is_over) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let open = Arc::new(());
        let origin = Origin {
            scheme,
            address,
            requests: Arc::clone(&requests),
            connections: Arc::clone(&connections),
            open: Arc::clone(&open),
            is_over: Arc::clone(&is_over),
        };
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if is_over.load(Ordering::Acquire) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                connections.fetch_add(1, Ordering::Relaxed);
                let (wrap, script, requests) = (Arc::clone(&wrap), Arc::clone(&script), Arc::clone(&requests));
                let open = Arc::clone(&open);
                std::thread::spawn(move || {
                    serve(stream, &*wrap, &*script, &requests);
                    drop(open);
                });
            }
        });
        origin
    }

    /// `http://127.0.0.1:PORT`, or with another scheme.
    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Everything it was asked, in order.
    pub fn requests(&self) -> Vec<Request> {
        lock(&self.requests).clone()
    }

    /// How often it was asked.
    pub fn count(&self) -> usize {
        lock(&self.requests).len()
    }

    /// How often it was asked for `target`.
    pub fn count_of(&self, target: &str) -> usize {
        lock(&self.requests).iter().filter(|request| request.target == target).count()
    }

    /// Connections that neither side has closed.
    pub fn connections_open(&self) -> usize {
        // One is the origin's, another its thread's.
        Arc::strong_count(&self.open).saturating_sub(2)
    }

    /// Connections that it accepted.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        // Wakes who accepts.
        let _ = TcpStream::connect(self.address);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(
    socket: TcpStream,
    wrap: &dyn Fn(TcpStream) -> Box<dyn Link>,
    script: &(dyn Fn(&Request, &mut Answer<'_>) + Send + Sync),
    requests: &Mutex<Vec<Request>>,
) {
    let _ = socket.set_read_timeout(Some(PATIENCE));
    let _ = socket.set_nodelay(true);
    let Ok(inner) = socket.try_clone() else { return };
    let mut link = BufReader::new(wrap(inner));
    let mut is_open = true;
    while is_open && let Some(request) = read_request(&mut link) {
        lock(requests).push(request.clone());
        script(&request, &mut Answer { link: &mut link, socket: &socket, is_open: &mut is_open });
    }
    let _ = socket.shutdown(Shutdown::Both);
}

fn read_request(reader: &mut impl BufRead) -> Option<Request> {
    let line = read_line(reader)?;
    let mut words = line.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut fields = Vec::new();
    loop {
        let line = read_line(reader)?;
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':')?;
        fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let mut request = Request { method, target, fields, body: Vec::new() };
    if request.field("transfer-encoding").is_some() {
        loop {
            let bytes = usize::from_str_radix(read_line(reader)?.trim(), 16).ok()?;
            let mut chunk = vec![0; bytes];
            reader.read_exact(&mut chunk).ok()?;
            request.body.extend_from_slice(&chunk);
            read_line(reader)?;
            if bytes == 0 {
                break;
            }
        }
    } else if let Some(length) = request.field("content-length") {
        request.body = vec![0; length.parse().ok()?];
        reader.read_exact(&mut request.body).ok()?;
    }
    Some(request)
}

fn read_line(reader: &mut impl BufRead) -> Option<String> {
    let mut line = String::new();
    match reader.read_line(&mut line) {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(line.trim_end_matches(['\r', '\n']).to_owned()),
    }
}
