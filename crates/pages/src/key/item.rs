//! Item keys: `page:` and a URL's form; a hash where that is too long for the memcached protocols.

use super::url::PageUrl;
use sha2::{Digest, Sha256};

/// What every page's item key begins with.
pub const ITEM_PREFIX: &str = "page:";

/// The longest item key in bytes that the memcached protocols carry.
pub const KEY_BYTES_MAX: usize = 250;

/// A variant's key is so many bytes longer than its page's: `#` and 32 hexadecimal digits.
pub const VARIANT_BYTES: usize = 33;

/// The item key of a page: `page:` and its form, or `page:sha256:` and the 64 lower-case hexadecimal digits of the form's
/// SHA-256 when the key of a variant would otherwise be longer than [`KEY_BYTES_MAX`]. Any program with SHA-256 can make
/// it: `printf %s "$form" | sha256sum`.
#[must_use]
pub fn item_key(url: &PageUrl) -> String {
    let form = url.form();
    if ITEM_PREFIX.len() + form.len() + VARIANT_BYTES <= KEY_BYTES_MAX {
        return format!("{ITEM_PREFIX}{form}");
    }
    let mut key = format!("{ITEM_PREFIX}sha256:");
    push_hex(&mut key, &Sha256::digest(form.as_bytes()));
    key
}

/// The item key of a variant: its page's, `#`, and the first 32 hexadecimal digits of the SHA-256 of its secondary key
/// ([`crate::rules::vary::variant`]). A form has no `#`, so it is nobody else's.
#[must_use]
pub fn variant_key(page_key: &str, secondary: &[u8]) -> String {
    let mut key = String::with_capacity(page_key.len() + VARIANT_BYTES);
    key.push_str(page_key);
    key.push('#');
    push_hex(&mut key, &Sha256::digest(secondary)[..16]);
    key
}

pub(crate) fn push_hex(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from(b"0123456789abcdef"[usize::from(digit)]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{KEY_BYTES_MAX, VARIANT_BYTES, item_key, variant_key};
    use crate::key::{PageUrl, UrlRules};

    fn url(target: &str) -> PageUrl {
        PageUrl::new("http", b"a.test", target.as_bytes(), &UrlRules::default()).expect("a URL")
    }

    #[test]
    fn a_key_is_the_form_until_it_is_too_long() {
        assert_eq!(item_key(&url("/b?c")), "page:http://a.test/b?c");
        let longest = KEY_BYTES_MAX - VARIANT_BYTES - "page:http://a.test/".len();
        let key = item_key(&url(&format!("/{}", "b".repeat(longest))));
        assert_eq!(key.len() + VARIANT_BYTES, KEY_BYTES_MAX);
        assert!(key.starts_with("page:http://a.test/bbb"));
        let hashed = item_key(&url(&format!("/{}", "b".repeat(longest + 1))));
        assert_eq!(hashed.len(), "page:sha256:".len() + 64);
        assert!(hashed.starts_with("page:sha256:"));
    }

    #[test]
    fn the_hash_is_the_one_that_sha256sum_prints() {
        // printf 'http://a.test/%0300d' 0 | sha256sum
        let key = item_key(&url(&format!("/{}", "0".repeat(300))));
        assert_eq!(key, "page:sha256:66776f2e2df90a42cc639a102fbe121e7c889520a1ed297e65afba32fff7ce33");
        // printf '' | sha256sum | cut -c1-32
        assert_eq!(variant_key("page:x", b""), "page:x#e3b0c44298fc1c149afbf4c8996fb924");
    }
}
