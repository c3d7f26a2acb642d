//! Pages: an HTTP cache in front of a web site.
//!
//! [`rules`] decides what may be stored and answered. It is a set of pure functions over the `http` crate's types: no
//! socket, no clock, no store. [`key`] knows which page a request is for,
//! [`negotiate`] which coding is stored and which is served.
#![forbid(unsafe_code)]

pub mod key;
pub mod negotiate;
pub mod rules;
#[cfg(test)]
mod testing;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
