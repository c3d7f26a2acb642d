//! The draft that flags and file write on, and how it becomes [`Settings`].
//!
//! Each value was checked on its own when it was read. Here they are checked against each other: pools get their sizes, listeners
//! their addresses, protocols and pools, and what cannot go together is refused in one sentence.

use std::path::PathBuf;
use std::time::Duration;

use nuthatch_fleet::FleetSettings;
use nuthatch_pages::origin::OriginSettings;

use super::knob::Bytes;
use super::listen::{self, Interface};
use super::pages::{self, HttpSettings, PAGE_ITEM_BYTES_MAX, PagesSettings};
use super::problem::{Note, Problem};
use super::table::TableDraft;
use super::tls::TlsDraft;
use super::{
    Address, ClientCertificate, ListenerSettings, PORT_DEFAULT, PoolSettings, Protocol, RouteSettings, Settings,
    TlsSettings, loopback,
};

/// What a command line asks for besides serving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// `-h`
    Help,
    /// `-V`
    Version,
    /// `-i`
    License,
}

/// Everything said so far. Server-wide values go straight into `settings`; what has to be resolved later waits beside it.
#[derive(Default)]
pub(super) struct Draft {
    pub(super) settings: Settings,
    pub(super) asked: Option<Asked>,
    pub(super) config: Option<PathBuf>,
    /// The values of `-o`, each still to be taken apart.
    pub(super) extended: Vec<String>,

    pub(super) interfaces: Vec<String>,
    pub(super) tcp_port: Option<i32>,
    pub(super) udp_port: Option<i32>,
    pub(super) socket: Option<PathBuf>,
    pub(super) unix_mode: Option<u32>,
    pub(super) protocol: Option<Protocol>,

    pub(super) memory_bytes: Option<u64>,
    pub(super) item_bytes_max: Option<usize>,
    pub(super) evict: Option<bool>,
    pub(super) huge_pages: Option<bool>,
    pub(super) reserved_keys: Option<bool>,
    pub(super) memory_file: Option<PathBuf>,

    /// `-Z`
    pub(super) tls_enabled: bool,
    /// The `ssl_*` options, which are for every listener of `-Z`.
    pub(super) tls: TlsDraft,

    pub(super) sasl: bool,
    pub(super) slab_chunk_given: bool,

    /// From the file, in its order.
    pub(super) pools: Vec<PoolDraft>,
    pub(super) listens: Vec<ListenDraft>,
    pub(super) routes: Vec<RouteDraft>,
    pub(super) fleets: Vec<FleetDraft>,
    pub(super) origins: Vec<OriginDraft>,
    pub(super) tables: Vec<TableDraft>,
    pub(super) notes: Vec<Note>,
}

/// One `[pool.NAME]`.
pub(super) struct PoolDraft {
    pub(super) pool: PoolSettings,
    /// Where it, and what it says, stands: `FILE:LINE`.
    pub(super) place: String,
    pub(super) item_place: Option<String>,
    pub(super) miss_ttl: Option<Duration>,
}

/// One `[origin.NAME]`.
#[derive(Default)]
pub(super) struct OriginDraft {
    pub(super) settings: OriginSettings,
}

/// One `[[listen]]`.
#[derive(Default)]
pub(super) struct ListenDraft {
    pub(super) place: String,
    pub(super) memcached: Option<String>,
    pub(super) http: Option<String>,
    pub(super) htcp: Option<String>,
    pub(super) origin: Vec<String>,
    pub(super) pages: Option<PagesSettings>,
    pub(super) protocol: Option<Protocol>,
    pub(super) mode: Option<u32>,
    pub(super) pool: Option<String>,
    pub(super) tag: Option<String>,
    pub(super) tls: Option<TlsDraft>,
}

/// One `[[route]]`.
#[derive(Default)]
pub(super) struct RouteDraft {
    pub(super) place: String,
    pub(super) prefix: Option<String>,
    pub(super) pool: Option<String>,
}

/// One `[fleet.NAME]`.
pub(super) struct FleetDraft {
    pub(super) fleet: FleetSettings,
    /// Where it stands: `FILE:LINE`.
    pub(super) place: String,
    /// Where each of its keys stands.
    pub(super) key_places: Vec<(String, String)>,
}

