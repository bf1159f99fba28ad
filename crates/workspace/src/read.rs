//! Reading a file: lines, hash and facts from one pass over one open handle, so that the hash is the hash of
//! what was read. The common case, a few kilobytes, is one open, one look, one read, one look.
//!
//! Who reads a part of a file gets no part of a secret: what tells a secret may stand outside of the part, so secrets are
//! looked for around it too.

use std::io::ErrorKind;

use rustix::fs::Stat;
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use vambrace_core::path::ScopedPath;

use crate::census::unmoved;
use crate::fault::{FileFault, shown};
use crate::resolve::{Kind, Resolved};
use crate::search::{SecretFinder, Shade, Source};
use crate::text::{Bom, Eol, EolCount, Indent, has_magic, indent_of, looks_binary};
use crate::visible::Visible;
use crate::workspace::Workspace;

mod pick;
mod pieces;

use pick::{LinePicker, Picked};
use pieces::Pieces;

/// Lines given when no end is asked for.
const DEFAULT_LINES: u64 = 200;
/// Nothing larger is hashed.
const MAX_FILE_BYTES: u64 = 100 * 1024 * 1024;
/// How much of the start decides whether a file is text.
const HEAD_BYTES: usize = 8 * 1024;
/// How often a file that changes meanwhile is read again.
const ATTEMPTS: usize = 4;

/// What to read of a file.
#[derive(Debug, Clone)]
pub struct ReadRequest {
    /// From 1; the first line when left out.
    pub start_line: Option<u64>,
    /// Inclusive; 200 lines when left out.
    pub end_line: Option<u64>,
    /// Bytes of content wanted at most.
    pub max_bytes: usize,
    /// What `max_bytes` is clamped to, and the largest binary file given.
    pub hard_cap: usize,
    /// Extensions, in lower case, of binary files that are given.
    pub allow_binary: Vec<String>,
    /// Where every other name of the file must lie; anywhere in scope when left out.
    pub kin: Option<Visible>,
    /// Finds secrets, where not all of the file is given: they are shown as their marks. Whoever gets all of it finds them there.
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
            kin: None,
            secrets: None,
        }
    }
}

/// What was in it.
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

/// Lines, both inclusive, from 1; empty when the end is before the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LineRange {
    /// The first line given.
    pub start_line: u64,
    /// The last line given, perhaps cut.
    pub end_line: u64,
}

/// A file, read.
#[derive(Debug, Clone)]
pub struct FileRead {
    /// Its one spelling.
    pub path: ScopedPath,
    /// The lines asked for.
    pub content: Content,
    /// Of the whole file, in bytes.
    pub size: u64,
    /// What was returned.
    pub returned_range: LineRange,
    /// Lines of the whole file.
    pub total_lines: u64,
    /// `sha256:` and the hash of the whole file.
    pub base_hash: String,
    /// Whether the byte cap cut something, or the file goes on past the default end.
    pub truncated: bool,
    /// Line endings of the whole file.
    pub eol: Eol,
    /// Its byte order mark.
    pub bom: Option<Bom>,
    /// Its indentation.
    pub indent: Indent,
    /// Secrets that are shown as their marks.
    pub masked: u32,
}

impl Workspace {
    /// Reads lines of a text file, or the whole of an allowed binary one.
    pub fn read(&self, path: &ScopedPath, want: &ReadRequest) -> Result<FileRead, FileFault> {
        self.read_open(&self.resolve(path)?, want)
    }

    /// Reads a file that was opened before: what its name means by now does not matter.
    pub fn read_open(&self, file: &Resolved, want: &ReadRequest) -> Result<FileRead, FileFault> {
        let path = &file.path;
        let start = want.start_line.unwrap_or(1);
        let end = want.end_line.unwrap_or(start.saturating_add(DEFAULT_LINES - 1));
        if start == 0 || end < start {
            let why =
                format!("lines count from 1 and `end_line` is not before `start_line`; got {start} to {end}");
            return Err(FileFault::BadRequest { why });
        }
        if file.kind == Kind::Folder {
            return Err(FileFault::NotAFile { path: shown(&path.to_string()), what: "a folder" });
        }
        self.check_names(file, want.kin.as_ref())?;
        let pass = Pass { file, want, range: LineRange { start_line: start, end_line: end } };
        let fault = |errno| FileFault::from_errno(errno, &path.to_string());
        let mut before = file.facts;
        for attempt in 1.. {
            let read = pass.run(&before);
            let after = rustix::fs::fstat(file.handle()).map_err(fault)?;
            if attempt == ATTEMPTS || unchanged(&before, &after) {
                return read;
            }
            before = after;
        }
        Err(FileFault::Moving { path: shown(&path.to_string()) })
    }
}

fn unchanged(before: &Stat, after: &Stat) -> bool {
    unmoved(before, after)
        && (before.st_size, before.st_mtime, before.st_mtime_nsec)
            == (after.st_size, after.st_mtime, after.st_mtime_nsec)
}

/// One pass over an open file.
struct Pass<'a> {
    file: &'a Resolved,
    want: &'a ReadRequest,
    range: LineRange,
}

