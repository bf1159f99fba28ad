//! One worker of a search: looks through folders, opens files by their folder's handle, and runs the matcher
//! over what it reads. Buffers and searcher live as long as the worker; a file costs an open, a look, a read
//! and a close.

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
use super::hunt::{Hunt, Linked, OpenFolder, Work};
use super::ignore::{Level, Marks};
use super::shade::{FileFrom, Source};
use super::sink::FileSink;
use crate::census::{Census, unmoved};
use crate::entries::EntryBuffer;
use crate::handle::{file_type, links, open_entry};
use crate::loom::read_all;
use crate::text::Bom;

/// Smaller files are read at once. The searcher's own buffer has this size too, so a NUL byte anywhere in
/// such a file has the same effect on both ways.
const SMALL_BYTES: usize = 64 * 1024;
/// The longest line that is searched.
const MAX_LINE_BYTES: usize = 8 * 1024 * 1024;
/// The longest file in UTF-16, which is read whole.
const MAX_WIDE_BYTES: u64 = 64 * 1024 * 1024;
/// So much of a file is matched on one budget.
const BUDGET_BYTES: usize = 8 * 1024 * 1024;
/// Files of one folder that a worker takes at once.
const BATCH: usize = 48;

/// A thread's own part of a search.
pub(crate) struct Worker<'h> {
    hunt: &'h Hunt,
    index: usize,
    // A clone has its own scratch memory; a shared one would be fought over.
    matcher: RegexMatcher,
    searcher: Searcher,
    bytes: Vec<u8>,
    entries: EntryBuffer,
    place: String,
}

impl<'h> Worker<'h> {
    pub(crate) fn new(hunt: &'h Hunt, index: usize) -> Self {
        let context = if hunt.want.mode == SearchMode::Lines { hunt.want.context_lines } else { 0 };
        let searcher = SearcherBuilder::new()
            .line_number(hunt.want.mode == SearchMode::Lines)
            .before_context(context)
            .after_context(context)
            .binary_detection(BinaryDetection::quit(0))
            .heap_limit(Some(MAX_LINE_BYTES))
            // Places in a file must be those of what is searched.
            .bom_sniffing(false)
            .build();
        Self {
            hunt,
            index,
            matcher: hunt.pattern.matcher.clone(),
            searcher,
            bytes: Vec::with_capacity(SMALL_BYTES),
            entries: EntryBuffer::new(),
            place: String::new(),
        }
    }

    /// Works until there is nothing left.
    pub(crate) fn run(mut self) {
        while let Some(mut taken) = self.hunt.queue.take() {
            match taken.work() {
                Some(Work::Folder { place, rules }) => self.folder(place, &rules),
                Some(Work::Files { folder, names }) => self.files(&folder, &names),
                Some(Work::File { place, facts, file }) => self.matching(&place, &facts, file),
                Some(Work::Linked(files)) => self.linked(files),
                None => {}
            }
        }
    }

    /// Whether whoever decided does not let the present place be told.
    fn hidden(&self) -> bool {
        let visible = self.hunt.want.visible.as_ref();
        visible.is_some_and(|visible| !visible.admits(&self.hunt.ws.scope().spell(&self.place)))
    }

    fn folder(&mut self, place: String, rules: &Arc<Level>) {
        // Gone, unreadable or on another mount: nothing to search there.
        let Ok(handle) = self.hunt.ws.root().open_folder(&place) else { return };
        let mut found: Vec<(CString, FileType)> = Vec::new();
        let mut marks = Marks::default();
        let _ = self.entries.each(handle.as_fd(), |name, kind, _| {
            marks.note(name.to_bytes());
            if matches!(kind, FileType::RegularFile | FileType::Directory) {
                found.push((name.to_owned(), kind));
            }
            ControlFlow::Continue(())
        });
        let rules = rules.below(handle.as_fd(), &place, marks);
        let mut files = Vec::with_capacity(found.len());
        let mut folders = Vec::new();
        for (name, kind) in found {
            let is_folder = kind == FileType::Directory;
            // A name that is not UTF-8 has no spelling under which it could be told.
            let Ok(text) = name.to_str() else { continue };
            self.spell(&place, text);
            if (is_folder && !self.hunt.want.recursive)
                || rules.skips(&self.place, text, is_folder)
                || self.hunt.ws.scope().blocks_entry(&self.place)
                || (!is_folder && self.hidden())
            {
                continue;
            }
            if is_folder {
                folders.push(Work::Folder { place: self.place.clone(), rules: Arc::clone(&rules) });
            } else {
                files.push(name);
            }
        }
        if !folders.is_empty() {
            self.hunt.queue.add(folders);
        }
        let folder = Arc::new(OpenFolder { place, handle });
        while self.hunt.threads > 1 && files.len() > BATCH {
            let names = files.split_off(files.len() - BATCH);
            self.hunt.queue.add([Work::Files { folder: Arc::clone(&folder), names }]);
        }
        self.files(&folder, &files);
    }

    fn files(&mut self, folder: &OpenFolder, names: &[CString]) {
        for name in names {
            if self.hunt.stopped() {
                return;
            }
            if let Ok(text) = name.to_str() {
                self.spell(&folder.place, text);
                self.file(folder, name);
            }
        }
    }

    fn file(&mut self, folder: &OpenFolder, name: &CStr) {
        let opened = open_entry(folder.handle.as_fd(), name);
        let opened = opened.and_then(|file| Ok((rustix::fs::fstat(&file)?, file)));
        let Ok((facts, file)) = opened else {
            self.hunt.with_tally(|tally| tally.skipped += 1);
            return;
        };
        if file_type(&facts) != FileType::RegularFile || !self.hunt.ws.root().holds(&facts) {
            return;
        }
        if links(&facts) > 1 {
            self.hunt.put_off(Linked { place: self.place.clone(), facts });
            return;
        }
        let place = std::mem::take(&mut self.place);
        self.matching(&place, &facts, file);
        self.place = place;
    }

