//! Only settling makes a permit.
use vambrace_core::digest::Digest;
use vambrace_core::fence::Fence;
use vambrace_core::settle::Permit;

fn forge(digest: Digest) -> Permit {
    Permit { digest, vouchers: Vec::new(), fence: Fence::default() }
}

fn main() {}
