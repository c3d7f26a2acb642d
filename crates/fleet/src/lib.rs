//! Many memcached servers as one: where a key lives (`placement`), who belongs to the fleet (`membership`), and the
//! connections, deadlines and failures on the way there (`client`). Knows the wire formats by `nuthatch-proto`, and no store.
#![forbid(unsafe_code)]

pub mod aside;
pub mod client;
pub mod compress;
pub mod membership;
pub mod placement;
mod settings;

pub use placement::{Distribution, Hash, Placement, ServerSpec};
pub use settings::{Compression, FleetSettings, OnFailure, PlacementSettings, Protocol};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
