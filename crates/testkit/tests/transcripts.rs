//! The transcript runner is right about a server that is right, and about one that is not.

use nuthatch_testkit::{Transcript, transcript};

#[test]
fn transcripts_hold_over_every_transport_worker_count_and_cut() {
    transcript::run_directory(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts"));
}

#[test]
fn wrong_expectation_is_reported_with_its_line() {
    let text = "> set a 0 0 1\n> a\n< STORED\n> get a\n< VALUE a 0 1\n< b\n";
    let failures = Transcript::parse("wrong", text).unwrap().failures();
    assert_eq!(failures.len(), 4, "one for each transport and worker count: {failures:?}");
    for failure in failures {
        assert!(
            failure.starts_with("wrong (") && failure.ends_with("line 6: expected \"b\" and got \"a\""),
            "{failure}"
        );
    }
}

#[test]
fn close_that_does_not_come_as_expected_is_reported() {
    let failures = Transcript::parse("closed", "> quit\n< BYE\n").unwrap().failures();
    assert_eq!(failures.len(), 4);
    assert!(failures[0].contains("line 2: expected \"BYE\" and the server closed the connection"), "{}", failures[0]);
}
