//! The steps of the pipeline cannot be called one by one from outside.
fn main() {
    let _ = vambrace_broker::perform::perform;
    let _ = vambrace_broker::start::Started;
}
