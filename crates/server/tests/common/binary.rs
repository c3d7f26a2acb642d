//! Binary requests and answers, spelled out byte by byte so that the server's codec is not tested with itself.

/// A request frame.
pub(crate) struct Frame {
    pub(crate) opcode: u8,
    pub(crate) extras: Vec<u8>,
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
    pub(crate) opaque: u32,
    pub(crate) cas: u64,
}

/// A request of `opcode` about `key`.
pub(crate) fn frame(opcode: u8, key: &str) -> Frame {
    Frame { opcode, extras: Vec::new(), key: key.as_bytes().to_vec(), value: Vec::new(), opaque: 0xdead_beef, cas: 0 }
}

impl Frame {
    pub(crate) fn extras(mut self, extras: impl AsRef<[u8]>) -> Frame {
        self.extras = extras.as_ref().to_vec();
        self
    }

    pub(crate) fn value(mut self, value: impl AsRef<[u8]>) -> Frame {
        self.value = value.as_ref().to_vec();
        self
    }

    pub(crate) fn cas(mut self, cas: u64) -> Frame {
        self.cas = cas;
        self
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let body = self.extras.len() + self.key.len() + self.value.len();
        let mut bytes = vec![0x80, self.opcode];
        bytes.extend((self.key.len() as u16).to_be_bytes());
        bytes.extend([self.extras.len() as u8, 0, 0, 0]);
        bytes.extend((body as u32).to_be_bytes());
        bytes.extend(self.opaque.to_be_bytes());
        bytes.extend(self.cas.to_be_bytes());
        bytes.extend(&self.extras);
        bytes.extend(&self.key);
        bytes.extend(&self.value);
        bytes
    }
}

/// An answer frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) opcode: u8,
    pub(crate) status: u16,
    pub(crate) opaque: u32,
    pub(crate) cas: u64,
    pub(crate) extras: Vec<u8>,
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

impl Answer {
    /// The value as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.value.clone()).expect("text")
    }
}

impl super::Client {
    /// Sends a frame and reads one answer.
    #[track_caller]
    pub(crate) fn call(&mut self, frame: &Frame) -> Answer {
        self.send(frame.bytes());
        self.answer()
    }

    /// Reads one answer.
    #[track_caller]
    pub(crate) fn answer(&mut self) -> Answer {
        let header = self.take(24);
        assert_eq!(header[0], 0x81, "an answer's magic byte");
        let extras_bytes = usize::from(header[4]);
        let key_bytes = usize::from(u16::from_be_bytes([header[2], header[3]]));
        let body = self.take(u32::from_be_bytes([header[8], header[9], header[10], header[11]]) as usize);
        let (extras, rest) = body.split_at(extras_bytes);
        let (key, value) = rest.split_at(key_bytes);
        Answer {
            opcode: header[1],
            status: u16::from_be_bytes([header[6], header[7]]),
            opaque: u32::from_be_bytes([header[12], header[13], header[14], header[15]]),
            cas: u64::from_be_bytes(header[16..24].try_into().expect("8 bytes")),
            extras: extras.to_vec(),
            key: key.to_vec(),
            value: value.to_vec(),
        }
    }
}
