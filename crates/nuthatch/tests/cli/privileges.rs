//! What a server that was started as root reads when it is root no more.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;

use nix::unistd::Uid;

use super::{Place, Reloading, ask};

#[test]
fn a_password_that_only_root_may_read_is_good_until_a_reload_which_says_who_cannot_read_it() {
    if !Uid::effective().is_root() {
        // There is nobody to become who may do less.
        return;
    }
    let place = Place::new();
    let mode = |name: &str, mode| set_permissions(place.path(name), Permissions::from_mode(mode)).unwrap();
    mode("", 0o777);
    let (database, password) = (place.path("shop.db"), place.file("password", "secret\n"));
    mode("password", 0o600);
    let file = |lines: &str| {
        format!(
            "{lines}[pool.shop]\nbackend = \"shop\"\n[table.shop]\nurl = \"sqlite://{}\"\nkey = \"id\"\nvalue = \"v\"\n\
             password_file = \"{}\"\n[[listen]]\nmemcached = \"127.0.0.1:0\"\n",
            database.display(),
            password.display()
        )
    };
    let (first, next) = (file(""), file("[server]\nidle_timeout = 90\n"));
    let mut server = Reloading::start_in(place, "nuthatch", &first, &["-u", "nobody"]);
    let mut stream = server.place.connect();
    assert_eq!(ask(&mut stream, "set a 0 0 3\r\none"), "STORED");
    assert_eq!(
        server.reload(&next),
        [format!(
            "nothing changed: n.toml:9: table.shop.password_file: expected a file with a password: {}: Permission denied \
             (os error 13); user nobody reads it, at each reload too, whoever -u gave up",
            password.display()
        )]
    );
    assert_eq!(ask(&mut stream, "get a"), "VALUE a 0 3");
    let mut stream = server.place.connect();
    assert_eq!(ask(&mut stream, "set b 0 0 3\r\ntwo"), "STORED", "the table goes on");
    set_permissions(&password, Permissions::from_mode(0o644)).unwrap();
    assert_eq!(server.reload(&next), ["idle_timeout: 0 to 90"]);
    assert_eq!(ask(&mut stream, "get b"), "VALUE b 0 3");
}
