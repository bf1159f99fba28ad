//! Counting processes, where a limit counts the run's own together with the user's others.

/// How many processes and threads this user has now.
pub(crate) fn running() -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    #[expect(clippy::disallowed_methods, reason = "the kernel's own list of processes")]
    let Ok(list) = std::fs::read_dir("/proc") else { return 0 };
    let me = rustix::process::getuid().as_raw();
    let threads = list.filter_map(|entry| {
        let entry = entry.ok()?;
        let process = entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit);
        let mine = process && entry.metadata().ok()?.uid() == me;
        // A folder for each thread, and the folder's own two names.
        mine.then(|| {
            entry.path().join("task").symlink_metadata().map_or(1, |facts| facts.nlink().saturating_sub(2))
        })
    });
    threads.sum()
}
