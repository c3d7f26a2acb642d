//! The wire behaviour of every command, one transcript each: see `nuthatch_testkit::transcript` for how they are run.

#[test]
fn the_server_answers_as_the_transcripts_say() {
    nuthatch_testkit::transcript::run_directory(
        &std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts"),
    );
}
