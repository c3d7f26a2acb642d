//! Many memcached servers as one: where a key lives (`placement`), and the connections, deadlines and failures on the
//! way there (`client`). Knows the wire formats by `nuthatch-proto`, and no store.
#![forbid(unsafe_code)]
