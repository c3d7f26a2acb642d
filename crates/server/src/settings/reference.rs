//! Prints the tables: help, the reference page, the sample configuration file.

use std::fmt::Write;

use super::flags::Group;
use super::knob::{Action, Effect, Knob, OnReload};
use super::{OWN_VERSION, VERSION, extended, flags, fleet, keys, pages, table};

/// Columns of a terminal that help is wrapped to.
const COLUMNS: usize = 100;
/// Where the text of a flag begins.
const INDENT: usize = 28;

/// `memcached -h`: the release on the first line, then every flag with an effect. Test suites and scripts look for words here to
/// learn what a server can do, so nothing that is not there is named.
pub fn help_memcached() -> String {
    let mut out = format!("memcached {VERSION} (Nuthatch {OWN_VERSION})\n");
    for knob in flags::all().filter(|knob| is_shown(knob) && knob.effect == Effect::Works) {
        flag(&mut out, knob);
    }
    out.push_str("\nOptions of -o:\n");
    for knob in extended::all().filter(|knob| is_shown(knob) && knob.effect == Effect::Works) {
        option(&mut out, knob);
    }
    let inert = flags::all()
        .filter(|knob| is_shown(knob) && knob.effect == Effect::Nothing)
        .map(|knob| format!("--{}", knob.name));
    let inert_options =
        extended::all().filter(|knob| is_shown(knob) && knob.effect != Effect::Works).map(|knob| knob.name.to_owned());
    list(&mut out, "Accepted, with nothing to act on", inert.chain(inert_options));
    out
}

/// `nuthatch serve --help`: every flag under its heading, and what is refused.
pub fn help_serve() -> String {
    let mut out = String::from(
        "Usage: nuthatch serve [--config FILE] [FLAGS]\n\nStarts the server. Without flags it is a memcached of 64 MiB on loopback, port 11211.\n\
         Flags are memcached's; `nuthatch help config` shows what a file may say.\n",
    );
    for group in flags::FLAGS {
        let _ = write!(out, "\n{}\n", group.title);
        for knob in group.knobs.iter().filter(|knob| knob.effect == Effect::Works) {
            flag(&mut out, knob);
        }
    }
    out.push_str("\nOptions of -o\n");
    for knob in extended::all().filter(|knob| knob.effect == Effect::Works) {
        option(&mut out, knob);
    }
    let of = |wanted: fn(Effect) -> bool| {
        let flags = flags::all().filter(move |knob| wanted(knob.effect)).map(|knob| format!("--{}", knob.name));
        flags.chain(extended::all().filter(move |knob| wanted(knob.effect)).map(|knob| knob.name.to_owned()))
    };
    list(
        &mut out,
        "Accepted, with nothing to act on (-v says why)",
        of(|e| matches!(e, Effect::Nothing | Effect::Unmet(_))),
    );
    list(&mut out, "Refused, with the reason", of(|e| matches!(e, Effect::Refused(_))));
    out
}

