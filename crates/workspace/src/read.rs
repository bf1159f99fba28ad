//! Reads a file: lines, hash and metadata from one pass over one open handle, so the hash is the hash of what was read.
//! A file of a few kilobytes costs one open, one fstat, one read, one fstat.
//!
//! A partial read never returns part of a secret. The text that identifies a secret may be outside the returned part, so
//! secrets are detected around it too.

use std::io::ErrorKind;

use rustix::fs::Stat;
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use vambrace_core::path::ScopedPath;

use crate::error::{FileError, display_path};
use crate::hard_links::links_unchanged;
use crate::masking::{FileSecrets, SecretFinder, SecretText};
use crate::path_filter::PathFilter;
use crate::resolve::{Resolved, ResolvedKind};
use crate::text::{Bom, Eol, EolCount, Indent, has_magic, indent_of, looks_binary};
use crate::workspace::Workspace;

mod chunks;
mod line_picker;

use chunks::FileChunks;
use line_picker::{LinePicker, PickedLines};

/// Lines returned when `end_line` is not given.
const DEFAULT_LINES: u64 = 200;
/// Larger files are not read at all, since the hash needs the whole file.
const MAX_FILE_BYTES: u64 = 100 * 1024 * 1024;
/// Leading bytes that decide whether a file is text.
const SNIFF_BYTES: usize = 8 * 1024;
/// Attempts to read a file that changes during the read.
const MAX_ATTEMPTS: usize = 4;

/// What to read of a file.
#[derive(Debug, Clone)]
pub struct ReadRequest {
    /// From 1; the first line when left out.
    pub start_line: Option<u64>,
    /// Inclusive; 200 lines when left out.
    pub end_line: Option<u64>,
    /// Maximum bytes of content.
    pub max_bytes: usize,
    /// Upper bound of `max_bytes`, and the maximum size of a binary file.
    pub hard_cap: usize,
    /// Extensions, in lower case, of binary files that may be read.
    pub allow_binary: Vec<String>,
    /// Which paths the other hard links of the file may have; anywhere in scope when left out.
    pub hard_link_filter: Option<PathFilter>,
    /// Finds secrets when only part of the file is returned; placeholders replace them. A whole file is redacted by the caller.
    pub secrets: Option<SecretFinder>,
}

impl Default for ReadRequest {
    fn default() -> Self {
        let allow = ["pdf", "png", "jpg", "jpeg", "gif", "webp", "bmp", "ico"];
        Self {
            start_line: None,
            end_line: None,
            max_bytes: 32_000,
            hard_cap: 131_072,
            allow_binary: allow.map(str::to_owned).to_vec(),
            hard_link_filter: None,
            secrets: None,
        }
    }
}

/// Content of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Text without its byte order mark.
    Text(String),
    /// The whole of an allowed binary file.
    Binary(Vec<u8>),
}

impl Content {
    /// `utf-8` or `binary`.
    #[must_use]
    pub fn encoding(&self) -> &'static str {
        match self {
            Self::Text(_) => "utf-8",
            Self::Binary(_) => "binary",
        }
    }
}

/// A line range, both ends inclusive, from 1; empty when the end is before the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LineRange {
    /// The first line returned.
    pub start_line: u64,
    /// The last line returned, possibly truncated.
    pub end_line: u64,
}

/// The result of a read.
#[derive(Debug, Clone)]
pub struct FileRead {
    /// The canonical path.
    pub path: ScopedPath,
    /// The requested lines.
    pub content: Content,
    /// Size of the whole file, in bytes.
    pub size: u64,
    /// The lines in `content`.
    pub returned_range: LineRange,
    /// Lines of the whole file.
    pub total_lines: u64,
    /// `sha256:` and the hash of the whole file.
    pub base_hash: String,
    /// Whether the byte limit cut something, or the file continues past the default end.
    pub truncated: bool,
    /// Line endings of the whole file.
    pub eol: Eol,
    /// Its byte order mark.
    pub bom: Option<Bom>,
    /// Its indentation.
    pub indent: Indent,
    /// Number of secrets replaced by placeholders.
    pub masked: u32,
}

