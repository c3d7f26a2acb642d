//! Pages: an HTTP cache in front of a web site.
//!
//! [`rules`] decides what may be stored and answered. It is a set of pure functions over the `http` crate's types: no
//! socket, no clock, no store. [`key`] knows which page a request is for.
#![forbid(unsafe_code)]

pub mod key;
pub mod rules;
#[cfg(test)]
mod testing;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
