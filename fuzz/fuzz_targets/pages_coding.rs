//! Compressed bodies and Accept-Encoding. The body is an ordinary function beside the code.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nuthatch_pages::fuzz::fuzz_coding(data));
