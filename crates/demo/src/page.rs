//! A page of the wiki: from its title's place in a URL to its HTML. Pure functions.

use std::fmt::Write as _;

/// Longest title, in bytes.
const TITLE_BYTES_MAX: usize = 200;

/// The title that the last part of a path names: `%XX` decoded, `_` for a space. None when it is none.
pub(crate) fn title_of(part: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.as_bytes();
    while let [byte, after @ ..] = rest {
        rest = after;
        bytes.push(match byte {
            b'_' => b' ',
            b'%' => {
                let digits = std::str::from_utf8(after.get(..2)?).ok()?;
                rest = &after[2..];
                u8::from_str_radix(digits, 16).ok()?
            }
            byte => *byte,
        });
    }
    let title = String::from_utf8(bytes).ok()?;
    let is_right = !title.is_empty()
        && title.len() <= TITLE_BYTES_MAX
        && !title.contains(|c: char| c.is_control() || "[]/?#".contains(c));
    is_right.then_some(title)
}

/// The path of the page of this title.
pub(crate) fn path_of(title: &str) -> String {
    let mut path = String::from("/wiki/");
    for byte in title.bytes() {
        match byte {
            b' ' => path.push('_'),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'~' => path.push(char::from(byte)),
            byte => {
                let _ = write!(path, "%{byte:02X}");
            }
        }
    }
    path
}

/// The page as a browser shows it. `number` is how many pages were made by now.
pub(crate) fn html(title: &str, text: &str, number: u64) -> String {
    let mut body = String::new();
    for paragraph in text.split("\n\n").filter(|paragraph| !paragraph.trim().is_empty()) {
        body.push_str("<p>");
        push_linked(&mut body, paragraph);
        body.push_str("</p>\n");
    }
    frame(title, &format!("{body}<footer>Page number {number} that the wiki made.</footer>\n"))
}

/// What is shown in the place of a page that is not there.
pub(crate) fn missing(title: &str) -> String {
    frame(title, "<p>Nobody has written this page yet.</p>\n")
}

fn frame(title: &str, body: &str) -> String {
    let title = escaped(title);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>{title}</title></head>\n<body>\n<h1>{title}</h1>\n{body}</body>\n</html>\n"
    )
}

/// Text in which `[[Title]]` is a link.
fn push_linked(out: &mut String, text: &str) {
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("[[") {
        let Some((title, after)) = after.split_once("]]") else { break };
        out.push_str(&escaped(before));
        let _ = write!(out, "<a href=\"{}\">{}</a>", path_of(title), escaped(title));
        rest = after;
    }
    out.push_str(&escaped(rest));
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_survive_their_way_through_a_url() {
        for title in ["Nuthatch", "How this works", "Zürich & more", "100%"] {
            assert_eq!(title_of(path_of(title).strip_prefix("/wiki/").expect("a path")).as_deref(), Some(title));
        }
        for wrong in ["", "%", "%2", "%zz", "%ff", "a/b", "%00", &"x".repeat(201)] {
            assert_eq!(title_of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_somebody_wrote_is_text_and_nothing_else() {
        let page = html("<T>", "a <script> & [[Other page]] [[open", 7);
        assert!(page.contains("<h1>&lt;T&gt;</h1>"), "{page}");
        assert!(
            page.contains("<p>a &lt;script&gt; &amp; <a href=\"/wiki/Other_page\">Other page</a> [[open</p>"),
            "{page}"
        );
    }
}
