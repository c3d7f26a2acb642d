//! A client that notices when the server stops serving others.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::common::Client;

/// The connection next to it: set up before, asked after.
pub(crate) struct Neighbour<S = TcpStream>(pub(crate) Client<S>);

impl<S: Read + Write> Neighbour<S> {
    /// Has `client` store what it asks for later.
    #[track_caller]
    pub(crate) fn new(mut client: Client<S>) -> Neighbour<S> {
        client.ask("set neighbour 0 0 2\r\nok\r\n", "STORED\r\n");
        Neighbour(client)
    }

    #[track_caller]
    pub(crate) fn is_well(&mut self) {
        self.0.ask("get neighbour\r\n", "VALUE neighbour 0 2\r\nok\r\nEND\r\n");
    }
}
