//! The rules of a shared HTTP cache (RFC 9111 and companions) as pure functions.
//!
//! A request goes through them in this order:
//!
//! 1. [`classify`]: is it looked up, passed on, or does it change the resource? ([`Class`])
//! 2. a stored response with its [`Policy`] is found: [`Policy::decide`] compares integers and says what to do with it
//!    ([`Decision`]); [`vary`] chooses among variants.
//! 3. the answer is made from it: [`validate::evaluate`] and [`validate::not_modified`], [`range::select`],
//!    [`announce`].
//! 4. or the origin is asked, conditionally by [`validate::conditional_request`]; its answer passes [`judge`], which
//!    computes the policy once, and [`validate::update`] when it is a 304.
//! 5. [`invalidate::targets`] names what an unsafe request's answer makes invalid.
//!
//! Time is passed in as [`UnixSeconds`]. What never happens here: no I/O, no clock, no panic whatever the headers.

pub mod announce;
mod date;
pub(crate) mod directives;
pub mod fields;
pub mod invalidate;
pub mod partial;
mod policy;
pub mod range;
mod request;
mod settings;
mod store;
#[cfg(test)]
mod suite;
pub mod validate;
pub mod vary;

pub use date::{format as format_date, parse as parse_date};
pub use policy::{Decision, Flags, OnError, Policy};
pub use request::{Asked, Class, asked, classify};
pub use settings::{Heuristic, PatternError, RefreshPattern, Rules, SetCookie};
pub use store::{Exchange, NotStored, judge, judge_post};

/// Seconds since 1970-01-01T00:00:00Z; negative before.
pub type UnixSeconds = i64;
