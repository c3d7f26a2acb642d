//! Lists from etcd 3, by the JSON gateway of its API (`/v3/kv/range`, `/v3/watch`) over plain HTTP: each key below a prefix holds a
//! server, as the file writes one, and the order of the keys is the order of the servers.

use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use nuthatch_proto::{base64_decode, base64_encode};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{MembershipError, Source};
use crate::placement::{SERVERS_MAX, ServerSpec};

/// How long connecting and answering may take; a watch may be silent for longer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest answer that is read.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// A list, and when it was so.
pub(super) struct Found {
    pub(super) servers: Vec<ServerSpec>,
    /// etcd's revision.
    pub(super) revision: u64,
}

/// The servers below the prefix of `source`.
pub(super) async fn ask(source: &Source) -> Result<Found, MembershipError> {
    let failed = |reason: String| MembershipError::Unanswered(source.clone(), reason);
    let mut request = range(source);
    request["limit"] = json!(SERVERS_MAX + 1);
    let answer = timeout(PATIENCE, async {
        let response = post(source, "/v3/kv/range", &request).await?;
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await.map_err(|e| e.to_string())?;
        serde_json::from_slice::<Value>(&body.to_bytes()).map_err(|error| error.to_string())
    });
    let answer = answer.await.unwrap_or_else(|_| Err(format!("no answer in {PATIENCE:?}"))).map_err(failed)?;
    // A gateway writes numbers of 64 bits as strings.
    let revision = answer["header"]["revision"].as_str().and_then(|text| text.parse().ok());
    let revision = revision.ok_or_else(|| failed("the answer has no revision".to_owned()))?;
    let mut servers: Vec<ServerSpec> = Vec::new();
    for pair in answer["kvs"].as_array().unwrap_or(&Vec::new()) {
        let [key, value] = ["key", "value"].map(|part| text(&pair[part]));
        let (Some(key), Some(value)) = (key, value) else {
            return Err(failed("a key or value is no text".to_owned()));
        };
        let wrong = |expected: String| {
            MembershipError::Value(source.clone(), key.clone(), format!("{expected}, not {value:?}"))
        };
        let server = ServerSpec::parse(value.trim()).map_err(wrong)?;
        if servers.iter().any(|other| other.is_same_server(&server)) {
            return Err(wrong("each server once".to_owned()));
        }
        servers.push(server);
    }
    match servers.len() {
        0 => Err(MembershipError::Empty(source.clone())),
        count if count > SERVERS_MAX => Err(MembershipError::TooMany(count)),
        _ => Ok(Found { servers, revision }),
    }
}

/// Returns when something below the prefix changed after `revision`, or with an error when that can no longer be known.
pub(super) async fn changed(source: &Source, revision: u64) -> Result<(), String> {
    let mut create = range(source);
    create["start_revision"] = json!(revision + 1);
    let request = json!({ "create_request": create });
    let response =
        timeout(PATIENCE, post(source, "/v3/watch", &request)).await.map_err(|error| error.to_string())??;
    let mut body = response.into_body();
    let mut line = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| error.to_string())?;
        for byte in frame.data_ref().into_iter().flatten() {
            line.push(*byte);
            if *byte != b'\n' && line.len() < ANSWER_BYTES_MAX {
                continue;
            }
            // A line that cannot be read, or says that the watch is over, is a reason to ask again as well.
            let news: Value = serde_json::from_slice(&line).unwrap_or_default();
            if news["result"]["created"] != json!(true) || news["result"]["canceled"] == json!(true) {
                return Ok(());
            }
            line.clear();
        }
    }
    Err("etcd ended the watch".to_owned())
}

/// The part of a request that names the keys.
fn range(source: &Source) -> Value {
    let Source::Etcd { prefix, .. } = source else { return json!({}) };
    // Prefixes are text, in which no byte is 0xff: the keys end before the one whose last byte is the next.
    let mut end = prefix.clone().into_bytes();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    json!({ "key": encoded(prefix.as_bytes()), "range_end": encoded(&end) })
}

async fn post(source: &Source, path: &str, request: &Value) -> Result<Response<Incoming>, String> {
    let Source::Etcd { endpoint, .. } = source else { return Err("it is no etcd".to_owned()) };
    let authority = endpoint.trim_start_matches("http://");
    let stream = TcpStream::connect(authority).await.map_err(|error| error.to_string())?;
    let connected = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = connected.map_err(|error| error.to_string())?;
    // It ends with the body that is read from it.
    tokio::spawn(connection);
    let request = Request::post(path)
        .header("host", authority)
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(request.to_string())))
        .map_err(|error| error.to_string())?;
    let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
    match response.status() {
        StatusCode::OK => Ok(response),
        status => Err(format!("it answers {path} with {status}")),
    }
}

fn encoded(bytes: &[u8]) -> String {
    let mut out = Vec::new();
    base64_encode(&mut out, bytes);
    String::from_utf8_lossy(&out).into_owned()
}

/// Text in base64; a value that is left out is empty.
fn text(value: &Value) -> Option<String> {
    let encoded = value.as_str().unwrap_or_default();
    let mut buffer = vec![0; encoded.len()];
    let decoded = if encoded.is_empty() { &[] } else { base64_decode(encoded.as_bytes(), &mut buffer)? };
    String::from_utf8(decoded.to_vec()).ok()
}
