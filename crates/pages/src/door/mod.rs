//! The door: what happens between a client's request and its answer. It asks [`crate::rules`] what may be done, the
//! pool for what there is and [`crate::origin`] for what there is not; sockets are its caller's.
//!
//! | module | owns |
//! |---|---|
//! | `guard` | which bytes of a client reach anyone |
//! | `client` | what a connection's requests share |
//! | `site` | the settings of a listener's site |
//! | `visit` | one request: what is answered at once, passed, purged or refused |
//! | `look` | one request that is looked for, to the head of its answer |
//! | `hit` | the plain request of a fresh page, from bytes to bytes |
//! | `flight`, `fetched` | one fetch for all who want it |
//! | `fetch` | the leader's fetch |
//! | `shelf` | pages as items |
//! | `parts` | parts of pages |
//! | `tags`, `soft` | what many pages are purged by |
//! | `beyond`, `marks` | pages that several hosts share, and purges that reach them all |
//! | `answer`, `body` | what a client gets |
//! | `forward` | what an origin is asked |
//! | `purge` | forgetting |
//! | `log` | the access log |

mod answer;
mod beyond;
mod body;
mod client;
mod fetch;
mod fetched;
mod flight;
mod forward;
pub mod guard;
mod hit;
mod log;
mod look;
mod marks;
mod parts;
mod purge;
mod shelf;
mod site;
mod soft;
mod tags;
mod visit;

pub use body::{BrokenOff, PageBody, PageData};
pub use client::{Client, Upgrade};
pub use hit::RenderedHit;
pub use log::{AccessLog, LogFormat, ResultCode};
pub use purge::{Network, Purged};
pub use site::{Announce, Foreign, Shared, Site, SiteSettings};
pub use visit::Answered;