impl Draft {
    /// Checks everything against everything else.
    pub(super) fn finish(mut self) -> Result<(Settings, Vec<Note>), Problem> {
        self.finish_pools()?;
        self.finish_access()?;
        self.finish_tls()?;
        self.settings.listeners = self.finish_listeners()?;
        self.settings.routes = self.finish_routes()?;
        self.settings.fleets = self.finish_fleets()?;
        self.settings.tables = self.finish_tables()?;
        self.check_pages()?;
        self.finish_reported()?;
        self.warn_of_the_open();
        Ok((self.settings, self.notes))
    }

    fn finish_pools(&mut self) -> Result<(), Problem> {
        if self.pools.is_empty() {
            self.pools.push(PoolDraft::at("default", String::new()));
        }
        let flags = [
            ("-m", self.memory_bytes.is_some()),
            ("-I", self.item_bytes_max.is_some()),
            ("-M", self.evict.is_some()),
            ("-L", self.huge_pages.is_some()),
            ("-o reserved_keys", self.reserved_keys.is_some()),
            ("-e", self.memory_file.is_some()),
        ];
        if let Some((flag, _)) = flags.iter().find(|(_, given)| *given) {
            let index = self.default_pool().ok_or_else(|| {
                Problem::combination(format!(
                    "{flag}: expected a pool called default for it to act on, {} has {}",
                    self.config_name(),
                    self.pool_names()
                ))
            })?;
            let draft = &mut self.pools[index];
            let pool = &mut draft.pool;
            pool.memory_bytes = self.memory_bytes.unwrap_or(pool.memory_bytes);
            pool.evict = self.evict.unwrap_or(pool.evict);
            pool.huge_pages = self.huge_pages.unwrap_or(pool.huge_pages);
            pool.reserved_keys = self.reserved_keys.unwrap_or(pool.reserved_keys);
            if self.memory_file.is_some() {
                pool.file = self.memory_file.take();
            }
            if let Some(bytes) = self.item_bytes_max {
                pool.item_bytes_max = bytes;
                draft.item_place = Some("-I".to_owned());
            }
        }
        for draft in &mut self.pools {
            let pool = &mut draft.pool;
            let half = pool.memory_bytes / 2;
            if pool.item_bytes_max as u64 <= half {
                continue;
            }
            // memcached's default of 1 MiB makes `-m 1` fail. Said by nobody, it gives way; said by the operator, it is an error.
            let is_flag_only = draft.place.is_empty();
            match &draft.item_place {
                None if !is_flag_only => pool.item_bytes_max = half as usize,
                place => {
                    let place = place.as_deref().unwrap_or("-m");
                    return Err(Problem::combination(format!(
                        "{place}: expected an item limit of at most half of the memory, {} of {}, not {}",
                        Bytes(half),
                        Bytes(pool.memory_bytes),
                        Bytes(pool.item_bytes_max as u64)
                    )));
                }
            }
        }
        for (index, draft) in self.pools.iter().enumerate() {
            let other = self.pools[..index].iter().find(|other| other.pool.file == draft.pool.file);
            if let (Some(file), Some(other)) = (&draft.pool.file, other) {
                return Err(Problem::combination(format!(
                    "pool.{}.file: expected a file of its own, {} is pool {}'s",
                    draft.pool.name,
                    file.display(),
                    other.pool.name
                )));
            }
        }
        for draft in &self.pools {
            self.check_backend(draft)?;
            self.check_policy(draft)?;
        }
        self.settings.pools = self.pools.iter().map(|draft| self.by_policy(draft)).collect();
        Ok(())
    }

    fn check_backend(&self, draft: &PoolDraft) -> Result<(), Problem> {
        let pool = &draft.pool;
        let Some(name) = &pool.backend else { return Ok(()) };
        let (at, what) = (&draft.place, &pool.name);
        if self.fleets.iter().all(|fleet| fleet.fleet.name != *name) && !self.is_table(name) {
            let fleets = self.fleets.iter().map(|fleet| fleet.fleet.name.as_str());
            let names: Vec<&str> = fleets.chain(self.table_names()).collect();
            let names = if names.is_empty() { "there is none".to_owned() } else { names.join(", ") };
            return Err(Problem::value(format!(
                "{at}: pool.{what}.backend: expected the name of a fleet or a table of the file ({names}), not {name:?}"
            )));
        }
        if pool.file.is_some() {
            return Err(Problem::combination(format!(
                "{at}: pool.{what}.file: expected none with a backend, whose copies would be out of date after a restart"
            )));
        }
        Ok(())
    }