/// The reference page of flags, options and keys, in Markdown.
pub fn page() -> String {
    let mut out = String::from(
        "<!-- Written by a test from the tables in crates/server/src/settings; `UPDATE_REFERENCE=1 cargo test -p nuthatch-server` rewrites it. -->\n\
         # Settings\n\n\
         A server is set by memcached's flags, by a file (`nuthatch serve --config FILE`), or by both: flags override the file.\n\
         `nuthatch check FILE` says whether a file is right.\n\n\
         *Effect*: **works** does what memcached's does; **accepted** is checked, reported by `stats settings`, and has nothing to act\n\
         on here (said at `-v`); **unmet** likewise, but said always, because who asks for it wants protection; **refused** stops the\n\
         start, because going on would lose data or safety.\n\n\
         Sizes take `k`, `m`, `g` in any case, also as `KiB`, `MiB`, `GiB`, and are powers of 1024.\n\n\
         ## Flags\n\n\
         A value follows its flag as `-m1024`, `-m 1024`, `--memory-limit=1024` or `--memory-limit 1024`; flags without a value may be\n\
         joined, as `-vvM`.\n",
    );
    groups(&mut out, flags::FLAGS, |knob| match knob.short {
        Some(letter) => format!("`-{letter}`, `--{}`", knob.name),
        None => format!("`--{}`", knob.name),
    });
    out.push_str("\n## Options of `-o`\n\nSeveral are separated by commas: `-o idle_timeout=60,no_maxconns_fast`.\n");
    groups(&mut out, extended::EXTENDED, |knob| format!("`{}`", knob.name));
    out.push_str("\n## The file\n\nTOML. An unknown key, a bad size or a missing pool stops the start with a sentence naming file, line and key.\n");
    out.push_str(RELOAD);
    let _ = writeln!(out, "- These need a restart: {}.", at_restart().collect::<Vec<_>>().join(", "));
    file_section(&mut out, "`[server]`", keys::SERVER);
    file_section(&mut out, "`[pool.NAME]`", keys::POOL);
    file_section(&mut out, "`[fleet.NAME]`", fleet::KEYS);
    file_section(&mut out, "`[table.NAME]`", table::KEYS);
    file_section(&mut out, "`[[listen]]`", keys::LISTEN);
    file_section(&mut out, "`tls` of `[[listen]]`", keys::LISTEN_TLS);
    file_section(&mut out, "`pages` of `[[listen]]`", pages::LISTEN_PAGES);
    file_section(&mut out, "`[origin.NAME]`", pages::ORIGIN);
    file_section(&mut out, "`[[route]]`", keys::ROUTE);
    out.push_str("\nTables of later doors are refused with a reason: ");
    let later: Vec<String> = keys::LATER.iter().map(|(name, _)| format!("`{name}`")).collect();
    let _ = writeln!(out, "{}.", later.join(", "));
    out
}

/// A configuration file that says what every key does and shows its default, commented out.
pub fn sample() -> String {
    let mut out = String::from(
        "# Nuthatch. Every key of this build with its default; `nuthatch check FILE` validates, SIGHUP reloads.\n\
         # Sizes are numbers of bytes or strings such as \"512k\", \"64MiB\", \"2GiB\".\n",
    );
    sample_table(&mut out, "[server]", keys::SERVER);
    sample_table(&mut out, "[pool.default]", keys::POOL);
    out.push_str("\n# Several listeners may serve several pools. Without any: 127.0.0.1:11211 and [::1]:11211.");
    sample_table(&mut out, "[[listen]]", keys::LISTEN);
    out.push_str("\n# Web servers behind HTTP listeners, which name them by this name.\n");
    sample_inner_table(&mut out, "[origin.site]", "The servers of one site.", pages::ORIGIN);
    out.push_str("\n# Keys that begin with prefix live in pool, whatever their listener's pool is. Several may follow.\n# [[route]]\n");
    for knob in keys::ROUTE {
        wrapped_comment(&mut out, knob.about);
        let _ = writeln!(out, "# {} = {}", knob.name, if knob.name == "pool" { "\"default\"" } else { "\"page:\"" });
    }
    out.push_str(
        "\n# Memcached servers that keys are spread over. Several fleets may follow. docs/fleet.md tells of them.\n",
    );
    sample_comment(&mut out, "[fleet.shared]", fleet::KEYS);
    out.push_str("\n# SQL tables whose rows are items. Several may follow. docs/rows.md tells of them.\n");
    sample_comment(&mut out, "[table.accounts]", table::KEYS);
    out
}

/// What the reference page says of a reload.
const RELOAD: &str = "
On SIGHUP the file is read again, with the files of users and of certificates, and what it says is put in force while everything goes on.
No connection is closed. Requests in flight end with the settings they began with; open connections follow between two requests, except
where the tables below say that a value is for new connections: those keep the protocol, the pool, the authentication and the TLS that their
listener had when they were accepted. Flags go on overriding the file.

