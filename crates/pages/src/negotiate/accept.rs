//! `Accept-Encoding` (RFC 9110, 12.5.3).

use super::Coding;
use crate::rules::directives::Elements;
use http::header::ACCEPT_ENCODING;
use http::{HeaderMap, HeaderValue};

/// How much a client wants each coding, in thousandths; 0 is not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    weights: [u16; Coding::ALL.len()],
}

impl Accepted {
    /// What a request accepts. Without the field nothing but identity: by the RFC such a client takes anything, but those
    /// that leave it out are programs that undo nothing.
    #[must_use]
    pub fn of(request: &HeaderMap) -> Self {
        Self::of_lines(request.get_all(ACCEPT_ENCODING).iter().map(HeaderValue::as_bytes))
    }

    /// The same of the lines of `Accept-Encoding`.
    pub fn of_lines<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut weights = [None; Coding::ALL.len()];
        let mut others = None;
        for line in lines {
            for element in Elements::of(line) {
                let mut parts = element.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
                let name = parts.next().unwrap_or_default();
                let mut weight = Some(1000);
                for parameter in parts {
                    if let [b'q' | b'Q', b'=', value @ ..] = parameter {
                        weight = weight_of(value);
                    }
                }
                let Some(weight) = weight else { continue };
                if name == b"*" {
                    others = Some(weight);
                } else if let Some(coding) = Coding::named(name) {
                    weights[coding as usize] = Some(weight);
                }
            }
        }
        // Identity is acceptable unless it, or with `*` everything that is not named, is ruled out.
        let unnamed = |coding: Coding| match (coding, others) {
            (_, Some(weight)) => weight,
            (Coding::Identity, None) => 1,
            (_, None) => 0,
        };
        Self { weights: Coding::ALL.map(|coding| weights[coding as usize].unwrap_or_else(|| unnamed(coding))) }
    }

    /// In thousandths; 0 is not at all.
    #[must_use]
    pub fn weight(&self, coding: Coding) -> u16 {
        self.weights[coding as usize]
    }

    /// Whether it may be sent.
    #[must_use]
    pub fn takes(&self, coding: Coding) -> bool {
        self.weight(coding) > 0
    }
}

/// A weight of RFC 9110, 12.4.2, in thousandths.
fn weight_of(value: &[u8]) -> Option<u16> {
    let (whole, fraction) = match value {
        [whole] | [whole, b'.'] => (*whole, &[][..]),
        [whole, b'.', fraction @ ..] if fraction.len() <= 3 => (*whole, fraction),
        _ => return None,
    };
    if !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let thousandths =
        fraction.iter().fold(0, |sum, digit| sum * 10 + u16::from(digit - b'0')) * [1000, 100, 10, 1][fraction.len()];
    match whole {
        b'0' => Some(thousandths),
        b'1' if thousandths == 0 => Some(1000),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::Accepted;
    use crate::negotiate::Coding::{Brotli, Gzip, Identity, Zstd};
    use crate::testing::headers;

    #[test]
    fn weights_say_what_is_accepted() {
        for (lines, [identity, gzip, br, zstd]) in [
            (&[][..], [1, 0, 0, 0]),
            (&[""], [1, 0, 0, 0]),
            (&["gzip"], [1, 1000, 0, 0]),
            (&["gzip, deflate, br, zstd"], [1, 1000, 1000, 1000]),
            (&["X-GZIP;q=0.5"], [1, 500, 0, 0]),
            (&["gzip;q=0.123, br ; q=1.000 , zstd;q=0"], [1, 123, 1000, 0]),
            (&["gzip", "br;q=0.8"], [1, 1000, 800, 0]),
            (&["*"], [1000, 1000, 1000, 1000]),
            (&["*;q=0"], [0, 0, 0, 0]),
            (&["*;q=0, gzip"], [0, 1000, 0, 0]),
            (&["identity;q=0, gzip"], [0, 1000, 0, 0]),
            (&["identity, *;q=0"], [1000, 0, 0, 0]),
            (&["br;q=0, *"], [1000, 1000, 0, 1000]),
            // What is not understood is not taken for consent.
            (&["gzip;q=2, br;q=1.001, zstd;q=.5"], [1, 0, 0, 0]),
            (&["gzip;q=x, br;q=0.1234, zstd;q="], [1, 0, 0, 0]),
            (&["gzip;level=9, br;Q=0."], [1, 1000, 0, 0]),
        ] {
            let request = headers(&lines.iter().map(|&line| ("accept-encoding", line)).collect::<Vec<_>>());
            let accepted = Accepted::of(&request);
            assert_eq!(
                [Identity, Gzip, Brotli, Zstd].map(|coding| accepted.weight(coding)),
                [identity, gzip, br, zstd],
                "{lines:?}"
            );
        }
    }
}
