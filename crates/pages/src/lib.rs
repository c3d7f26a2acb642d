//! Pages: an HTTP cache in front of a web site.
//!
//! [`rules`] decides what may be stored and answered. It is a set of pure functions over the `http` crate's types: no
//! socket, no clock, no store. [`key`] knows which page a request is for,
//! [`negotiate`] which coding is stored and which is served, [`format`](mod@format) how a page is laid out in an item.
#![forbid(unsafe_code)]

pub mod format;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
pub mod key;
pub mod negotiate;
pub mod rules;
#[cfg(test)]
mod testing;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
