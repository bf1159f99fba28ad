//! Counts the user's processes, for limits that count the run together with the user's other processes.

/// Number of processes and threads of this user.
pub(crate) fn count_user_processes() -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    #[expect(clippy::disallowed_methods, reason = "the kernel's own list of processes")]
    let Ok(list) = std::fs::read_dir("/proc") else { return 0 };
    let me = rustix::process::getuid().as_raw();
    let threads = list.filter_map(|entry| {
        let entry = entry.ok()?;
        let process = entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit);
        let mine = process && entry.metadata().ok()?.uid() == me;
        // One subdirectory per thread, plus `.` and `..`.
        mine.then(|| {
            entry.path().join("task").symlink_metadata().map_or(1, |facts| facts.nlink().saturating_sub(2))
        })
    });
    threads.sum()
}
