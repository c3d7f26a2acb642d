//! The head of a response that is being fetched, as everyone who follows the fetch sees it.

use http::{HeaderMap, HeaderName, StatusCode};

use crate::rules::Policy;

/// A response's head, ready to be sent and stored.
#[derive(Clone, Debug)]
pub(crate) struct Fetched {
    pub(crate) status: StatusCode,
    /// Without what belongs to the origin's connection.
    pub(crate) headers: HeaderMap,
    /// What may be done with it, if it may be stored.
    pub(crate) policy: Option<Policy>,
    /// The request fields that it varies with, and what those of the request that fetched it were.
    pub(crate) varies: Vec<HeaderName>,
    pub(crate) variant: Vec<u8>,
    /// What else it can be forgotten by ([`super::tags`]).
    pub(crate) tags: Vec<Vec<u8>>,
    /// Bytes of the body, where the origin says so.
    pub(crate) bytes: Option<u64>,
}

#[cfg(test)]
impl Fetched {
    pub(crate) fn for_tests() -> Fetched {
        Fetched {
            status: StatusCode::OK,
            headers: HeaderMap::new(),
            policy: None,
            varies: Vec::new(),
            variant: Vec::new(),
            tags: Vec::new(),
            bytes: None,
        }
    }
}
