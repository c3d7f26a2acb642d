//! Pages: an HTTP cache in front of a web site.
//!
//! [`rules`] decides what may be stored and answered. It is a set of pure functions over the `http` crate's types: no
//! socket, no clock, no store. [`key`] knows which page a request is for, [`negotiate`] which coding is stored and which
//! is served, [`format`](mod@format) how a page is laid out in an item. [`door`] is what happens between a client's
//! request and its answer, and [`mod@origin`] asks the web servers behind it.
#![forbid(unsafe_code)]

pub mod door;
pub mod format;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod house;
pub mod key;
pub mod negotiate;
pub mod origin;
pub mod rules;
#[cfg(test)]
mod testing;
mod ticks;

pub use house::{Beyond, BeyondItem, Change, Count, House, Later, Silent};
pub use ticks::{TICK, Ticks};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