impl Pass<'_> {
    fn run(&self, facts: &Stat) -> Result<FileRead, FileFault> {
        let size = u64::try_from(facts.st_size).unwrap_or(0);
        self.check_size(size, MAX_FILE_BYTES)?;
        let mut pieces = Pieces::new(self.file.handle(), size);
        let first = pieces.next().map_err(|errno| self.fault(errno))?;
        let head = first.get(..HEAD_BYTES).unwrap_or(first);
        let bom = Bom::of(head);
        if self.allows_binary(head) {
            return self.binary(pieces);
        }
        if let Some(bom @ (Bom::Utf16Le | Bom::Utf16Be)) = bom {
            let why = format!("it starts with the byte order mark of `{}`", bom.as_str());
            return Err(FileFault::NotUtf8 { path: self.shown(), why });
        }
        if looks_binary(head) {
            return Err(FileFault::Binary { path: self.shown() });
        }
        self.text(pieces, bom)
    }

    fn text(&self, mut pieces: Pieces<'_>, bom: Option<Bom>) -> Result<FileRead, FileFault> {
        let cap = self.want.max_bytes.min(self.want.hard_cap);
        let mut hash = Sha256::new();
        let mut eol = EolCount::default();
        let mut picker = LinePicker::new(self.range, cap);
        let mut indent = None;
        let mut ends_line = true;
        let mut offset = 0_u64;
        loop {
            hash.update(pieces.fresh());
            let piece = pieces.piece();
            let whole = match simdutf8::compat::from_utf8(piece) {
                Ok(_) => piece,
                Err(error) if error.error_len().is_none() && !pieces.ended() => {
                    piece.get(..error.valid_up_to()).unwrap_or(piece)
                }
                Err(error) => {
                    let at = offset + error.valid_up_to() as u64;
                    let why = format!("the byte at offset {at} does not belong there");
                    return Err(FileFault::NotUtf8 { path: self.shown(), why });
                }
            };
            let marked = if offset == 0 && bom.is_some() { 3 } else { 0 };
            let text = whole.get(marked..).unwrap_or(whole);
            eol.feed(text);
            picker.feed(text);
            indent.get_or_insert_with(|| indent_of(text));
            ends_line = text.last().map_or(ends_line, |byte| *byte == b'\n');
            offset += whole.len() as u64;
            if pieces.ended() {
                break;
            }
            self.check_size(offset, MAX_FILE_BYTES)?;
            let kept = piece.len() - whole.len();
            pieces.keep_last(kept);
            pieces.next().map_err(|errno| self.fault(errno))?;
        }
        let (newlines, eol) = eol.finish();
        let total_lines = newlines + u64::from(!ends_line);
        let Picked { mut bytes, from, range: returned_range, cut } = picker.finish(total_lines);
        let marks = if bom.is_some() { 3 } else { 0 };
        let whole = from == 0 && bytes.len() as u64 + marks == offset;
        let masked = if whole { 0 } else { self.mask(&mut bytes, from, marks)? };
        let more = self.want.end_line.is_none() && total_lines > returned_range.end_line;
        let beyond = self.range.start_line > total_lines;
        // Only whole characters were picked from text that was checked.
        let content = String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
        Ok(FileRead {
            path: self.file.path.clone(),
            content: Content::Text(content),
            size: offset,
            returned_range,
            total_lines,
            base_hash: named(&hash.finalize()),
            truncated: cut || (more && !beyond),
            eol,
            bom,
            indent: indent.unwrap_or(Indent::None),
            masked,
        })
    }

    /// Puts marks in place of the secrets, which may begin before this part of the text and end behind it.
    fn mask(&self, part: &mut Vec<u8>, from: u64, skip: u64) -> Result<u32, FileFault> {
        let Some(finder) = self.want.secrets.as_ref().filter(|_| !part.is_empty()) else { return Ok(0) };
        let found = Shade::new(finder, Source::File(self.file.handle(), skip)).of_line(from, part);
        let secrets = found.map_err(|error| match Errno::from_io_error(&error) {
            Some(errno) => self.fault(errno),
            None if error.kind() == ErrorKind::ResourceBusy => FileFault::Moving { path: self.shown() },
            None => FileFault::Io { path: self.shown(), why: error.to_string() },
        })?;
        if !secrets.is_empty() {
            *part = secrets.marked(part, 0).0;
        }
        Ok(secrets.count())
    }

    fn binary(&self, mut pieces: Pieces<'_>) -> Result<FileRead, FileFault> {
        let mut bytes = Vec::new();
        loop {
            bytes.extend_from_slice(pieces.piece());
            self.check_size(bytes.len() as u64, self.want.hard_cap as u64)?;
            if pieces.ended() {
                break;
            }
            pieces.keep_last(0);
            pieces.next().map_err(|errno| self.fault(errno))?;
        }
        Ok(FileRead {
            path: self.file.path.clone(),
            size: bytes.len() as u64,
            returned_range: LineRange { start_line: 1, end_line: 0 },
            total_lines: 0,
            base_hash: named(&Sha256::digest(&bytes)),
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
        self.want.allow_binary.contains(&extension)
            && has_magic(&extension, head)
            && (looks_binary(head) || extension == "pdf" || std::str::from_utf8(head).is_err())
    }

    fn check_size(&self, size: u64, cap: u64) -> Result<(), FileFault> {
        if size <= cap { Ok(()) } else { Err(FileFault::TooLarge { path: self.shown(), size, cap }) }
    }

    fn fault(&self, errno: Errno) -> FileFault {
        FileFault::from_errno(errno, &self.shown())
    }

    fn shown(&self) -> String {
        shown(&self.file.path.to_string())
    }
}

fn named(digest: &[u8]) -> String {
    let mut text = String::with_capacity(7 + digest.len() * 2);
    text.push_str("sha256:");
    for byte in digest {
        for nibble in [byte >> 4, byte & 15] {
            text.push(char::from_digit(u32::from(nibble), 16).unwrap_or('0'));
        }
    }
    text
}