impl Workspace {
    /// Reads lines of a text file, or the whole of an allowed binary one.
    pub fn read(&self, path: &ScopedPath, request: &ReadRequest) -> Result<FileRead, FileError> {
        self.read_open(&self.resolve(path)?, request)
    }

    /// Reads a file that is already open; what its path names by now does not matter.
    pub fn read_open(&self, file: &Resolved, request: &ReadRequest) -> Result<FileRead, FileError> {
        let path = &file.path;
        let start = request.start_line.unwrap_or(1);
        let end = request.end_line.unwrap_or(start.saturating_add(DEFAULT_LINES - 1));
        if start == 0 || end < start {
            let why = format!(
                "lines count from 1 and `end_line` must not be before `start_line`; got {start} to {end}"
            );
            return Err(FileError::BadRequest { why });
        }
        if file.kind == ResolvedKind::Directory {
            return Err(FileError::NotAFile { path: display_path(&path.to_string()), what: "a directory" });
        }
        self.check_hard_links(file, request.hard_link_filter.as_ref())?;
        let pass = ReadPass { file, request, range: LineRange { start_line: start, end_line: end } };
        let file_error = |errno| FileError::from_errno(errno, &path.to_string());
        let mut before = file.stat;
        for attempt in 1.. {
            let read = pass.run(&before);
            let after = rustix::fs::fstat(file.handle()).map_err(file_error)?;
            if attempt == MAX_ATTEMPTS || unchanged(&before, &after) {
                return read;
            }
            before = after;
        }
        Err(FileError::Unstable { path: display_path(&path.to_string()) })
    }
}

fn unchanged(before: &Stat, after: &Stat) -> bool {
    links_unchanged(before, after)
        && (before.st_size, before.st_mtime, before.st_mtime_nsec)
            == (after.st_size, after.st_mtime, after.st_mtime_nsec)
}

/// One pass over an open file.
struct ReadPass<'a> {
    file: &'a Resolved,
    request: &'a ReadRequest,
    range: LineRange,
}

