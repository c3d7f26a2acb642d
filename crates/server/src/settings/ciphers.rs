//! Cipher suites by the names that operators know: OpenSSL's, in a list as `ssl_ciphers` has it.
//!
//! rustls offers nine suites, all of them forward secret and authenticated. A list chooses among these and puts them in
//! order; a word that chooses none is passed over, as OpenSSL does, and said.

use rustls::CipherSuite;

/// A list as it was given, and what it comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ciphers {
    /// As an operator wrote it.
    pub given: String,
    /// The suites it chooses, best first; never empty.
    pub suites: Vec<CipherSuite>,
    /// Words of it that choose nothing here.
    pub passed_over: Vec<String>,
}

/// What a list is, to end the sentence "expected …".
pub(super) const EXPECTED: &str = "a list in which OpenSSL's name of a suite that is offered here stands, such as ECDHE-RSA-AES256-GCM-SHA384, or HIGH";

/// A suite, OpenSSL's name for it, and the words that choose it among others.
struct Row {
    name: &'static str,
    suite: CipherSuite,
    words: &'static [&'static str],
}

const fn row(name: &'static str, suite: CipherSuite, words: &'static [&'static str]) -> Row {
    Row { name, suite, words }
}

/// Those of TLS 1.2. Words that stand for all of them are in [`ALL`].
const TLS12: &[Row] = &[
    row(
        "ECDHE-ECDSA-AES256-GCM-SHA384",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        &["ECDSA", "aECDSA", "AES", "AES256", "AESGCM"],
    ),
    row(
        "ECDHE-RSA-AES256-GCM-SHA384",
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        &["RSA", "aRSA", "AES", "AES256", "AESGCM"],
    ),
    row(
        "ECDHE-ECDSA-CHACHA20-POLY1305",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        &["ECDSA", "aECDSA", "CHACHA20"],
    ),
    row(
        "ECDHE-RSA-CHACHA20-POLY1305",
        CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
        &["RSA", "aRSA", "CHACHA20"],
    ),
    row(
        "ECDHE-ECDSA-AES128-GCM-SHA256",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        &["ECDSA", "aECDSA", "AES", "AES128", "AESGCM"],
    ),
    row(
        "ECDHE-RSA-AES128-GCM-SHA256",
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        &["RSA", "aRSA", "AES", "AES128", "AESGCM"],
    ),
];

const ALL: &[&str] = &["ALL", "DEFAULT", "HIGH", "TLSv1.2", "ECDHE", "EECDH", "kECDHE", "kEECDH"];

/// Those of TLS 1.3: OpenSSL's lists do not touch them, so that all are offered unless some are named.
const TLS13: &[Row] = &[
    row("TLS_AES_256_GCM_SHA384", CipherSuite::TLS13_AES_256_GCM_SHA384, &[]),
    row("TLS_CHACHA20_POLY1305_SHA256", CipherSuite::TLS13_CHACHA20_POLY1305_SHA256, &[]),
    row("TLS_AES_128_GCM_SHA256", CipherSuite::TLS13_AES_128_GCM_SHA256, &[]),
];

impl Row {
    /// Whether `word` chooses it: its name, or words joined by `+` that all hold.
    fn is_chosen_by(&self, word: &str) -> bool {
        let holds = |part| self.words.contains(&part) || (!self.words.is_empty() && ALL.contains(&part));
        word == self.name || word.split('+').all(holds)
    }
}

/// Reads a list of words separated by colons, commas or blanks: names of suites and groups of them, `!` or `-` before
/// what is not wanted, `+` before what is to stand last. `None` when no suite is left.
pub(super) fn parse(list: &str) -> Option<Ciphers> {
    let mut chosen: Vec<&Row> = Vec::new();
    let mut banned: Vec<CipherSuite> = Vec::new();
    let mut passed_over = Vec::new();
    for word in list.split([':', ',', ' ']).filter(|word| !word.is_empty()) {
        let (sign, name) = match word.as_bytes()[0] {
            sign @ (b'!' | b'-' | b'+') => (sign, &word[1..]),
            _ => (b' ', word),
        };
        let is_meant = |row: &&Row| row.is_chosen_by(name);
        match sign {
            b'!' => {
                banned.extend(TLS13.iter().chain(TLS12).filter(is_meant).map(|row| row.suite));
                chosen.retain(|row| !is_meant(row));
            }
            b'-' => chosen.retain(|row| !is_meant(row)),
            b'+' => chosen.sort_by_key(|row| is_meant(row)),
            _ => {
                let before = chosen.len();
                for row in TLS13.iter().chain(TLS12).filter(is_meant) {
                    if !chosen.iter().any(|other| other.suite == row.suite) {
                        chosen.push(row);
                    }
                }
                if chosen.len() == before && !chosen.iter().any(is_meant) {
                    passed_over.push(word.to_owned());
                }
            }
        }
    }
    chosen.retain(|row| !banned.contains(&row.suite));
    if chosen.is_empty() {
        return None;
    }
    if !chosen.iter().any(|row| row.words.is_empty()) {
        chosen.splice(..0, TLS13.iter().filter(|row| !banned.contains(&row.suite)));
    }
    Some(Ciphers { given: list.to_owned(), suites: chosen.iter().map(|row| row.suite).collect(), passed_over })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &str) -> Vec<&'static str> {
        let suites = parse(list).map_or_else(Vec::new, |ciphers| ciphers.suites);
        let name = |suite: &CipherSuite| TLS13.iter().chain(TLS12).find(|row| row.suite == *suite).map(|row| row.name);
        suites.iter().filter_map(name).collect()
    }

    #[test]
    fn a_list_chooses_and_orders_what_is_offered() {
        let tls13 = ["TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256"];
        let with13 = |rest: &[&'static str]| [&tls13[..], rest].concat();
        let (rsa128, rsa256) = ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES256-GCM-SHA384");
        assert_eq!(names(rsa128), with13(&[rsa128]));
        assert_eq!(names(&format!("{rsa128}:{rsa256}")), with13(&[rsa128, rsa256]));
        assert_eq!(names(&format!("{rsa128},{rsa256} +AES128")), with13(&[rsa256, rsa128]));
        assert_eq!(names("HIGH:!aNULL:!MD5").len(), 9);
        assert_eq!(names("ECDHE+AESGCM:!ECDSA:-AES128"), with13(&[rsa256]));
        assert_eq!(names("AES256:!aECDSA:TLS_AES_128_GCM_SHA256"), [rsa256, "TLS_AES_128_GCM_SHA256"]);
        assert_eq!(names("!TLS_AES_128_GCM_SHA256:ALL").len(), 8);
    }

    #[test]
    fn what_is_not_offered_is_passed_over_and_a_list_of_nothing_else_refused() {
        let mixed = parse("ECDHE-RSA-AES256-SHA384:ECDHE-RSA-AES128-GCM-SHA256:@STRENGTH").expect("one is offered");
        assert_eq!(mixed.passed_over, ["ECDHE-RSA-AES256-SHA384", "@STRENGTH"]);
        assert_eq!(mixed.suites.len(), 4);
        for list in ["", ":", "AES256-SHA", "RC4-MD5:DES-CBC3-SHA", "HIGH:!ECDHE", "!HIGH:HIGH"] {
            assert_eq!(parse(list), None, "{list}");
        }
    }
}
