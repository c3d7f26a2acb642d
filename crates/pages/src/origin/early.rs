//! Early hints (RFC 8297) and other heads that an origin sends before its answer, on their way to whoever asked.

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

    /// The origin has sent a head that is not its answer: that it is at work (102), or hints. Anything else is between it
    /// and us.
    pub(super) fn tell(&self, status: StatusCode, headers: &HeaderMap) {
        let status_line: &[u8] = match status {
            StatusCode::PROCESSING => b"HTTP/1.1 102 Processing\r\n",
            StatusCode::EARLY_HINTS => b"HTTP/1.1 103 Early Hints\r\n",
            _ => return,
        };
        let mut headers = headers.clone();
        fields::strip_hop_by_hop(&mut headers);
        let mut head = status_line.to_vec();
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