    /// Pages are shared with other hosts through a fleet, and make no rows.
    fn check_pages(&self) -> Result<(), Problem> {
        for listener in &self.settings.listeners {
            let pool = &self.settings.pools[listener.pool];
            let is_fleet = |name: &String| self.settings.fleets.iter().any(|fleet| fleet.name == *name);
            if matches!(listener.protocol, Protocol::Http | Protocol::Htcp)
                && pool.backend.as_ref().is_some_and(|name| !is_fleet(name))
            {
                let (address, name) = (&listener.address, &pool.name);
                return Err(Problem::combination(format!(
                    "{address}: expected a pool for pages that is before a fleet or alone, {name} is before a table"
                )));
            }
        }
        Ok(())
    }

    fn finish_access(&mut self) -> Result<(), Problem> {
        let settings = &mut self.settings;
        if self.sasl && settings.sasl_file.is_none() {
            return Err(Problem::combination(
                "-S: expected the environment variable MEMCACHED_SASL_PWDB to name a file of user:password lines",
            ));
        }
        if !self.sasl {
            settings.sasl_file = None;
        }
        let forced = match (&settings.auth_file, self.sasl) {
            (Some(_), true) => {
                return Err(Problem::combination(
                    "-S: expected either -S or -Y, one is for binary connections and one for text",
                ));
            }
            (Some(_), false) => Some((Protocol::Ascii, "-Y")),
            (None, true) => Some((Protocol::Binary, "-S")),
            (None, false) => None,
        };
        let Some((protocol, flag)) = forced else { return Ok(()) };
        if self.protocol.is_some_and(|said| said != protocol) {
            return Err(Problem::combination(format!(
                "-B: expected {} with {flag}, the other protocol would let clients in without a password",
                protocol.word()
            )));
        }
        if self.udp_port.is_some_and(|port| port != 0) {
            return Err(Problem::combination(format!("-U: expected 0 with {flag}, UDP cannot authenticate")));
        }
        self.protocol = Some(protocol);
        Ok(())
    }

    fn finish_listeners(&mut self) -> Result<Vec<ListenerSettings>, Problem> {
        let from_flags =
            !self.interfaces.is_empty() || self.tcp_port.is_some() || self.udp_port.is_some() || self.socket.is_some();
        let listeners =
            if from_flags || self.listens.is_empty() { self.listeners_of_flags()? } else { self.listeners_of_file()? };
        self.finish_reported_tls(from_flags, &listeners);
        if listeners.is_empty() {
            // memcached starts all the same, and its own tests hold it to that.
            self.notes.push(Note {
                always: true,
                text: "-p: there is no address to listen on with -p 0 and -U 0, nobody can connect".to_owned(),
            });
        }
        let required = self.settings.auth_file.as_ref().map(|_| (Protocol::Ascii, "-Y"));
        let required = required.or(self.settings.sasl_file.as_ref().map(|_| (Protocol::Binary, "-S")));
        if let Some((protocol, flag)) = required {
            let mut memcached = listeners.iter().filter(|listener| listener.http.is_none());
            if let Some(other) = memcached.find(|listener| listener.protocol != protocol) {
                return Err(Problem::combination(format!(
                    "{}: expected protocol {} with {flag}, another would let clients in without a password",
                    other.address,
                    protocol.word()
                )));
            }
            if let Some(udp) =
                listeners.iter().find(|listener| matches!(listener.address, Address::Udp(_)) && listener.http.is_none())
            {
                return Err(Problem::combination(format!(
                    "{}: expected no UDP with {flag}, it cannot authenticate",
                    udp.address
                )));
            }
        }
        Ok(listeners)
    }

