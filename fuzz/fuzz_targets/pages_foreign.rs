//! Pages in the forms of other programs. The body is an ordinary function beside the code.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nuthatch_pages::fuzz::fuzz_foreign(data));
