//! Comparing: what a server answered with what the model did, and what each version of an item is called.
//!
//! A failure is told with the seed, the last things said and what the model holds. Nothing is sent from here.

use std::fmt::Write as _;

use super::{Conversation, Part};
use crate::model::Version;
use crate::wire::quoted;

impl Conversation<'_> {
    pub(super) fn expect(&mut self, is_binary: bool, chosen: usize, part: &Part) {
        let connection = if is_binary { &mut self.binary[chosen] } else { &mut self.text[chosen] };
        match part {
            Part::Bytes(expected) => match connection.try_exactly(expected.len()) {
                Ok(got) if got == *expected => {}
                Ok(got) => self.fail(&format!("expected {} and got {}", quoted(expected), quoted(&got))),
                Err(why) => self.fail(&format!("expected {} and {why}", quoted(expected))),
            },
            Part::Unique(version) => match connection.try_number() {
                Ok(number) => self.learn(*version, number, "a line"),
                Err(why) => self.fail(&format!("expected a unique and {why}")),
            },
            Part::Frame(expected, version) => {
                let mut got = match connection.try_frame() {
                    Ok(got) => got,
                    Err(why) => self.fail(&format!("expected {expected:?} and {why}")),
                };
                if let Some(version) = version {
                    let cas = std::mem::take(&mut got.cas);
                    self.learn(*version, cas, &format!("{got:?}"));
                }
                if got != *expected {
                    self.fail(&format!("expected {expected:?} and got {got:?}"));
                }
            }
        }
    }

    /// A version is called by one number, and no two versions by the same, but those whose number the client chose.
    fn learn(&mut self, version: Version, number: u64, told_by: &str) {
        let known = self.own.get(&version).or_else(|| self.uniques.get(&version)).copied();
        match known {
            Some(known) if known != number => {
                self.fail(&format!(
                    "an item that was not written changed its unique from {known} to {number}, told by {told_by}"
                ));
            }
            Some(_) => {}
            None if number == 0 => self.fail(&format!("{version:?} has 0 for a unique, told by {told_by}")),
            None => {
                let other =
                    self.uniques.iter().find(|(_, other)| **other == number).filter(|_| !self.scope.has_servers);
                if let Some(other) = other {
                    self.fail(&format!(
                        "{version:?} has the unique {number} that {:?} had, told by {told_by}",
                        other.0
                    ));
                }
                self.uniques.insert(version, number);
            }
        }
    }

    pub(super) fn fail(&self, sentence: &str) -> ! {
        let mut told = String::new();
        for line in &self.history[self.history.len().saturating_sub(60)..] {
            writeln!(told, "  {line}").expect("a String takes all");
        }
        let holders = self
            .keys
            .iter()
            .filter_map(|key| Some((quoted(&key.bytes[..key.bytes.len().min(8)]), self.model.held(&key.bytes)?)));
        for (key, item) in holders {
            writeln!(told, "  model: {key} {:?} expiry {:?} {}", item.version, item.expiry, shortened(&item.value))
                .expect("a String takes all");
        }
        panic!("{}, {} commands: {sentence}\nsaid last:\n{told}", self.origin, self.said);
    }
}

/// Bytes as the report of a failure shows them: by their beginning, but a command's line whole.
pub(super) fn shortened(bytes: &[u8]) -> String {
    const SHOWN: usize = 110;
    let is_line = bytes.first().is_some_and(u8::is_ascii_lowercase);
    let line = bytes.iter().position(|byte| *byte == b'\n').filter(|_| is_line).map_or(0, |at| at + 1);
    let shown = bytes.len().min(line + SHOWN);
    if shown == bytes.len() { quoted(bytes) } else { format!("{} … {} bytes", quoted(&bytes[..shown]), bytes.len()) }
}