    fn listeners_of_flags(&mut self) -> Result<Vec<ListenerSettings>, Problem> {
        let pool = self.default_pool().ok_or_else(|| {
            Problem::combination(format!(
                "{}: listen: expected a pool called default to serve, there are {}; name one in a [[listen]]",
                self.config_name(),
                self.pool_names()
            ))
        })?;
        let protocol = self.protocol.unwrap_or(Protocol::Auto);
        if let Some(path) = &self.socket {
            let address = Address::Unix { path: path.clone(), mode: self.unix_mode.unwrap_or(0o700) };
            return Ok(vec![ListenerSettings {
                address,
                protocol,
                pool,
                tag: None,
                tls: None,
                http: None,
                required: true,
            }]);
        }
        let udp_port = self.udp_port.unwrap_or(0);
        // memcached: a UDP port given alone is the TCP port too.
        let tcp_port = match self.tcp_port {
            Some(port) => port,
            None if udp_port != 0 => udp_port,
            None => i32::from(PORT_DEFAULT),
        };
        let mut interfaces: Vec<(Interface, Option<TlsSettings>)> = Vec::new();
        let mut seen: Vec<&str> = Vec::new();
        for spec in self.interfaces.iter().flat_map(|list| list.split([',', ';'])).filter(|spec| !spec.is_empty()) {
            if !seen.contains(&spec) {
                seen.push(spec);
                let interface = listen::parse_interface(spec)
                    .map_err(|expected| Problem::combination(format!("-l: expected {expected}, not {spec}")))?;
                let tls = self.tls_of_flags(interface.tls, spec)?;
                interfaces.push((interface, tls));
            }
        }
        let mut listeners = Vec::new();
        let tls = self.tls_of_flags(None, "")?;
        for (kind, port) in [(Address::Tcp as fn(_) -> _, tcp_port), (Address::Udp as fn(_) -> _, udp_port)] {
            if port == 0 {
                continue;
            }
            // As in memcached, datagrams stay plain.
            let of_kind = |tls: &Option<TlsSettings>, address: &Address| {
                tls.clone().filter(|_| matches!(address, Address::Tcp(_)))
            };
            if interfaces.is_empty() {
                let plain = loopback(listen::port_number(port), kind, protocol);
                listeners.extend(plain.into_iter().map(|listener| {
                    let tls = of_kind(&tls, &listener.address);
                    ListenerSettings { pool, tls, ..listener }
                }));
            }
            for (interface, tls) in &interfaces {
                let port = listen::port_number(interface.port.unwrap_or(port));
                for (address, required) in listen::resolve(&interface.host, port).map_err(|e| e.at("-l"))? {
                    let address = kind(address);
                    listeners.push(ListenerSettings {
                        protocol: interface.protocol.unwrap_or(protocol),
                        pool,
                        tag: interface.tag.clone(),
                        tls: of_kind(tls, &address),
                        http: None,
                        required,
                        address,
                    });
                }
            }
        }
        Ok(listeners)
    }

    fn listeners_of_file(&mut self) -> Result<Vec<ListenerSettings>, Problem> {
        let mut listeners = Vec::new();
        for listen in &self.listens {
            let place = &listen.place;
            let said = [("memcached", &listen.memcached), ("http", &listen.http), ("htcp", &listen.htcp)];
            let mut said = said.into_iter().filter_map(|(key, spec)| Some((key, spec.as_ref()?)));
            let (Some((key, spec)), None) = (said.next(), said.next()) else {
                return Err(Problem::value(format!(
                    "{place}: listen: expected one of the keys memcached, http and htcp with an address, such as \"127.0.0.1:11211\""
                )));
            };
            let pool = self.pool_of(listen.pool.as_deref(), &format!("{place}: listen.pool"))?;
            let (protocol, http) = self.served(listen, key)?;
            // `-Z` is about memcached's listeners.
            let mut tls = match key == "memcached" || listen.tls.is_some() {
                true => self.tls_of_listen(listen, spec)?,
                false => None,
            };
            if let Some(tls) = &mut tls {
                tls.is_http = key == "http";
            }
            let add = |address, required| {
                let (tls, http) = (tls.clone().filter(|_| matches!(address, Address::Tcp(_))), http.clone());
                ListenerSettings { address, protocol, pool, tag: listen.tag.clone(), tls, http, required }
            };
            if let Some(path) = spec.strip_prefix("unix:").filter(|_| key != "htcp") {
                if !super::flags::is_socket_path(path) {
                    return Err(Problem::value(format!(
                        "{place}: listen.{key}: expected unix: and the path of a socket, at most 107 bytes, not {spec:?}"
                    )));
                }
                let mode = listen.mode.or(self.unix_mode).unwrap_or(0o700);
                listeners.push(add(Address::Unix { path: PathBuf::from(path), mode }, true));
                continue;
            }
            if listen.mode.is_some() {
                return Err(Problem::value(format!(
                    "{place}: listen.mode: expected only with a unix: address, not {spec:?}"
                )));
            }
            let (kind, rest) = match spec.strip_prefix("udp:") {
                Some(rest) if key == "memcached" => (Address::Udp as fn(_) -> _, rest),
                _ if key == "htcp" => (Address::Udp as fn(_) -> _, spec.as_str()),
                _ => (Address::Tcp as fn(_) -> _, spec.as_str()),
            };
            let (host, port) = listen::parse_host_port(rest).map_err(|expected| {
                Problem::value(format!("{place}: listen.{key}: expected {expected}, not {spec:?}"))
            })?;
            let port_default = match key {
                "http" if tls.is_some() => 443,
                "http" => 80,
                "htcp" => HTCP_PORT,
                _ => i32::from(PORT_DEFAULT),
            };
            let port = listen::port_number(port.unwrap_or(port_default));
            let resolved = listen::resolve(&host, port).map_err(|e| e.at(&format!("{place}: listen.{key}")))?;
            listeners.extend(resolved.into_iter().map(|(address, required)| add(kind(address), required)));
        }
        // Pages are longer than what memcached's limit was made for. What the operator says of it holds.
        for listener in listeners.iter().filter(|listener| listener.protocol == Protocol::Http) {
            let draft = &mut self.pools[listener.pool];
            if draft.item_place.is_none() {
                let half = usize::try_from(draft.pool.memory_bytes / 2).unwrap_or(usize::MAX);
                draft.pool.item_bytes_max = draft.pool.item_bytes_max.max(PAGE_ITEM_BYTES_MAX.min(half));
            }
        }
        self.settings.pools = self.pools.iter().map(|draft| draft.pool.clone()).collect();
        Ok(listeners)
    }