- A file that is not right, or a file of users that is not, changes nothing; the reason is said on standard error. So is every change.
- Listeners that are new are opened. One that cannot be opened, because its port is taken or because `-u` gave up the right to a port below
  1024, is named with the reason and leaves all others as they are; the next reload tries again. Those that are gone from the file are
  closed, after whoever had connected to them was accepted; a UNIX socket's file goes with it, and comes back if someone had removed it.
- Certificates and keys are read again for every listener with TLS, as the user that the server became. Where they cannot be used, a listener
  that is open stays as it was, plain or with the certificates it had; one that is new is not opened. Either is named with the reason.
- Pools may come and go. The memory of one that went comes back when no connection of a listener that had it is left; until then it is
  shown by `stats pools`, and a file that names it again gets it back with its items.
- Memory grows to 8 times what the pool began with, or to 1 GiB if that is more; beyond that the change waits for a restart. Less memory
  takes effect as items are evicted.
- More workers are started at once. A worker too many gets no new connections and ends when those it has are closed.
- Compared is what the file said before with what it says now. What commands changed meanwhile (`cache_memlimit`, `verbosity`,
  `stats detail`) stays as it is unless the file says something else than it did: no item is lost because somebody's password changed.
- A value that needs a restart is named with `after a restart:`, and the rest is applied.
";

/// Keys whose values wait for a restart.
fn at_restart() -> impl Iterator<Item = String> {
    fn of<T>(table: &str, knobs: &[Knob<T>]) -> Vec<String> {
        let waiting = knobs.iter().filter(|knob| knob.reload == OnReload::Restart);
        waiting.map(|knob| format!("`{table}{}`", knob.name)).collect()
    }
    let tables = [
        of("", keys::SERVER),
        of("pool.NAME.", keys::POOL),
        of("fleet.NAME.", fleet::KEYS),
        of("table.NAME.", table::KEYS),
        of("listen.", keys::LISTEN),
        of("listen.tls.", keys::LISTEN_TLS),
        of("listen.pages.", pages::LISTEN_PAGES),
        of("origin.NAME.", pages::ORIGIN),
        of("route.", keys::ROUTE),
    ];
    tables.into_iter().flatten()
}

/// Values the sample shows for keys that have no default.
const EXAMPLES: &[(&str, &str)] = &[
    ("auth_file", "\"/etc/nuthatch/users\""),
    ("sasl_file", "\"/etc/nuthatch/users\""),
    ("hash_seed", "1"),
    ("pid_file", "\"/run/nuthatch/nuthatch.pid\""),
    ("user", "\"nuthatch\""),
    ("memcached", "\"127.0.0.1:11211\""),
    ("pool", "\"default\""),
    ("tag", "\"web\""),
    ("table.accounts.url", "\"sqlite:///var/lib/nuthatch/shop.db\""),
    ("table.accounts.password_file", "\"/etc/nuthatch/shop.password\""),
    ("table.accounts.password_env", "\"SHOP_PASSWORD\""),
    ("table.accounts.ca", "\"/etc/nuthatch/database.pem\""),
    ("table.accounts.table", "\"accounts\""),
    ("table.accounts.key", "\"id\""),
    ("table.accounts.value", "[\"name\", \"email\"]"),
    ("table.accounts.flags", "\"flags\""),
    ("table.accounts.cas", "\"cas\""),
    ("table.accounts.expiry", "\"expires\""),
    ("certificate", "\"/etc/nuthatch/server.pem\""),
    ("key", "\"/etc/nuthatch/server.key\""),
    ("client_ca", "\"/etc/nuthatch/clients.pem\""),
    ("client_certificate", "\"required\""),
    ("ciphers", "\"HIGH\""),
    ("servers", "[\"10.0.0.40:11211\", \"10.0.0.41:11211 weight=2\", \"unix:/run/memcached.sock\"]"),
    ("resolvers", "[\"10.0.0.53:53\"]"),
    ("hash", "\"md5\""),
    ("namespace", "\"shop:\""),
    ("hash_tag", "\"{}\""),
    ("spare", "[\"10.0.0.50:11211\"]"),
    ("backend", "\"shared\""),
    ("warm_from", "\"other\""),
    ("shadow", "\"other\""),
    ("migrate_from", "\"other\""),
    ("http", "\"127.0.0.1:8080\""),
    ("htcp", "\"127.0.0.1:4827\""),
    ("origin", "\"http://127.0.0.1:8000\""),
    ("anonymous", "[\"mediawiki\"]"),
    ("session_cookies", "[\"sid\", \"*_session\"]"),
    ("ignored_cookies", "[\"theme\"]"),
    ("drop_parameters", "[\"marketing\", \"ref\"]"),
    ("decoded", "\":;@$!*(),\""),
    ("purge_from", "[\"127.0.0.0/8\", \"10.0.0.0/8\"]"),
    ("accept_encoding", "[\"br\", \"gzip\"]"),
    ("refuse_statuses", "[\"400\", \"413\", \"431\"]"),
    ("refresh_patterns", "[\"^/images/ 1h 20% 3d\"]"),
    ("access_log", "\"/var/log/nuthatch/access.log\""),
    ("servers", "[\"http://10.0.0.2:8000\", \"http://10.0.0.3:8000\"]"),
    ("health", "\"/health\""),
    ("tls_ca", "\"/etc/ssl/certs/ca-certificates.crt\""),
    ("tls_server_name", "\"wiki.internal\""),
    ("tls_certificate", "\"/etc/nuthatch/client.pem\""),
    ("tls_key", "\"/etc/nuthatch/client.key\""),
];

