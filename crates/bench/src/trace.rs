//! Recorded sequences of requests, read whole into memory.
//!
//! | file | format |
//! |---|---|
//! | `*.csv` | a request in each line: `key,size` or `key,size,ttl`; a first line whose size is no number is a heading |
//! | anything else | little-endian `u32` pairs: key id, value size in bytes; keys are called `obj:%012d` |
//!
//! Either may be compressed with zstd; what the file begins with tells.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use crate::failure::Failure;
use crate::keys::Names;

/// What a zstd frame begins with (RFC 8878, section 3.1.1).
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const KEY_BYTES_MAX: usize = nuthatch_proto::KEY_BYTES_MAX;

/// A request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// Which key, counted from 0 in the order of first appearance.
    pub(crate) id: u32,
    /// Length of the value that a miss is answered with.
    pub(crate) value_bytes: u32,
    /// Its lifetime in seconds, if the trace says one; 0 for ever.
    pub(crate) ttl_seconds: Option<u32>,
}

/// A sequence of requests and the names of the keys in it.
#[derive(Debug)]
pub(crate) struct Trace {
    pub(crate) requests: Vec<Request>,
    pub(crate) names: Names,
    /// How many keys there are.
    pub(crate) keys: u32,
    pub(crate) value_bytes_max: u32,
}

impl Trace {
    /// Reads a file.
    pub(crate) fn read(path: &Path) -> Result<Trace, Failure> {
        let shown = path.display();
        let failed = |problem: String| Failure::run(format!("bench: {shown}: {problem}"));
        let mut bytes = fs::read(path).map_err(|error| failed(format!("expected to read a trace: {error}")))?;
        if bytes.starts_with(&ZSTD_MAGIC) {
            let damaged = |error: String| failed(format!("expected a file compressed with zstd: {error}"));
            bytes = zstd::stream::decode_all(&bytes[..]).map_err(|error| damaged(error.to_string()))?;
        }
        let trace =
            if plain_name(path).ends_with(".csv") { Trace::from_csv(&bytes) } else { Trace::from_pairs(&bytes) };
        trace.map_err(failed)
    }

    /// Whether a file's name says that it is a trace.
    pub(crate) fn is_named_like_one(path: &Path) -> bool {
        let name = plain_name(path);
        name.ends_with(".csv") || name.ends_with(".bin")
    }

    /// Length of each key.
    pub(crate) fn key_sizes(&self) -> Vec<u32> {
        match &self.names {
            Names::Listed { ends, .. } => {
                ends.iter().scan(0, |start, &end| Some(end - std::mem::replace(start, end))).collect()
            }
            Names::Numbered { .. } => Vec::new(),
        }
    }

    /// Length of each key's value, where it first appears.
    pub(crate) fn value_sizes(&self) -> Vec<u32> {
        let mut sizes = Vec::with_capacity(self.keys as usize);
        for request in &self.requests {
            if request.id as usize == sizes.len() {
                sizes.push(request.value_bytes);
            }
        }
        sizes
    }

    fn from_pairs(bytes: &[u8]) -> Result<Trace, String> {
        let (pairs, rest) = bytes.as_chunks::<8>();
        if !rest.is_empty() || pairs.is_empty() {
            return Err(format!("expected pairs of 4-byte numbers, it has {} bytes", bytes.len()));
        }
        let mut builder = Builder::default();
        for pair in pairs {
            let (id, size) = pair.split_at(4);
            let number = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("half of eight bytes"));
            builder.push(format!("obj:{:012}", number(id)).as_bytes(), number(size), None);
        }
        Ok(builder.finish())
    }

    fn from_csv(bytes: &[u8]) -> Result<Trace, String> {
        let mut builder = Builder::default();
        for (index, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() {
                continue;
            }
            let (number, problem) = (index + 1, |what: &str| Err(format!("line {}: {what}", index + 1)));
            let mut fields = line.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
            let name = fields.next().unwrap_or_default();
            let size = fields.next().and_then(parse);
            let ttl = fields.next();
            let Some(size) = size else {
                if number == 1 {
                    continue;
                }
                return problem("expected key,size or key,size,ttl");
            };
            if name.is_empty() || name.len() > KEY_BYTES_MAX || name.iter().any(|&byte| byte <= b' ' || byte == 0x7f) {
                return problem("expected a key of 1 to 250 bytes without spaces and control characters");
            }
            let ttl_seconds = match ttl {
                None | Some(b"") => None,
                Some(text) => match parse(text) {
                    Some(ttl) => Some(ttl),
                    None => return problem("expected the lifetime as a number of seconds"),
                },
            };
            builder.push(name, size, ttl_seconds);
        }
        if builder.requests.is_empty() { Err("expected at least one request".to_owned()) } else { Ok(builder.finish()) }
    }
}

