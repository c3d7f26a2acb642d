//! A Galera cluster for tests: MariaDBs on this machine that replicate to each other on loopback. A node that was killed and comes
//! back is brought up to date by another.

use std::path::Path;

use crate::database::{Database, Engine};
use crate::ports::free_ports;

/// Where Debian's galera-4 puts its library.
const PROVIDER: &str = "/usr/lib/galera/libgalera_smm.so";

/// A running cluster. Dropping it kills its nodes and removes their files.
#[derive(Debug)]
pub struct Galera {
    nodes: Vec<Database>,
}

impl Galera {
    /// A cluster of so many nodes, with an empty database `test`. Each has its binary log, with what came from the others.
    ///
    /// # Panics
    /// With what a node wrote, when it does not start.
    pub fn start(nodes: usize) -> Galera {
        assert!(Path::new(PROVIDER).exists(), "{PROVIDER} is missing; scripts/install-test-deps.sh installs it");
        let ports: Vec<u16> = (0..nodes).map(|_| free_ports(3)).collect();
        let all: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        let mut cluster = Galera { nodes: Vec::new() };
        for (number, port) in ports.iter().enumerate() {
            let [listen, receive, transfer] = [0, 1, 2].map(|more| format!("127.0.0.1:{}", port + more));
            let args = [
                "--wsrep-on=ON".to_owned(),
                format!("--wsrep-provider={PROVIDER}"),
                format!(
                    "--wsrep-provider-options=gmcast.listen_addr=tcp://{listen};ist.recv_addr={receive};gcache.size=16M"
                ),
                format!("--wsrep-cluster-address=gcomm://{}", all.join(",")),
                format!("--wsrep-node-address={listen}"),
                format!("--wsrep-node-name=node{number}"),
                "--wsrep-sst-method=rsync".to_owned(),
                format!("--wsrep-sst-receive-address={transfer}"),
                "--binlog-format=ROW".to_owned(),
                "--log-bin".to_owned(),
                "--log-slave-updates".to_owned(),
                format!("--server-id={}", number + 1),
                "--innodb-autoinc-lock-mode=2".to_owned(),
            ];
            let mut args: Vec<&str> = args.iter().map(String::as_str).collect();
            if number == 0 {
                args.push("--wsrep-new-cluster");
                let mut first = Database::begin(Engine::Mariadb, &args, &[], None);
                // Only once: from now on it joins the others.
                first.set_args(&args[..args.len() - 1]);
                cluster.nodes.push(first);
            } else {
                cluster.nodes.push(Database::join(&args));
            }
        }
        cluster
    }

    /// The node with this number.
    ///
    /// # Panics
    /// When there is none.
    pub fn node(&self, number: usize) -> &Database {
        &self.nodes[number]
    }

    /// Kills a node.
    ///
    /// # Panics
    /// When it is not running.
    pub fn kill(&mut self, number: usize) {
        self.nodes[number].kill();
    }

    /// Starts a node that was killed, and waits until it has what it missed.
    ///
    /// # Panics
    /// With what it wrote, when it does not.
    pub fn rejoin(&mut self, number: usize) {
        self.nodes[number].start();
    }
}
