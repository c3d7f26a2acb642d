//! Text and meta commands. The body is an ordinary function beside the codec.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nuthatch_proto::fuzz::fuzz_ascii(data));