/// The name without what says that it is compressed.
fn plain_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().trim_end_matches(".zst").to_owned()
}

fn parse(text: &[u8]) -> Option<u32> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[derive(Default)]
struct Builder {
    ids: HashMap<Box<[u8]>, u32>,
    bytes: Vec<u8>,
    ends: Vec<u32>,
    requests: Vec<Request>,
    value_bytes_max: u32,
}

impl Builder {
    fn push(&mut self, name: &[u8], value_bytes: u32, ttl_seconds: Option<u32>) {
        let id = match self.ids.get(name) {
            Some(&id) => id,
            None => {
                let id = self.ends.len() as u32;
                self.bytes.extend_from_slice(name);
                self.ends.push(self.bytes.len() as u32);
                self.ids.insert(name.into(), id);
                id
            }
        };
        self.value_bytes_max = self.value_bytes_max.max(value_bytes);
        self.requests.push(Request { id, value_bytes, ttl_seconds });
    }

    fn finish(self) -> Trace {
        Trace {
            keys: self.ends.len() as u32,
            requests: self.requests,
            names: Names::Listed { bytes: self.bytes, ends: self.ends },
            value_bytes_max: self.value_bytes_max,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(trace: &Trace) -> Vec<String> {
        let Names::Listed { bytes, ends } = &trace.names else { panic!("traces list their names") };
        let mut start = 0;
        let name = |&end: &u32| {
            let name = String::from_utf8(bytes[start..end as usize].to_vec()).unwrap();
            start = end as usize;
            name
        };
        ends.iter().map(name).collect()
    }

    /// A zstd frame of one raw block (RFC 8878, sections 3.1.1 and 3.1.1.2), so that no compressor is needed.
    fn zstd(content: &[u8]) -> Vec<u8> {
        let mut frame = ZSTD_MAGIC.to_vec();
        frame.push(0x20); // single segment, one byte of content size
        frame.push(content.len() as u8);
        let header = (content.len() as u32) << 3 | 1; // raw, last
        frame.extend_from_slice(&header.to_le_bytes()[..3]);
        frame.extend_from_slice(content);
        frame
    }

    fn read(name: &str, content: &[u8]) -> Result<Trace, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        fs::write(&path, content).unwrap();
        let shown = format!("bench: {}: ", path.display());
        Trace::read(&path).map_err(|failure| failure.to_string().replace(&shown, ""))
    }

    #[test]
    fn pairs_are_read_plain_and_compressed() {
        let pairs: Vec<u8> = [7u32, 100, 9, 200, 7, 100].iter().flat_map(|number| number.to_le_bytes()).collect();
        for content in [pairs.clone(), zstd(&pairs)] {
            let trace = read("trace.bin", &content).unwrap();
            assert_eq!(names(&trace), ["obj:000000000007", "obj:000000000009"]);
            let seen: Vec<_> = trace.requests.iter().map(|request| (request.id, request.value_bytes)).collect();
            assert_eq!(seen, [(0, 100), (1, 200), (0, 100)]);
            assert_eq!((trace.keys, trace.value_bytes_max), (2, 200));
        }
        assert_eq!(read("t", &pairs[..13]).unwrap_err(), "expected pairs of 4-byte numbers, it has 13 bytes");
        assert!(read("t", &zstd(&pairs)[..20]).unwrap_err().starts_with("expected a file compressed with zstd: "));
    }

    #[test]
    fn lines_are_read_with_and_without_lifetimes_and_heading() {
        let trace = read("t.csv", b"key,size,ttl\na,10\r\n b , 20 , 60\n\na,30,\n").unwrap();
        assert_eq!(names(&trace), ["a", "b"]);
        let expected = [(0, 10, None), (1, 20, Some(60)), (0, 30, None)]
            .map(|(id, value_bytes, ttl_seconds)| Request { id, value_bytes, ttl_seconds });
        assert_eq!(trace.requests, expected);
        assert_eq!(read("t.csv.zst", &zstd(b"a,1\nb,2")).unwrap().keys, 2);
        for (content, sentence) in [
            ("a,1\nb", "line 2: expected key,size or key,size,ttl"),
            ("a b,1", "line 1: expected a key of 1 to 250 bytes without spaces and control characters"),
            ("a,1,x", "line 1: expected the lifetime as a number of seconds"),
            ("key,size\n", "expected at least one request"),
        ] {
            assert_eq!(read("t.csv", content.as_bytes()).unwrap_err(), sentence);
        }
    }
}
