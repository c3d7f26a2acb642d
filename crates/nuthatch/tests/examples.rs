//! The configuration files of `examples/` are right, and say what they are said to say.

use std::path::PathBuf;
use std::process::Command;

/// What `nuthatch check` prints of an example's file.
fn checked(example: &str) -> String {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let file = root.join(example).join("nuthatch.toml");
    let output = Command::new(env!("CARGO_BIN_EXE_nuthatch")).arg("check").arg(&file).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), errors.as_str()), (Some(0), ""), "{}", file.display());
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_one_for_drupal_has_its_bins_on_two_sockets() {
    let told = checked("drupal");
    for (socket, pool) in [("/run/nuthatch/default.sock", "pool default"), ("/run/nuthatch/page.sock", "pool page")] {
        let line = told.lines().find(|line| line.contains(socket)).unwrap_or_else(|| panic!("{socket}: {told}"));
        assert!(line.contains(pool), "{line}");
    }
}

#[test]
fn the_one_for_mediawiki_has_a_pool_for_each_kind_of_cache() {
    let told = checked("mediawiki");
    for (port, pool) in [("11211", "pool default"), ("11212", "pool sessions"), ("11213", "pool parser")] {
        let line = told.lines().find(|line| line.contains(port)).unwrap_or_else(|| panic!("{port}: {told}"));
        assert!(line.contains(pool), "{line}");
    }
}
