//! Answers of a fleet's servers, to requests under way. The body is an ordinary function beside the wire formats.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nuthatch_fleet::client::fuzz::fuzz_answers(data));
