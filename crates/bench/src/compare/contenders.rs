//! The servers that are compared, how each is started, and on which processor.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::Settings;
use crate::address::Address;
use crate::failure::Failure;
use crate::launch::{Launched, Scratch, free_port, listen_words};

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Memcached,
    Nuthatch,
    Bare,
    /// The same without tokio: the kernel's calls and nothing else.
    Calls,
    /// Another kind of cache, as a point of reference.
    Redis,
    /// A proxy before a fleet.
    Twemproxy,
    /// A Nuthatch before a fleet that keeps no copies.
    Router,
    /// A Nuthatch before a fleet that does.
    Tier,
    /// Records in a cache alone.
    Objects,
    /// Records in a database, with a memcached beside it.
    Aside,
    /// Records in a database, through a Nuthatch.
    Rows,
    /// Records in a database alone.
    Direct,
    /// The same, asked by the texts of statements.
    Text,
    /// A round trip to a thread that has nothing to do.
    Floor,
    /// Records in a database behind a thread that passes bytes on.
    Forwarded,
    /// Caches in front of a web site.
    Nginx,
    Varnish,
    Squid,
    /// No server: what would be best.
    Ideal,
}

impl Who {
    /// What it is called in the heading of a ratio.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Who::Memcached => "memcached",
            Who::Nuthatch => "nuthatch",
            Who::Bare => "bare loop",
            Who::Calls => "bare calls",
            Who::Redis => "redis-server",
            Who::Twemproxy => "twemproxy",
            Who::Router => "nuthatch router",
            Who::Tier => "nuthatch tier",
            Who::Objects => "S1 objects",
            Who::Aside => "S2 cache-aside",
            Who::Rows => "S3 rows",
            Who::Direct => "S4 database",
            Who::Text => "S4 by text",
            Who::Floor => "round trip",
            Who::Forwarded => "S4 forwarded",
            Who::Nginx => "nginx",
            Who::Varnish => "varnish",
            Who::Squid => "squid",
            Who::Ideal => "ideal",
        }
    }
}

/// All servers of a comparison.
pub(crate) struct Contenders {
    memcached: String,
    nuthatch: PathBuf,
    bare: Option<PathBuf>,
    /// What `memcached -V` says, such as `1.6.18`.
    pub(crate) memcached_version: String,
}

/// Where a process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// On one core, and never interrupting what runs there: the server sees as many requests at each wake-up every time.
    Batch(usize),
    /// On one core.
    Core(usize),
    /// Wherever the system likes.
    Anywhere,
}

impl Place {
    /// The words before a command that put it there.
    pub(crate) fn words(self) -> Vec<String> {
        match self {
            Place::Batch(core) => format!("chrt --batch 0 taskset -c {core}").split(' ').map(str::to_owned).collect(),
            Place::Core(core) => format!("taskset -c {core}").split(' ').map(str::to_owned).collect(),
            Place::Anywhere => Vec::new(),
        }
    }
}

/// How a server is started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    pub(crate) place: Place,
    pub(crate) is_unix: bool,
    pub(crate) memory_mib: u32,
    pub(crate) workers: u32,
}

impl Start {
    /// One worker with 64 MiB, on a core with its load.
    pub(crate) fn on_one_core() -> Start {
        Start { place: Place::Batch(0), is_unix: false, memory_mib: 64, workers: 1 }
    }
}

/// A started server, and the directory of its socket.
pub(crate) struct Server {
    pub(crate) launched: Launched,
    _scratch: Scratch,
}

impl Server {
    /// With the directory that it has files in.
    pub(crate) fn new(launched: Launched, scratch: Scratch) -> Server {
        Server { launched, _scratch: scratch }
    }
}

impl Contenders {
    pub(crate) fn find(settings: &Settings) -> Result<Contenders, Failure> {
        let said = Command::new(&settings.memcached)
            .arg("-V")
            .output()
            .map_err(|error| Failure::run(format!("bench: expected to run `{} -V`: {error}", settings.memcached)))?;
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        let version = said.split_whitespace().nth(1).unwrap_or("of unknown version").to_owned();
        let nuthatch = std::env::current_exe()
            .map_err(|error| Failure::run(format!("bench: expected to find this program: {error}")))?;
        Ok(Contenders {
            memcached: settings.memcached.clone(),
            nuthatch,
            bare: settings.bare.clone(),
            memcached_version: version,
        })
    }

    /// The two that are always compared.
    pub(crate) fn both(&self) -> [Who; 2] {
        [Who::Memcached, Who::Nuthatch]
    }

    /// The bare loops too, if they were named.
    pub(crate) fn all(&self) -> Vec<Who> {
        let bare = self.bare.iter().flat_map(|_| [Who::Bare, Who::Calls]);
        self.both().into_iter().chain(bare).collect()
    }

    /// What a server is called in tables.
    pub(crate) fn name(&self, who: Who) -> String {
        match who {
            Who::Memcached => format!("memcached {}", self.memcached_version),
            _ => who.word().to_owned(),
        }
    }

    /// This program.
    pub(crate) fn nuthatch(&self) -> &Path {
        &self.nuthatch
    }