fn sample_table<T>(out: &mut String, heading: &str, knobs: &[Knob<T>]) {
    let _ = write!(out, "\n{heading}\n");
    for knob in knobs.iter().filter(|knob| !matches!(knob.effect, Effect::Refused(_))) {
        if let Action::Table { keys, .. } = &knob.action {
            sample_inner_table(out, &format!("[{}.{}]", heading.trim_matches(['[', ']']), knob.name), knob.about, keys);
            continue;
        }
        wrapped_comment(out, knob.about);
        let whole = format!("{}.{}", heading.trim_matches(['[', ']']), knob.name);
        let named = |wanted: &str| EXAMPLES.iter().find(|(name, _)| *name == wanted);
        let example = named(&whole).or_else(|| named(knob.name)).map(|(_, value)| (*value).to_owned());
        let is_bare = knob.default.parse::<i64>().is_ok() || knob.default == "true" || knob.default == "false";
        let value = example.unwrap_or_else(|| match is_bare && knob.name != "mode" {
            true => knob.default.to_owned(),
            false => format!("{:?}", knob.default),
        });
        // A listener without an address is an error, so that one key stands.
        let mark = if knob.name == "memcached" { "" } else { "# " };
        let _ = writeln!(out, "{mark}{} = {value}", knob.name);
    }
}

/// A table that is left out as a whole, with what it is for.
fn sample_inner_table<T>(out: &mut String, heading: &str, about: &str, knobs: &[Knob<T>]) {
    wrapped_comment(out, about);
    sample_comment(out, heading, knobs);
}

/// A table of which every line is a comment.
fn sample_comment<T>(out: &mut String, heading: &str, knobs: &[Knob<T>]) {
    let mut keys = String::new();
    sample_table(&mut keys, heading, knobs);
    for line in keys.lines().filter(|line| !line.is_empty()) {
        let _ = writeln!(out, "{}{line}", if line.starts_with('#') { "" } else { "# " });
    }
}

fn wrapped_comment(out: &mut String, text: &str) {
    for line in wrap(text, COLUMNS - 3) {
        let _ = writeln!(out, "## {line}");
    }
}

fn is_shown<T>(knob: &Knob<T>) -> bool {
    !knob.hidden
}

