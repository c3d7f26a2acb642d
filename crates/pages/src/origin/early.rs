//! Early hints (RFC 8297): heads that an origin sends before its answer, on their way to whoever asked.

use std::sync::Arc;

use http::{HeaderMap, StatusCode};

use crate::rules::fields;

/// Goes with a request's extensions to the origin's connection.
#[derive(Clone)]
pub(crate) struct Early(Arc<Send103>);

/// What takes a head to the client.
type Send103 = dyn Fn(&[u8]) + Send + Sync;

impl Early {
    /// `send` is given each head in HTTP/1.1's form.
    pub(crate) fn new(send: impl Fn(&[u8]) + Send + Sync + 'static) -> Early {
        Early(Arc::new(send))
    }

    /// The origin has sent a head that is not its answer. What is not a hint is between it and us.
    pub(super) fn tell(&self, status: StatusCode, headers: &HeaderMap) {
        if status != StatusCode::EARLY_HINTS {
            return;
        }
        let mut headers = headers.clone();
        fields::strip_hop_by_hop(&mut headers);
        let mut head = b"HTTP/1.1 103 Early Hints\r\n".to_vec();
        for (name, value) in &headers {
            head.extend_from_slice(name.as_str().as_bytes());
            head.extend_from_slice(b": ");
            head.extend_from_slice(value.as_bytes());
            head.extend_from_slice(b"\r\n");
        }
        head.extend_from_slice(b"\r\n");
        (self.0)(&head);
    }
}