    /// What a listener of the file speaks at the address under `key`, and what it serves if that is pages.
    fn served(&self, listen: &ListenDraft, key: &str) -> Result<(Protocol, Option<HttpSettings>), Problem> {
        let place = &listen.place;
        let only = |name: &str, with: &str| {
            Problem::value(format!("{place}: listen.{name}: expected only with {with}, not with {key}"))
        };
        if key == "memcached" {
            if !listen.origin.is_empty() {
                return Err(only("origin", "http"));
            }
            if listen.pages.is_some() {
                return Err(only("pages", "http or htcp"));
            }
            return Ok((listen.protocol.or(self.protocol).unwrap_or(Protocol::Auto), None));
        }
        if listen.protocol.is_some() {
            return Err(only("protocol", "memcached"));
        }
        let pages = listen.pages.clone().unwrap_or_default();
        if key == "htcp" {
            if !listen.origin.is_empty() {
                return Err(only("origin", "http"));
            }
            if listen.tls.is_some() {
                return Err(only("tls", "memcached or http"));
            }
            return Ok((Protocol::Htcp, Some(HttpSettings { origin: OriginSettings::default(), pages })));
        }
        let origin = pages::origin_of(self, &listen.origin, place)?;
        Ok((Protocol::Http, Some(HttpSettings { origin, pages })))
    }

    fn finish_routes(&self) -> Result<Vec<RouteSettings>, Problem> {
        let mut routes: Vec<RouteSettings> = Vec::new();
        for route in &self.routes {
            let place = &route.place;
            let prefix = route.prefix.clone().unwrap_or_default().into_bytes();
            if prefix.is_empty() || prefix.len() > 250 {
                return Err(Problem::value(format!(
                    "{place}: route.prefix: expected the first 1 to 250 bytes of a key"
                )));
            }
            if routes.iter().any(|other| other.prefix == prefix) {
                return Err(Problem::value(format!(
                    "{place}: route.prefix: expected each prefix once, {:?} was routed before",
                    String::from_utf8_lossy(&prefix)
                )));
            }
            if route.pool.is_none() {
                return Err(Problem::value(format!(
                    "{place}: route: expected the key pool with one of {}",
                    self.pool_names()
                )));
            }
            let pool = self.pool_of(route.pool.as_deref(), &format!("{place}: route.pool"))?;
            routes.push(RouteSettings { prefix, pool });
        }
        // The first route that fits is the longest that fits.
        routes.sort_by_key(|route| std::cmp::Reverse(route.prefix.len()));
        Ok(routes)
    }

