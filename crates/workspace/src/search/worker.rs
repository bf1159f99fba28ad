//! One worker of a search: reads directories, opens files through their directory's handle, and runs the matcher over the
//! content. Buffers and searcher live as long as the worker; a file costs an open, an fstat, a read and a close.

use std::ffi::{CStr, CString};
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use grep_regex::RegexMatcher;
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder};
use rustix::buffer::spare_capacity;
use rustix::fs::{FileType, Stat};

use super::SearchMode;
use super::ignore::{IgnoreFiles, IgnoreLevel};
use super::search_state::{HardLinkedFile, OpenDir, SearchState, SearchTask};
use super::sink::FileSink;
use crate::edit::read_all;
use crate::entries::EntryBuffer;
use crate::handle::{file_type, link_count, open_entry};
use crate::hard_links::{HardLinkCounts, links_unchanged};
use crate::masking::{PositionedReader, SecretText};
use crate::text::Bom;

/// Smaller files are read in one call. The searcher's buffer has the same size, so a NUL byte anywhere in such a file has
/// the same effect on both code paths.
const SMALL_FILE_BYTES: usize = 64 * 1024;
/// Files with a longer line are skipped.
const MAX_LINE_BYTES: usize = 8 * 1024 * 1024;
/// Maximum size of a UTF-16 file, which is read and decoded as a whole.
const MAX_UTF16_BYTES: u64 = 64 * 1024 * 1024;
/// Bytes of a file that one regex budget covers.
const BYTES_PER_BUDGET: usize = 8 * 1024 * 1024;
/// Files of one directory that form one task.
const FILES_PER_TASK: usize = 48;

/// Per-thread state of a search.
pub(crate) struct Worker<'h> {
    search: &'h SearchState,
    index: usize,
    // A clone has its own scratch memory; sharing one would cause contention.
    matcher: RegexMatcher,
    searcher: Searcher,
    bytes: Vec<u8>,
    entries: EntryBuffer,
    rel_path: String,
}

impl<'h> Worker<'h> {
    pub(crate) fn new(search: &'h SearchState, index: usize) -> Self {
        let context = if search.request.mode == SearchMode::Lines { search.request.context_lines } else { 0 };
        let searcher = SearcherBuilder::new()
            .line_number(search.request.mode == SearchMode::Lines)
            .before_context(context)
            .after_context(context)
            .binary_detection(BinaryDetection::quit(0))
            .heap_limit(Some(MAX_LINE_BYTES))
            // Reported offsets must be those of the file.
            .bom_sniffing(false)
            .build();
        Self {
            search,
            index,
            matcher: search.pattern.matcher.clone(),
            searcher,
            bytes: Vec::with_capacity(SMALL_FILE_BYTES),
            entries: EntryBuffer::new(),
            rel_path: String::new(),
        }
    }

    /// Processes tasks until the queue is empty or stopped.
    pub(crate) fn run(mut self) {
        while let Some(mut taken) = self.search.queue.take() {
            match taken.work() {
                Some(SearchTask::Directory { rel_path, rules }) => self.dir(rel_path, &rules),
                Some(SearchTask::Files { dir, names }) => self.files(&dir, &names),
                Some(SearchTask::File { rel_path, stat, file }) => self.matching(&rel_path, &stat, file),
                Some(SearchTask::HardLinked(files)) => self.linked(files),
                None => {}
            }
        }
    }

    /// Whether the path filter excludes the current path.
    fn hidden(&self) -> bool {
        let path_filter = self.search.request.path_filter.as_ref();
        path_filter.is_some_and(|path_filter| {
            !path_filter.admits(&self.search.ws.scope().scoped_path(&self.rel_path))
        })
    }

