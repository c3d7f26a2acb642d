//! Page listeners, end to end: before scripted origins, other people's web servers, and fleets.

#[path = "../common/mod.rs"]
mod common;
mod http;
mod program;

mod basics;
mod clients;
mod fleet;
mod foreign;
mod hits;
mod hostile;
mod origin;
mod parts;
mod programs;
mod purge;
mod ranges;
mod slow;
mod tls;