    fn finish_reported(&mut self) -> Result<(), Problem> {
        let settings = &mut self.settings;
        let reported = &mut settings.reported;
        if i64::from(reported.napi_ids) > settings.workers as i64 {
            return Err(Problem::combination(format!(
                "-N: expected at most as many as there are workers (-t {}), not {}",
                settings.workers, reported.napi_ids
            )));
        }
        if reported.hot_lru_pct + reported.warm_lru_pct > 80 {
            return Err(Problem::combination(format!(
                "-o hot_lru_pct and warm_lru_pct: expected at most 80 together, not {}",
                reported.hot_lru_pct + reported.warm_lru_pct
            )));
        }
        if reported.temp_lru && !reported.lru_maintainer {
            return Err(Problem::combination(
                "-o temporary_ttl: expected lru_maintainer with it, not no_lru_maintainer",
            ));
        }
        if self.slab_chunk_given {
            // memcached demands both of every start; here only who sets a chunk size is held to it.
            let (chunk, item) = (reported.slab_chunk_bytes_max as usize, settings.pools[0].item_bytes_max);
            if chunk > item || item % chunk != 0 || (1024 * 1024) % chunk != 0 {
                return Err(Problem::combination(format!(
                    "-o slab_chunk_max: expected a divisor of 1 MiB and of the item limit {}, not {}",
                    Bytes(item as u64),
                    Bytes(chunk as u64)
                )));
            }
        }
        reported.udp_port = self.udp_port.unwrap_or(0);
        reported.tcp_port = match self.tcp_port {
            Some(port) => port,
            None if reported.udp_port != 0 => reported.udp_port,
            None => settings.listeners.iter().find_map(|l| l.address.tcp_port()).unwrap_or(i32::from(PORT_DEFAULT)),
        };
        if !self.interfaces.is_empty() {
            reported.interface = Some(self.interfaces.join(","));
        }
        for listener in &settings.listeners {
            if let Address::Unix { path, mode } = &listener.address {
                reported.domain_socket.get_or_insert_with(|| path.clone());
                reported.unix_mode = *mode;
            }
        }
        if let Some(mode) = self.unix_mode {
            reported.unix_mode = mode;
        }
        reported.protocol = self.protocol.unwrap_or(Protocol::Auto);
        Ok(())
    }

    /// Says so when other machines can reach what nothing protects.
    fn warn_of_the_open(&mut self) {
        let settings = &self.settings;
        if settings.auth_file.is_some() || settings.sasl_file.is_some() {
            return;
        }
        let asks_clients = |listener: &&ListenerSettings| {
            listener.tls.as_ref().is_some_and(|tls| tls.client_certificate == ClientCertificate::Required)
        };
        let reachable = settings.listeners.iter().filter(|listener| !listener.address.is_local());
        let open: Vec<String> = reachable
            .filter(|listener| listener.protocol != Protocol::Http && !asks_clients(listener))
            .map(|listener| listener.address.to_string())
            .collect();
        if !open.is_empty() {
            self.notes.push(Note {
                always: true,
                text: format!(
                    "{}: other machines can reach this and nothing authenticates them; use -Y FILE, a firewall, or listen on 127.0.0.1",
                    open.join(", ")
                ),
            });
        }
    }

    /// The pool of what names none: the one called `default`, or the only one.
    fn default_pool(&self) -> Option<usize> {
        let named = self.pools.iter().position(|draft| draft.pool.name == "default");
        named.or((self.pools.len() == 1).then_some(0))
    }

    fn pool_of(&self, name: Option<&str>, place: &str) -> Result<usize, Problem> {
        let found = match name {
            Some(name) => self.pools.iter().position(|draft| draft.pool.name == name),
            None => self.default_pool(),
        };
        found.ok_or_else(|| {
            let given = name.map_or("nothing".to_owned(), |name| format!("{name:?}"));
            Problem::value(format!("{place}: expected the name of a pool, one of {}, not {given}", self.pool_names()))
        })
    }

    /// The file, for messages about what it lacks.
    fn config_name(&self) -> String {
        self.config.as_ref().map_or_else(String::new, |path| path.display().to_string())
    }

    fn pool_names(&self) -> String {
        self.pools.iter().map(|draft| draft.pool.name.as_str()).collect::<Vec<_>>().join(", ")
    }
}

/// The port of HTCP (RFC 2756, section 2.2).
const HTCP_PORT: i32 = 4827;

impl ListenDraft {
    /// Its table of pages; one that was not opened is opened.
    pub(super) fn pages(&mut self) -> &mut PagesSettings {
        self.pages.get_or_insert_default()
    }

    /// Its TLS table; one that was not opened is opened.
    pub(super) fn tls(&mut self) -> &mut TlsDraft {
        self.tls.get_or_insert_with(|| TlsDraft { is_of_file: true, ..TlsDraft::default() })
    }
}

impl PoolDraft {
    /// A pool that the file opens at `place`.
    pub(super) fn at(name: &str, place: String) -> PoolDraft {
        PoolDraft { pool: PoolSettings::named(name), place, item_place: None, miss_ttl: None }
    }
}

impl Address {
    fn tcp_port(&self) -> Option<i32> {
        match self {
            Address::Tcp(address) => Some(i32::from(address.port())),
            _ => None,
        }
    }
}