    fn dir(&mut self, rel_path: String, rules: &Arc<IgnoreLevel>) {
        // Removed, unreadable or on another mount: nothing to search.
        let Ok(handle) = self.search.ws.root().open_dir(&rel_path) else { return };
        let mut found: Vec<(CString, FileType)> = Vec::new();
        let mut marks = IgnoreFiles::default();
        let _ = self.entries.for_each(handle.as_fd(), |name, kind, _| {
            marks.note(name.to_bytes());
            if matches!(kind, FileType::RegularFile | FileType::Directory) {
                found.push((name.to_owned(), kind));
            }
            ControlFlow::Continue(())
        });
        let rules = rules.below(handle.as_fd(), &rel_path, marks);
        let mut files = Vec::with_capacity(found.len());
        let mut dirs = Vec::new();
        for (name, kind) in found {
            let is_dir = kind == FileType::Directory;
            // A name that is not UTF-8 has no path that could be reported.
            let Ok(text) = name.to_str() else { continue };
            self.set_path(&rel_path, text);
            if (is_dir && !self.search.request.recursive)
                || rules.skips(&self.rel_path, text, is_dir)
                || self.search.ws.scope().blocks_entry(&self.rel_path)
                || (!is_dir && self.hidden())
            {
                continue;
            }
            if is_dir {
                dirs.push(SearchTask::Directory {
                    rel_path: self.rel_path.clone(),
                    rules: Arc::clone(&rules),
                });
            } else {
                files.push(name);
            }
        }
        if !dirs.is_empty() {
            self.search.queue.add(dirs);
        }
        let dir = Arc::new(OpenDir { rel_path, handle });
        while self.search.threads > 1 && files.len() > FILES_PER_TASK {
            let names = files.split_off(files.len() - FILES_PER_TASK);
            self.search.queue.add([SearchTask::Files { dir: Arc::clone(&dir), names }]);
        }
        self.files(&dir, &files);
    }

    fn files(&mut self, dir: &OpenDir, names: &[CString]) {
        for name in names {
            if self.search.stopped() {
                return;
            }
            if let Ok(text) = name.to_str() {
                self.set_path(&dir.rel_path, text);
                self.file(dir, name);
            }
        }
    }

    fn file(&mut self, dir: &OpenDir, name: &CStr) {
        let opened = open_entry(dir.handle.as_fd(), name);
        let opened = opened.and_then(|file| Ok((rustix::fs::fstat(&file)?, file)));
        let Ok((stat, file)) = opened else {
            self.search.with_results(|results| results.skipped += 1);
            return;
        };
        if file_type(&stat) != FileType::RegularFile || !self.search.ws.root().is_on_volume(&stat) {
            return;
        }
        if link_count(&stat) > 1 {
            self.search.defer(HardLinkedFile { rel_path: self.rel_path.clone(), stat });
            return;
        }
        let rel_path = std::mem::take(&mut self.rel_path);
        self.matching(&rel_path, &stat, file);
        self.rel_path = rel_path;
    }

    fn linked(&mut self, files: Vec<HardLinkedFile>) {
        let ws = &self.search.ws;
        let counts = HardLinkCounts::count(
            ws,
            files.iter().map(|file| &file.stat),
            self.search.request.hard_link_filter.as_ref(),
            || !self.search.stopped(),
        );
        for HardLinkedFile { rel_path, stat } in files {
            if self.search.stopped() {
                return;
            }
            let opened = ws.root().open(&rel_path);
            let opened = opened.and_then(|file| Ok((rustix::fs::fstat(&file)?, file)));
            match opened {
                Ok((now, file))
                    if links_unchanged(&stat, &now) && counts.found(&stat) == link_count(&stat) =>
                {
                    self.matching(&rel_path, &now, file);
                }
                _ => self.search.with_results(|results| results.skipped += 1),
            }
        }
    }

