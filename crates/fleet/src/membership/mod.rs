//! Who belongs to a fleet: the servers of the file, and those that a name server or etcd names.

mod source;

pub use source::{Source, sources_are_fixed};