fn flag<T>(out: &mut String, knob: &Knob<T>) {
    let short = knob.short.map_or("    ".to_owned(), |letter| format!("-{letter}, "));
    let value = if knob.metavar.is_empty() { String::new() } else { format!("={}", knob.metavar) };
    entry(out, &format!("{short}--{}{value}", knob.name), knob);
}

fn option<T>(out: &mut String, knob: &Knob<T>) {
    let value = if knob.metavar.is_empty() { String::new() } else { format!("={}", knob.metavar) };
    entry(out, &format!("  {}{value}", knob.name), knob);
}

fn entry<T>(out: &mut String, left: &str, knob: &Knob<T>) {
    let mut text = knob.about.to_owned();
    if !knob.default.is_empty() {
        let _ = write!(text, " (default: {})", knob.default);
    }
    let mut lines = wrap(&text, COLUMNS - INDENT).into_iter();
    if left.len() < INDENT {
        let _ = writeln!(out, "{left:INDENT$}{}", lines.next().unwrap_or_default());
    } else {
        let _ = writeln!(out, "{left}");
    }
    for line in lines {
        let _ = writeln!(out, "{:INDENT$}{line}", "");
    }
}

fn list(out: &mut String, title: &str, names: impl Iterator<Item = String>) {
    let names: Vec<String> = names.collect();
    let _ = write!(out, "\n{title}:\n");
    for line in wrap(&names.join(", "), COLUMNS - 2) {
        let _ = writeln!(out, "  {line}");
    }
}

/// Breaks `text` at blanks into lines of at most `columns`.
fn wrap(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines
            .last_mut()
            .filter(|line| line.is_empty() || line.chars().count() + 1 + word.chars().count() <= columns);
        match line {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) => {
                line.push(' ');
                line.push_str(word);
            }
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

fn groups<T>(out: &mut String, groups: &[Group<T>], name: impl Fn(&Knob<T>) -> String + Copy) {
    for group in groups {
        section(out, group.title, group.knobs, name);
    }
}

fn section<T>(out: &mut String, title: &str, knobs: &[Knob<T>], name: impl Fn(&Knob<T>) -> String) {
    let _ = write!(out, "\n### {title}\n\n| name | what it does | value | default | effect |\n|---|---|---|---|---|\n");
    for knob in knobs {
        let _ = writeln!(out, "| {} |", cells(knob, &name(knob)).join(" | "));
    }
}

/// The keys of one table of the file, with what a reload does.
fn file_section<T>(out: &mut String, title: &str, knobs: &[Knob<T>]) {
    let _ = write!(
        out,
        "\n### {title}\n\n| name | what it does | value | default | effect | at a reload |\n|---|---|---|---|---|---|\n"
    );
    for knob in knobs {
        let reload = match (knob.effect, knob.reload) {
            (Effect::Refused(_), _) => "",
            (_, OnReload::Now) => "applied",
            (_, OnReload::NewConnections) => "for new connections",
            (_, OnReload::Restart) => "needs a restart",
        };
        let _ = writeln!(out, "| {} | {reload} |", cells(knob, &format!("`{}`", knob.name)).join(" | "));
    }
}

fn cells<T>(knob: &Knob<T>, name: &str) -> [String; 5] {
    let (value, effect) = match knob.effect {
        Effect::Works => (values(knob), "works".to_owned()),
        Effect::Nothing => (values(knob), "accepted".to_owned()),
        Effect::Unmet(reason) => (values(knob), format!("unmet: {reason}")),
        Effect::Refused(reason) => (String::new(), format!("refused: {reason}")),
    };
    let default = if knob.default.is_empty() { String::new() } else { format!("`{}`", knob.default) };
    [name.to_owned(), knob.about.to_owned(), value, default, effect].map(|cell| cell.replace('|', "\\|"))
}

fn values<T>(knob: &Knob<T>) -> String {
    match (&knob.action, knob.default) {
        (Action::Switch(_), "") => String::new(),
        _ => knob.expected(),
    }
}
