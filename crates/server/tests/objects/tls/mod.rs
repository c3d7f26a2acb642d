//! TLS between clients and a server.

mod breaches;
mod certificates;
mod serving;
