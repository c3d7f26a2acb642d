//! Page listeners of the file: what they become, and the sentence where they cannot be.

use std::time::Duration;

use nuthatch_pages::origin::Balance;

use super::{File, file_problem};
use crate::settings::{Address, Bytes, Protocol};

#[test]
fn a_file_gives_page_listeners_their_origins_and_manners() {
    let text = "[pool.pages]\nmemory = \"64MiB\"\n\
        [[listen]]\nhttp = \"127.0.0.1:8080\"\norigin = \"site\"\n\
        [listen.pages]\nanonymous = [\"mediawiki\"]\ngrace = \"1m\"\npage_max = \"2MiB\"\n\
        [[listen]]\nhttp = \"127.0.0.1:8081\"\norigin = [\"http://a\", \"http://b:81\"]\n\
        [[listen]]\nhtcp = \"127.0.0.1\"\n\
        [origin.site]\nservers = \"http://10.0.0.2:8000\"\nbalance = \"hash\"\nfirst_byte_timeout = 7\n";
    let settings = File::new("pages", text).load(&[]);
    let [first, second, htcp] = &settings.listeners[..] else { panic!("{:?}", settings.listeners) };
    let http = first.http.as_ref().expect("pages");
    assert_eq!((first.protocol, http.origin.name.as_str()), (Protocol::Http, "site"));
    assert_eq!((http.origin.balance, http.origin.first_byte_timeout), (Balance::Hash, Duration::from_secs(7)));
    assert!(http.pages.anonymous_only);
    assert_eq!((http.pages.grace_seconds, http.pages.page_bytes_max), (60, 2 << 20));
    let servers = &second.http.as_ref().expect("pages").origin.servers;
    assert_eq!(servers.iter().map(ToString::to_string).collect::<Vec<_>>(), ["http://a", "http://b:81"]);
    assert_eq!(htcp.protocol, Protocol::Htcp);
    assert_eq!(htcp.address, Address::Udp("127.0.0.1:4827".parse().expect("an address")));
    let bytes = settings.pools[0].item_bytes_max as u64;
    assert_eq!(bytes, (8 << 20) + (64 << 10), "{}", Bytes(bytes));
}

#[test]
fn what_does_not_go_together_is_one_sentence() {
    for (name, text, sentence) in [
        (
            "no-origin",
            "[[listen]]\nhttp = \"127.0.0.1:0\"\n",
            "n.toml:1: listen: expected http://HOST:PORT or https://HOST:PORT, a list of such, or the name of an [origin.NAME] as origin",
        ),
        (
            "unnamed",
            "[[listen]]\nhttp = \"127.0.0.1:0\"\norigin = \"site\"\n",
            "n.toml:1: listen.origin: expected http://HOST:PORT or https://HOST:PORT, a list of such, or the name of an [origin.NAME] (none is there), not \"site\"",
        ),
        (
            "tls-origin",
            "[[listen]]\nhttp = \"127.0.0.1:0\"\norigin = \"ftp://a\"\n",
            "n.toml:1: listen.origin: expected http://HOST:PORT or https://HOST:PORT, a list of such, or the name of an [origin.NAME], not [\"ftp://a\"]",
        ),
        (
            "two",
            "[[listen]]\nhttp = \"127.0.0.1:0\"\nmemcached = \"127.0.0.1:0\"\norigin = \"http://a\"\n",
            "n.toml:1: listen: expected one of the keys memcached, http and htcp with an address, such as \"127.0.0.1:11211\"",
        ),
        (
            "memcached-origin",
            "[[listen]]\nmemcached = \"127.0.0.1:0\"\norigin = \"http://a\"\n",
            "n.toml:1: listen.origin: expected only with http, not with memcached",
        ),
        (
            "htcp-origin",
            "[[listen]]\nhtcp = \"127.0.0.1:0\"\norigin = \"http://a\"\n",
            "n.toml:1: listen.origin: expected only with http, not with htcp",
        ),
        (
            "http-protocol",
            "[[listen]]\nhttp = \"127.0.0.1:0\"\nprotocol = \"ascii\"\norigin = \"http://a\"\n",
            "n.toml:1: listen.protocol: expected only with memcached, not with http",
        ),
        (
            "no-servers",
            "[origin.a]\nbalance = \"hash\"\n",
            "n.toml:1: origin.a: expected the key servers with addresses of web servers",
        ),
        (
            "tls-keys",
            "[origin.a]\nservers = \"http://a\"\ntls_ca = \"ca.pem\"\n",
            "n.toml:1: origin.a: expected a server at an https:// address, for which alone keys that begin with tls_ are",
        ),
        (
            "tls-key",
            "[origin.a]\nservers = \"https://a\"\ntls_key = \"a.key\"\n",
            "n.toml:1: origin.a: expected the key tls_certificate with tls_key",
        ),
        (
            "tls-nothing-to-check",
            "[origin.a]\nservers = \"https://a\"\ntls_ca = \"ca.pem\"\ntls_without_verification = true\n",
            "n.toml:1: origin.a: expected tls_ca or tls_without_verification, which leaves nothing to check by it",
        ),
        (
            "tls-name",
            "[origin.a]\nservers = \"https://a\"\ntls_server_name = \"a b\"\n",
            "n.toml:3: origin.a.tls_server_name: expected the name of a host, not \"a b\"",
        ),
        (
            "origin-name",
            "[origin.\"a b\"]\nservers = \"http://a\"\n",
            "n.toml:1: origin.a b: expected a name of 1 to 64 letters, digits, - and _",
        ),
        (
            "number",
            "[[listen]]\nhttp = \"127.0.0.1:0\"\norigin = [8000]\n",
            "n.toml:3: listen.origin: expected http://HOST:PORT or https://HOST:PORT, or the name of an [origin.NAME] alone, not 8000",
        ),
    ] {
        assert_eq!(file_problem(name, text), sentence);
    }
}
