//! Values that are shown without the line above them, which holds their name: by a search, or by a read of some lines. The redactor knows a
//! password by its name, so the lines above are read too and redacted together with it. Lines that could not be such a value cost nothing
//! here.

use std::collections::BTreeMap;

use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::path::AskedPath;
use vambrace_workspace::{Content, LineMatch, ReadRequest, Resolved, Visible};

use crate::read_file::clamp;
use crate::tool::Room;

/// Lines above a value in which its name may stand.
const ABOVE: u64 = 3;

/// Masks such values among what a search shows.
pub(crate) fn mask_matches(
    room: &Room,
    kin: Option<&Visible>,
    matches: &mut [LineMatch],
) -> Result<(), CallError> {
    let mut by_path: BTreeMap<String, Vec<&mut LineMatch>> = BTreeMap::new();
    for hit in matches {
        by_path.entry(hit.path.clone()).or_default().push(hit);
    }
    for (path, hits) in by_path {
        let last = hits.iter().map(|hit| hit.line + hit.after.len() as u64).max().unwrap_or(0);
        let mut seen: Option<Above> = None;
        for hit in hits {
            let (line, first) = (hit.line, hit.line.saturating_sub(hit.before.len() as u64));
            let before = (first..).zip(&mut hit.before);
            let after = (line + 1..).zip(&mut hit.after);
            for (number, text) in before.chain([(line, &mut hit.text)]).chain(after) {
                if number < 2 || !may_be_value(text) {
                    continue;
                }
                let seen = match &mut seen {
                    Some(seen) => seen,
                    None => seen.insert(Above::read(room, kin, &path, last)?),
                };
                *text = masked(room, &seen.of(room, kin, number)?, text)?;
            }
        }
    }
    Ok(())
}

/// The lines of a file up to the last that is shown, read once for all of them.
struct Above {
    file: Resolved,
    lines: Vec<String>,
}

impl Above {
    fn read(room: &Room, kin: Option<&Visible>, path: &str, last: u64) -> Result<Self, CallError> {
        let file = room.workspace.resolve(&AskedPath::new(path).parse()?)?;
        let text = part(room, kin, &file, 1, last)?;
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        // The last one may be cut.
        lines.pop();
        Ok(Self { file, lines })
    }

    /// Those right above a line; asked for alone where the file is too long to be read whole.
    fn of(&self, room: &Room, kin: Option<&Visible>, line: u64) -> Result<String, CallError> {
        let first = line.saturating_sub(ABOVE).max(1);
        let place = |line: u64| usize::try_from(line).unwrap_or(usize::MAX);
        match self.lines.get(place(first - 1)..place(line - 1)) {
            Some(lines) => Ok(lines.join("\n")),
            None => part(room, kin, &self.file, first, line - 1),
        }
    }
}

/// Masks the first line of a text that begins at `start_line` of a file, when its name stands above.
pub(crate) fn mask_range(
    room: &Room,
    kin: Option<&Visible>,
    file: &Resolved,
    start_line: u64,
    text: String,
) -> Result<String, CallError> {
    let (line, rest) = text.split_once('\n').map_or((text.as_str(), None), |(line, rest)| (line, Some(rest)));
    if start_line < 2 || !may_be_value(line) {
        return Ok(text);
    }
    let line =
        masked(room, &part(room, kin, file, start_line.saturating_sub(ABOVE).max(1), start_line - 1)?, line)?;
    Ok(rest.map_or_else(|| line.clone(), |rest| format!("{line}\n{rest}")))
}

/// `"..."`, `value: ...`, or one word alone, as below `password: |`.
fn may_be_value(line: &str) -> bool {
    let line = line.trim();
    let named = line.trim_start_matches(['"', '\'', '-', ' ']).to_ascii_lowercase();
    line.len() >= 6
        && (line.starts_with(['"', '\'', '`'])
            || named.starts_with("value")
            || !line.contains(char::is_whitespace))
}

/// Some lines of a file.
fn part(
    room: &Room,
    kin: Option<&Visible>,
    file: &Resolved,
    first: u64,
    last: u64,
) -> Result<String, CallError> {
    let most = clamp(room.limits.read_bytes_hard);
    let want = ReadRequest {
        start_line: Some(first),
        end_line: Some(last),
        max_bytes: most,
        hard_cap: most,
        kin: kin.cloned(),
        ..ReadRequest::default()
    };
    match room.workspace.read_open(file, &want)?.content {
        Content::Text(text) => Ok(text),
        _ => Ok(String::new()),
    }
}

/// The line as it is redacted together with the lines above it.
fn masked(room: &Room, above: &str, line: &str) -> Result<String, CallError> {
    let together = format!("{}\n{line}", above.trim_end_matches(['\n', '\r']));
    let clean = room.changes.redactor.redact(&together);
    let clean = clean.map_err(|error| CallError::new(ErrorCode::Internal, error.to_string()))?;
    if clean.count == 0 {
        return Ok(line.to_owned());
    }
    // What was replaced may reach over the end of a line; then what is left of this one is its end.
    Ok(clean.text.rsplit('\n').next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    // T21
    #[test]
    fn most_lines_could_not_be_a_value_below_its_name() {
        for line in ["fn main() {", "    let x = y;", "", "key = value", "  x", "# a comment"] {
            assert!(!may_be_value(line), "{line}");
        }
        for line in
            ["  \"aB3!xyz77\"", "  value: aB3!xyz77", "\"value\": \"x\",", "    aB3!xyz77", "'aB3!xyz77',"]
        {
            assert!(may_be_value(line), "{line}");
        }
    }
}
