//! Lists from name servers: the addresses of a name, or the targets of its SRV records (RFC 2782).

use std::net::SocketAddr;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{LookupIpStrategy, NameServerConfig, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::RData;

use super::{Answer, MembershipError, Source};
use crate::placement::ServerSpec;

/// Asks `resolvers`, or the system's name servers, for what `source` names. Lists are ordered by what is in them, so that the order in
/// which a name server answers moves no keys.
pub(super) async fn ask(source: &Source, resolvers: &[SocketAddr]) -> Answer {
    let failed = |reason: String| MembershipError::Unanswered(source.clone(), reason);
    let resolver = resolver(resolvers).map_err(|error| failed(error.to_string()))?;
    let servers = match source {
        Source::Dns { host, port } => {
            let found = resolver.lookup_ip(host.as_str()).await.map_err(|error| failed(error.to_string()))?;
            let mut addresses: Vec<_> = found.iter().collect();
            addresses.sort_unstable();
            addresses.dedup();
            addresses.into_iter().map(|address| ServerSpec::new(&address.to_string(), *port)).collect()
        }
        Source::Srv { name } => {
            let found = resolver.srv_lookup(name.as_str()).await.map_err(|error| failed(error.to_string()))?;
            let records = found.answers().iter().filter_map(|record| match &record.data {
                RData::SRV(srv) => Some((srv.priority, srv.weight, srv.target.to_utf8(), srv.port)),
                _ => None,
            });
            targets(records.collect())
        }
        Source::Server(_) | Source::Etcd { .. } => Vec::new(),
    };
    if servers.is_empty() { Err(MembershipError::Empty(source.clone())) } else { Ok(servers) }
}

/// The servers of the lowest priority. A weight of 0 is the least there is, and where all have it they are alike.
fn targets(records: Vec<(u16, u16, String, u16)>) -> Vec<ServerSpec> {
    let lowest = records.iter().map(|(priority, ..)| *priority).min();
    let mut servers: Vec<ServerSpec> = records
        .into_iter()
        // A target of "." says that the service is not offered.
        .filter(|(priority, _, target, _)| Some(*priority) == lowest && target != ".")
        .map(|(_, weight, target, port)| {
            ServerSpec::new(target.trim_end_matches('.'), port).weighing(u32::from(weight).max(1))
        })
        .collect();
    servers.sort_by(|one, other| (&one.host, one.port).cmp(&(&other.host, other.port)));
    servers.dedup_by(|one, other| one.is_same_server(other));
    servers
}

fn resolver(resolvers: &[SocketAddr]) -> Result<TokioResolver, hickory_resolver::net::NetError> {
    let mut builder = if resolvers.is_empty() {
        TokioResolver::builder_tokio()?
    } else {
        let server = |address: &SocketAddr| {
            let mut server = NameServerConfig::udp_and_tcp(address.ip());
            server.connections.iter_mut().for_each(|connection| connection.port = address.port());
            server
        };
        let config = ResolverConfig::from_parts(None, Vec::new(), resolvers.iter().map(server).collect());
        TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
    };
    let options = builder.options_mut();
    // How often is asked is for the caller to say.
    options.cache_size = 0;
    options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    builder.build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_those_of_the_lowest_priority_in_the_order_of_their_names() {
        let record = |priority, weight, target: &str, port| (priority, weight, target.to_owned(), port);
        let found = targets(vec![
            record(10, 5, "b.example.", 1),
            record(20, 5, "spare.example.", 1),
            record(10, 0, "a.example.", 2),
            record(10, 7, "a.example.", 1),
        ]);
        let expected = [("a.example", 1, 7), ("a.example", 2, 1), ("b.example", 1, 5)]
            .map(|(host, port, weight)| ServerSpec::new(host, port).weighing(weight));
        assert_eq!(found, expected);
        assert_eq!(targets(vec![record(0, 0, ".", 0)]), []);
    }
}
