//! Pages: an HTTP cache in front of a web site.
//!
//! [`rules`] decides what may be stored and answered. It is a set of pure functions over the `http` crate's types: no
//! socket, no clock, no store.
#![forbid(unsafe_code)]

pub mod rules;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
