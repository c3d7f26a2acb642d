//! Patterns for the names of cookies and query parameters.

/// A name with `*` for any run of bytes, also none. Letters count by their case, as they do in cookies and queries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamePattern(String);

impl NamePattern {
    /// A pattern. Each text is one.
    #[must_use]
    pub fn new(pattern: impl Into<String>) -> Self {
        Self(pattern.into())
    }

    /// Whether the whole name is of this pattern. Takes at most as many steps as the product of both lengths.
    #[must_use]
    pub fn matches(&self, name: &[u8]) -> bool {
        let pattern = self.0.as_bytes();
        let (mut at, mut in_name) = (0, 0);
        // Where to go on when what follows the last star does not fit here: one byte later.
        let mut retry: Option<(usize, usize)> = None;
        while in_name < name.len() {
            if pattern.get(at) == Some(&b'*') {
                at += 1;
                retry = Some((at, in_name));
            } else if pattern.get(at) == Some(&name[in_name]) {
                at += 1;
                in_name += 1;
            } else if let Some((after_star, from)) = retry {
                (at, in_name) = (after_star, from + 1);
                retry = Some((after_star, from + 1));
            } else {
                return false;
            }
        }
        pattern[at..].iter().all(|&byte| byte == b'*')
    }
}

#[cfg(test)]
mod tests {
    use super::NamePattern;

    #[test]
    fn a_star_stands_for_any_run_of_bytes() {
        for (pattern, name, matches) in [
            ("SESS*", "SESSabc", true),
            ("SESS*", "SESS", true),
            ("SESS*", "sessabc", false),
            ("*_session", "wiki_session", true),
            ("*_session", "wiki_session2", false),
            ("*ab*ab", "abab", true),
            ("*ab*ab", "ab", false),
            ("a*b*c", "axxbyybzzc", true),
            ("a*b*c", "axxbyybzz", false),
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("fbclid", "fbclid", true),
            ("fbclid", "fbclid2", false),
        ] {
            assert_eq!(NamePattern::new(pattern).matches(name.as_bytes()), matches, "{pattern} {name}");
        }
    }
}