    /// Starts one and waits for its first answer.
    pub(crate) fn start(&self, who: Who, start: Start) -> Result<Server, Failure> {
        let scratch = Scratch::new()?;
        let address = if start.is_unix { scratch.socket("sock") } else { free_port()? };
        let command = self.command(who, start, &address);
        Ok(Server::new(Launched::start(command, address)?, scratch))
    }

    /// Starts one that listens on `address`, where another did before.
    pub(crate) fn start_at(&self, who: Who, start: Start, address: Address) -> Result<Server, Failure> {
        let command = self.command(who, start, &address);
        Ok(Server::new(Launched::start(command, address)?, Scratch::new()?))
    }

    fn command(&self, who: Who, start: Start, address: &Address) -> Vec<String> {
        let mut words = start.place.words();
        let flags = [format!("-m {}", start.memory_mib), format!("-t {}", start.workers)];
        let flags = flags.iter().flat_map(|flag| flag.split(' ')).map(str::to_owned);
        match who {
            Who::Memcached => {
                words.push(self.memcached.clone());
                words.extend(listen_words(address));
                words.extend(flags);
                if rustix::process::geteuid().is_root() {
                    words.extend(["-u", "root"].map(str::to_owned));
                }
            }
            Who::Nuthatch => {
                words.push(self.nuthatch.display().to_string());
                words.push("serve".to_owned());
                words.extend(listen_words(address));
                words.extend(flags);
            }
            Who::Bare | Who::Calls => {
                words.push(self.bare.as_deref().unwrap_or(Path::new("nuthatch-bare")).display().to_string());
                words.extend((who == Who::Calls).then(|| "--calls".to_owned()));
                words.push(match address {
                    Address::Tcp(text) => text.clone(),
                    Address::Unix(path) => path.display().to_string(),
                });
            }
            Who::Redis => {
                words.push("redis-server".to_owned());
                words.extend(match address {
                    Address::Tcp(text) => {
                        let (host, port) = text.rsplit_once(':').unwrap_or((text, "6379"));
                        ["--bind", host, "--port", port].map(str::to_owned).to_vec()
                    }
                    Address::Unix(path) => {
                        ["--port", "0", "--unixsocket", &path.display().to_string()].map(str::to_owned).to_vec()
                    }
                });
                // A cache alone: nothing is written to disk.
                words.extend(["--save", "", "--appendonly", "no", "--loglevel", "warning"].map(str::to_owned));
                words.extend(["--maxmemory".to_owned(), format!("{}mb", start.memory_mib)]);
                words.extend(["--maxmemory-policy", "allkeys-lru"].map(str::to_owned));
            }
            Who::Twemproxy | Who::Router | Who::Tier | Who::Nginx | Who::Varnish | Who::Squid | Who::Ideal => {
                unreachable!("what has a configuration file is started by `fronts` or `pages`")
            }
            Who::Objects | Who::Aside | Who::Rows | Who::Direct | Who::Text | Who::Floor | Who::Forwarded => {
                unreachable!("ways to records are several servers, started by `records`")
            }
        }
        words
    }

    /// A command as the page shows it: the programs by their names, the address as a placeholder.
    pub(crate) fn shown(&self, who: Who, start: Start) -> String {
        let named = Contenders {
            memcached: "memcached".to_owned(),
            nuthatch: PathBuf::from("nuthatch"),
            bare: self.bare.as_ref().map(|_| PathBuf::from("nuthatch-bare")),
            memcached_version: String::new(),
        };
        let address = match start.is_unix {
            true => Address::Unix("SOCKET".into()),
            false => Address::Tcp("127.0.0.1:PORT".to_owned()),
        };
        let words = named.command(who, start, &address);
        words.iter().map(|word| if word.is_empty() { "''" } else { word }).collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_shown_as_they_can_be_typed() {
        let contenders = Contenders {
            memcached: "/opt/memcached".to_owned(),
            nuthatch: PathBuf::from("/home/me/nuthatch"),
            bare: Some(PathBuf::from("/home/me/nuthatch-bare")),
            memcached_version: "1.6.18".to_owned(),
        };
        let start = Start::on_one_core();
        let shown = |who, start| contenders.shown(who, start).replace(" -u root", "");
        assert_eq!(
            shown(Who::Memcached, start),
            "chrt --batch 0 taskset -c 0 memcached -l 127.0.0.1 -p PORT -m 64 -t 1"
        );
        let start = Start { is_unix: true, place: Place::Anywhere, workers: 2, ..start };
        assert_eq!(shown(Who::Nuthatch, start), "nuthatch serve -s SOCKET -m 64 -t 2");
        assert_eq!(shown(Who::Bare, start), "nuthatch-bare SOCKET");
        assert_eq!(shown(Who::Calls, start), "nuthatch-bare --calls SOCKET");
        let redis = shown(Who::Redis, Start { is_unix: false, ..start });
        assert!(redis.starts_with("redis-server --bind 127.0.0.1 --port PORT --save '' --appendonly no"), "{redis}");
        assert_eq!(contenders.name(Who::Memcached), "memcached 1.6.18");
    }
}
