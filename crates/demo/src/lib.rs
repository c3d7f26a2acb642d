//! A wiki over SQLite, each page deliberately slow to make: what `nuthatch demo` has its page listener stand in front of.
//!
//! It owns its database, which is in memory, and one thread. It knows nothing of the cache: it says in `Cache-Control`
//! how long a page may be kept, and what a cache makes of that is not its business.
#![forbid(unsafe_code)]

mod page;
mod pages;

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, LOCATION};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use pages::Pages;

/// How long a page takes to make: about as long as a large wiki's does without a cache.
pub const PAGE_TIME: Duration = Duration::from_millis(600);

/// How long a page may be kept by caches, in seconds.
const FRESH_SECONDS: u32 = 60;

/// Bytes of a text that is saved.
const TEXT_BYTES_MAX: usize = 64 * 1024;

/// A wiki that runs until the process ends.
#[derive(Debug)]
pub struct Wiki {
    address: SocketAddr,
    made: Arc<AtomicU64>,
}

impl Wiki {
    /// Starts one on a port of loopback that the system chooses.
    ///
    /// # Errors
    /// There is no port, no thread, or no memory for the database.
    pub fn start() -> io::Result<Wiki> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let made = Arc::<AtomicU64>::default();
        let site = Arc::new(Site { pages: Pages::new().map_err(io::Error::other)?, made: Arc::clone(&made) });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new().name("wiki".to_owned()).spawn(move || {
            runtime.block_on(async {
                if let Ok(listener) = TcpListener::from_std(listener) {
                    serve(listener, site).await;
                }
            });
        })?;
        Ok(Wiki { address, made })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Pages that it has made.
    pub fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }
}

struct Site {
    pages: Pages,
    made: Arc<AtomicU64>,
}

async fn serve(listener: TcpListener, site: Arc<Site>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let site = Arc::clone(&site);
        let service = service_fn(move |request| {
            let site = Arc::clone(&site);
            async move { Ok::<_, Infallible>(site.answer(request).await) }
        });
        // A client that goes away is no news.
        tokio::spawn(async move { drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await) });
    }
}

impl Site {
    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let title = match request.uri().path() {
            "/" | "/wiki/" => Some(pages::FIRST.to_owned()),
            path => path.strip_prefix("/wiki/").and_then(page::title_of),
        };
        let Some(title) = title else {
            return respond(
                StatusCode::NOT_FOUND,
                "no-store",
                "There is nothing here; try /wiki/Nuthatch\n".to_owned(),
            );
        };
        match *request.method() {
            Method::GET | Method::HEAD => {
                tokio::time::sleep(PAGE_TIME).await;
                let number = self.made.fetch_add(1, Ordering::Relaxed) + 1;
                match self.pages.text(&title) {
                    Ok(Some(text)) => {
                        let cache = format!("public, s-maxage={FRESH_SECONDS}, stale-if-error=3600");
                        respond(StatusCode::OK, &cache, page::html(&title, &text, number))
                    }
                    Ok(None) => respond(StatusCode::NOT_FOUND, "s-maxage=10", page::missing(&title)),
                    Err(error) => respond(StatusCode::INTERNAL_SERVER_ERROR, "no-store", format!("{error}\n")),
                }
            }
            Method::POST | Method::PUT => {
                let Ok(body) = Limited::new(request.into_body(), TEXT_BYTES_MAX).collect().await else {
                    return respond(StatusCode::PAYLOAD_TOO_LARGE, "no-store", "At most 64 KiB of text\n".to_owned());
                };
                let text = String::from_utf8_lossy(&body.to_bytes()).into_owned();
                match self.pages.save(&title, &text) {
                    Ok(()) => {
                        let mut response = respond(StatusCode::SEE_OTHER, "no-store", "Saved\n".to_owned());
                        if let Ok(place) = HeaderValue::try_from(page::path_of(&title)) {
                            response.headers_mut().insert(LOCATION, place);
                        }
                        response
                    }
                    Err(error) => respond(StatusCode::INTERNAL_SERVER_ERROR, "no-store", format!("{error}\n")),
                }
            }
            _ => respond(StatusCode::METHOD_NOT_ALLOWED, "no-store", "GET, HEAD, POST and PUT\n".to_owned()),
        }
    }
}

fn respond(status: StatusCode, cache: &str, body: String) -> Response<Full<Bytes>> {
    let kind = if body.starts_with('<') { "text/html; charset=utf-8" } else { "text/plain; charset=utf-8" };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    if let Ok(cache) = HeaderValue::from_str(cache) {
        response.headers_mut().insert(CACHE_CONTROL, cache);
    }
    response
}