    /// Searches an open regular file.
    fn matching(&mut self, rel_path: &str, stat: &Stat, file: OwnedFd) {
        let (input, mut done) = (self.head(stat, &file), Ok(()));
        let mut sink = FileSink::new(self.search, self.index, &self.matcher, rel_path);
        match &input {
            Err(error) => done = Err(io::Error::from(error.kind())),
            Ok(SearchInput::Whole) => {
                let text = self.bytes.get(bom_bytes(&self.bytes)..).unwrap_or_default();
                sink.binary = memchr::memchr(0, text).is_some();
                if !sink.binary {
                    sink.set_secret_text(SecretText::Text(text));
                    self.search.begin_matching(self.index, Duration::ZERO);
                    done = self.searcher.search_slice(&self.matcher, text, &mut sink);
                }
            }
            Ok(SearchInput::Utf16(text)) => {
                sink.set_secret_text(SecretText::Text(text.as_bytes()));
                let metered = TimedReader::new(self.search, self.index, text.as_bytes());
                done = self.searcher.search_reader(&self.matcher, metered, &mut sink);
            }
            Ok(SearchInput::Large) => {
                let at = bom_bytes(&self.bytes) as u64;
                sink.set_secret_text(SecretText::File(file.as_fd(), at));
                let metered =
                    TimedReader::new(self.search, self.index, PositionedReader { file: file.as_fd(), at });
                done = self.searcher.search_reader(&self.matcher, metered, &mut sink);
            }
        }
        self.search.end_matching(self.index);
        let (binary, failed) = (sink.binary, done.is_err());
        if binary || failed {
            self.search.with_results(|results| {
                results.binary += u64::from(binary);
                results.skipped += u64::from(failed);
            });
        }
        sink.finish_file();
    }

    /// Reads a small file as a whole, and the first bytes of any other.
    fn head(&mut self, stat: &Stat, file: &OwnedFd) -> io::Result<SearchInput> {
        self.bytes.clear();
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        if size < SMALL_FILE_BYTES as u64 {
            rustix::io::read(file, spare_capacity(&mut self.bytes))?;
        } else {
            PositionedReader { file: file.as_fd(), at: 0 }.take(3).read_to_end(&mut self.bytes)?;
        }
        match Bom::of(&self.bytes) {
            Some(Bom::Utf16Le) => read_utf16(file, size, u16::from_le_bytes),
            Some(Bom::Utf16Be) => read_utf16(file, size, u16::from_be_bytes),
            // A small file may have grown meanwhile.
            _ if size < SMALL_FILE_BYTES as u64 && self.bytes.len() < SMALL_FILE_BYTES => {
                Ok(SearchInput::Whole)
            }
            _ => Ok(SearchInput::Large),
        }
    }

    fn set_path(&mut self, dir: &str, name: &str) {
        self.rel_path.clear();
        self.rel_path.push_str(dir);
        if !dir.is_empty() {
            self.rel_path.push('/');
        }
        self.rel_path.push_str(name);
    }
}

/// How a file is searched.
enum SearchInput {
    /// The whole file is in the buffer.
    Whole,
    /// Decoded from UTF-16, which would look binary because of its NUL bytes.
    Utf16(String),
    /// Streamed in chunks.
    Large,
}

fn read_utf16(file: &OwnedFd, size: u64, unit: fn([u8; 2]) -> u16) -> io::Result<SearchInput> {
    let bytes = read_all(file.as_fd(), size, MAX_UTF16_BYTES)?;
    let bytes = bytes.ok_or(io::ErrorKind::FileTooLarge)?;
    let units = bytes.as_chunks().0.iter().skip(1).map(|pair| unit(*pair));
    Ok(SearchInput::Utf16(
        char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect(),
    ))
}

/// Length of the UTF-8 byte order mark, or 0.
fn bom_bytes(head: &[u8]) -> usize {
    if Bom::of(head) == Some(Bom::Utf8) { 3 } else { 0 }
}

/// A reader that stops the worker's matching clock while it reads, so that I/O does not use up the regex budget.
struct TimedReader<'h, R> {
    search: &'h SearchState,
    worker: usize,
    inner: R,
    since_reset: usize,
}

impl<'h, R: Read> TimedReader<'h, R> {
    fn new(search: &'h SearchState, worker: usize, inner: R) -> Self {
        Self { search, worker, inner, since_reset: 0 }
    }
}

impl<R: Read> Read for TimedReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut spent = self.search.end_matching(self.worker);
        if self.search.stopped() {
            return Ok(0);
        }
        let read = self.inner.read(buffer)?;
        self.since_reset += read;
        if self.since_reset > BYTES_PER_BUDGET {
            self.since_reset = 0;
            spent = Duration::ZERO;
        }
        self.search.begin_matching(self.worker, spent);
        Ok(read)
    }
}