impl ReadPass<'_> {
    fn run(&self, stat: &Stat) -> Result<FileRead, FileError> {
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        self.check_size(size, MAX_FILE_BYTES)?;
        let mut chunks = FileChunks::new(self.file.handle(), size);
        let first = chunks.next().map_err(|errno| self.file_error(errno))?;
        let head = first.get(..SNIFF_BYTES).unwrap_or(first);
        let bom = Bom::of(head);
        if self.allows_binary(head) {
            return self.binary(chunks);
        }
        if let Some(bom @ (Bom::Utf16Le | Bom::Utf16Be)) = bom {
            let why = format!("it starts with the byte order mark of `{}`", bom.as_str());
            return Err(FileError::NotUtf8 { path: self.shown(), why });
        }
        if looks_binary(head) {
            return Err(FileError::Binary { path: self.shown() });
        }
        self.text(chunks, bom)
    }

    fn text(&self, mut chunks: FileChunks<'_>, bom: Option<Bom>) -> Result<FileRead, FileError> {
        let cap = self.request.max_bytes.min(self.request.hard_cap);
        let mut hash = Sha256::new();
        let mut eol = EolCount::default();
        let mut picker = LinePicker::new(self.range, cap);
        let mut indent = None;
        let mut ends_line = true;
        let mut offset = 0_u64;
        loop {
            hash.update(chunks.last_read());
            let chunk = chunks.chunk();
            let whole = match simdutf8::compat::from_utf8(chunk) {
                Ok(_) => chunk,
                Err(error) if error.error_len().is_none() && !chunks.ended() => {
                    chunk.get(..error.valid_up_to()).unwrap_or(chunk)
                }
                Err(error) => {
                    let at = offset + error.valid_up_to() as u64;
                    let why = format!("invalid byte at offset {at}");
                    return Err(FileError::NotUtf8 { path: self.shown(), why });
                }
            };
            let bom_bytes = if offset == 0 && bom.is_some() { 3 } else { 0 };
            let text = whole.get(bom_bytes..).unwrap_or(whole);
            eol.feed(text);
            picker.feed(text);
            indent.get_or_insert_with(|| indent_of(text));
            ends_line = text.last().map_or(ends_line, |byte| *byte == b'\n');
            offset += whole.len() as u64;
            if chunks.ended() {
                break;
            }
            self.check_size(offset, MAX_FILE_BYTES)?;
            let kept = chunk.len() - whole.len();
            chunks.keep_last(kept);
            chunks.next().map_err(|errno| self.file_error(errno))?;
        }
        let (newlines, eol) = eol.finish();
        let total_lines = newlines + u64::from(!ends_line);
        let PickedLines { mut bytes, from, range: returned_range, cut } = picker.finish(total_lines);
        let marks = if bom.is_some() { 3 } else { 0 };
        let whole = from == 0 && bytes.len() as u64 + marks == offset;
        let masked = if whole { 0 } else { self.mask(&mut bytes, from, marks)? };
        let more = self.request.end_line.is_none() && total_lines > returned_range.end_line;
        let beyond = self.range.start_line > total_lines;
        // The picker keeps whole characters of text that was validated above.
        let content = String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
        Ok(FileRead {
            path: self.file.path.clone(),
            content: Content::Text(content),
            size: offset,
            returned_range,
            total_lines,
            base_hash: sha256_text(&hash.finalize()),
            truncated: cut || (more && !beyond),
            eol,
            bom,
            indent: indent.unwrap_or(Indent::None),
            masked,
        })
    }

    /// Replaces secrets, which may begin before this part of the text and end after it, with placeholders.
    fn mask(&self, part: &mut Vec<u8>, from: u64, skip: u64) -> Result<u32, FileError> {
        let Some(finder) = self.request.secrets.as_ref().filter(|_| !part.is_empty()) else { return Ok(0) };
        let found = FileSecrets::new(finder, SecretText::File(self.file.handle(), skip)).in_line(from, part);
        let secrets = found.map_err(|error| match Errno::from_io_error(&error) {
            Some(errno) => self.file_error(errno),
            None if error.kind() == ErrorKind::ResourceBusy => FileError::Unstable { path: self.shown() },
            None => FileError::Io { path: self.shown(), why: error.to_string() },
        })?;
        if !secrets.is_empty() {
            *part = secrets.with_placeholders(part);
        }
        Ok(secrets.count())
    }

    fn binary(&self, mut chunks: FileChunks<'_>) -> Result<FileRead, FileError> {
        let mut bytes = Vec::new();
        loop {
            bytes.extend_from_slice(chunks.chunk());
            self.check_size(bytes.len() as u64, self.request.hard_cap as u64)?;
            if chunks.ended() {
                break;
            }
            chunks.keep_last(0);
            chunks.next().map_err(|errno| self.file_error(errno))?;
        }
        Ok(FileRead {
            path: self.file.path.clone(),
            size: bytes.len() as u64,
            returned_range: LineRange { start_line: 1, end_line: 0 },
            total_lines: 0,
            base_hash: sha256_text(&Sha256::digest(&bytes)),
            truncated: false,
            eol: Eol::None,
            bom: None,
            indent: Indent::None,
            masked: 0,
            content: Content::Binary(bytes),
        })
    }

    fn allows_binary(&self, head: &[u8]) -> bool {
        let name = self.file.path.file_name().unwrap_or_default();
        let Some((_, extension)) = name.rsplit_once('.') else { return false };
        let extension = extension.to_ascii_lowercase();
        self.request.allow_binary.contains(&extension)
            && has_magic(&extension, head)
            && (looks_binary(head) || extension == "pdf" || std::str::from_utf8(head).is_err())
    }

    fn check_size(&self, size: u64, cap: u64) -> Result<(), FileError> {
        if size <= cap { Ok(()) } else { Err(FileError::TooLarge { path: self.shown(), size, cap }) }
    }

    fn file_error(&self, errno: Errno) -> FileError {
        FileError::from_errno(errno, &self.shown())
    }

    fn shown(&self) -> String {
        display_path(&self.file.path.to_string())
    }
}

fn sha256_text(digest: &[u8]) -> String {
    let mut text = String::with_capacity(7 + digest.len() * 2);
    text.push_str("sha256:");
    for byte in digest {
        for nibble in [byte >> 4, byte & 15] {
            text.push(char::from_digit(u32::from(nibble), 16).unwrap_or('0'));
        }
    }
    text
}
