#![no_main]

use agentwire_core::framing::Framing;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| agentwire_fuzz::framing(Framing::Sse, data));