    fn linked(&mut self, files: Vec<Linked>) {
        let ws = &self.hunt.ws;
        let census =
            Census::take(ws, files.iter().map(|file| &file.facts), self.hunt.want.kin.as_ref(), || {
                !self.hunt.stopped()
            });
        for Linked { place, facts } in files {
            if self.hunt.stopped() {
                return;
            }
            let opened = ws.root().open(&place);
            let opened = opened.and_then(|file| Ok((rustix::fs::fstat(&file)?, file)));
            match opened {
                Ok((now, file)) if unmoved(&facts, &now) && census.found(&facts) == links(&facts) => {
                    self.matching(&place, &now, file);
                }
                _ => self.hunt.with_tally(|tally| tally.skipped += 1),
            }
        }
    }

    /// Searches an open regular file.
    fn matching(&mut self, place: &str, facts: &Stat, file: OwnedFd) {
        let (wide, mut done) = (self.head(facts, &file), Ok(()));
        let mut sink = FileSink::new(self.hunt, self.index, &self.matcher, place);
        match &wide {
            Err(error) => done = Err(io::Error::from(error.kind())),
            Ok(Head::Whole) => {
                let text = self.bytes.get(bom_bytes(&self.bytes)..).unwrap_or_default();
                sink.binary = memchr::memchr(0, text).is_some();
                if !sink.binary {
                    sink.reads(Source::Text(text));
                    self.hunt.begin_matching(self.index, Duration::ZERO);
                    done = self.searcher.search_slice(&self.matcher, text, &mut sink);
                }
            }
            Ok(Head::Wide(text)) => {
                sink.reads(Source::Text(text.as_bytes()));
                let metered = Metered::new(self.hunt, self.index, text.as_bytes());
                done = self.searcher.search_reader(&self.matcher, metered, &mut sink);
            }
            Ok(Head::Large) => {
                let at = bom_bytes(&self.bytes) as u64;
                sink.reads(Source::File(file.as_fd(), at));
                let metered = Metered::new(self.hunt, self.index, FileFrom { file: file.as_fd(), at });
                done = self.searcher.search_reader(&self.matcher, metered, &mut sink);
            }
        }
        self.hunt.end_matching(self.index);
        let (binary, failed) = (sink.binary, done.is_err());
        if binary || failed {
            self.hunt.with_tally(|tally| {
                tally.binary += u64::from(binary);
                tally.skipped += u64::from(failed);
            });
        }
        sink.finish_file();
    }

    /// Reads a small file, and the beginning of any other.
    fn head(&mut self, facts: &Stat, file: &OwnedFd) -> io::Result<Head> {
        self.bytes.clear();
        let size = u64::try_from(facts.st_size).unwrap_or(0);
        if size < SMALL_BYTES as u64 {
            rustix::io::read(file, spare_capacity(&mut self.bytes))?;
        } else {
            FileFrom { file: file.as_fd(), at: 0 }.take(3).read_to_end(&mut self.bytes)?;
        }
        match Bom::of(&self.bytes) {
            Some(Bom::Utf16Le) => wide(file, size, u16::from_le_bytes),
            Some(Bom::Utf16Be) => wide(file, size, u16::from_be_bytes),
            // A small one may have grown meanwhile.
            _ if size < SMALL_BYTES as u64 && self.bytes.len() < SMALL_BYTES => Ok(Head::Whole),
            _ => Ok(Head::Large),
        }
    }

    fn spell(&mut self, folder: &str, name: &str) {
        self.place.clear();
        self.place.push_str(folder);
        if !folder.is_empty() {
            self.place.push('/');
        }
        self.place.push_str(name);
    }
}

/// How a file is searched.
enum Head {
    /// All of it was read.
    Whole,
    /// It was UTF-16: full of NUL bytes, and text all the same.
    Wide(String),
    /// Piece by piece.
    Large,
}

fn wide(file: &OwnedFd, size: u64, unit: fn([u8; 2]) -> u16) -> io::Result<Head> {
    let bytes = read_all(file.as_fd(), size, MAX_WIDE_BYTES)?;
    let bytes = bytes.ok_or(io::ErrorKind::FileTooLarge)?;
    let units = bytes.as_chunks().0.iter().skip(1).map(|pair| unit(*pair));
    Ok(Head::Wide(char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()))
}

/// How long the mark is that a text in UTF-8 may begin with.
fn bom_bytes(head: &[u8]) -> usize {
    if Bom::of(head) == Some(Bom::Utf8) { 3 } else { 0 }
}

/// A reader that starts the matcher's clock when it hands bytes out and stops it while it waits for more.
struct Metered<'h, R> {
    hunt: &'h Hunt,
    worker: usize,
    inner: R,
    since_reset: usize,
}

impl<'h, R: Read> Metered<'h, R> {
    fn new(hunt: &'h Hunt, worker: usize, inner: R) -> Self {
        Self { hunt, worker, inner, since_reset: 0 }
    }
}

impl<R: Read> Read for Metered<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut spent = self.hunt.end_matching(self.worker);
        if self.hunt.stopped() {
            return Ok(0);
        }
        let read = self.inner.read(buffer)?;
        self.since_reset += read;
        if self.since_reset > BUDGET_BYTES {
            self.since_reset = 0;
            spent = Duration::ZERO;
        }
        self.hunt.begin_matching(self.worker, spent);
        Ok(read)
    }
}
