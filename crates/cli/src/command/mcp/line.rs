//! Lines of standard input with an end: a line that is too long is dropped up to its newline while no more than its id is
//! kept, so that whoever sent it can be answered. What lines mean is not decided here.

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};

/// The longest message: 16 MiB of arguments and what stands around them.
pub(super) const LONGEST: usize = (16 << 20) + (64 << 10);
/// Read at once.
const PIECE: usize = 64 << 10;
/// The longest id that is given back.
const LONGEST_ID: usize = 256;

/// A line.
pub(super) enum Line {
    /// Without its newline.
    Whole(Vec<u8>),
    /// Gone; its id, if it was a request that has one.
    TooLong(Option<Value>),
}

/// The lines of a stream. A read may be given up at any time; the next one goes on with the same line.
pub(super) struct Lines<R> {
    input: BufReader<R>,
    line: Vec<u8>,
    /// What is known of a line that is too long.
    dropped: Option<Sought>,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input: BufReader::with_capacity(PIECE, input), line: Vec::new(), dropped: None }
    }

    /// The next line; `None` at the end. What stands behind the last newline is no line.
    pub(super) async fn next(&mut self) -> std::io::Result<Option<Line>> {
        loop {
            let available = self.input.fill_buf().await?;
            if available.is_empty() {
                return Ok(None);
            }
            let newline = available.iter().position(|byte| *byte == b'\n');
            let part = available.get(..newline.unwrap_or(available.len())).unwrap_or_default();
            if let Some(dropped) = &mut self.dropped {
                dropped.look(part);
            } else if self.line.len() + part.len() > LONGEST {
                let mut dropped = Sought::default();
                dropped.look(&std::mem::take(&mut self.line));
                dropped.look(part);
                self.dropped = Some(dropped);
            } else {
                self.line.extend_from_slice(part);
            }
            let taken = part.len() + usize::from(newline.is_some());
            self.input.consume(taken);
            if newline.is_some() {
                return Ok(Some(match self.dropped.take() {
                    Some(dropped) => Line::TooLong(dropped.id()),
                    None => Line::Whole(std::mem::take(&mut self.line)),
                }));
            }
        }
    }
}

/// The id of a request that cannot be read.
pub(super) fn id(line: &[u8]) -> Option<Value> {
    let mut sought = Sought::default();
    sought.look(line);
    sought.id()
}

/// Looks for `id` and `method` among the outermost fields, byte by byte, however deep the rest is nested.
#[derive(Default)]
struct Sought {
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// The last string or number among the outermost fields, as far as it fits.
    token: Vec<u8>,
    key: Vec<u8>,
    id: Option<Value>,
    method: bool,
}

impl Sought {
    fn look(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.step(*byte);
        }
    }

    /// Only of a request: the id of an answer is one of ours, and the other side would take it for one of its own.
    fn id(self) -> Option<Value> {
        self.id.filter(|_| self.method)
    }

    fn step(&mut self, byte: u8) {
        if self.in_string {
            self.keep(byte);
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return;
        }
        match byte {
            b'"' => {
                self.in_string = true;
                self.begin(byte);
            }
            b'{' | b'[' => {
                self.begin(b' ');
                self.depth += 1;
            }
            b':' if self.depth == 1 => {
                self.key = std::mem::take(&mut self.token);
            }
            b',' if self.depth == 1 => self.field(),
            b'}' | b']' => {
                if self.depth == 1 {
                    self.field();
                }
                self.depth = self.depth.saturating_sub(1);
            }
            _ => self.keep(byte),
        }
    }

    fn begin(&mut self, byte: u8) {
        if self.depth == 1 {
            self.token.clear();
            self.token.push(byte);
        }
    }

    fn keep(&mut self, byte: u8) {
        if self.depth == 1 && self.token.len() <= LONGEST_ID {
            self.token.push(byte);
        }
    }

    /// A field is over.
    fn field(&mut self) {
        let (key, token) = (std::mem::take(&mut self.key), std::mem::take(&mut self.token));
        let value = serde_json::from_slice::<Value>(&token).ok();
        match key.trim_ascii() {
            b"\"id\"" => self.id = value.filter(|id| id.is_string() || id.is_i64()),
            b"\"method\"" => self.method = value.is_some_and(|method| method.is_string()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(line: &str, expected: Option<Value>) {
        assert_eq!(id(line.as_bytes()), expected, "{}", line.get(..80).unwrap_or(line));
    }

    #[test]
    fn the_id_of_a_request_is_found_wherever_it_stands() {
        let deep = "[".repeat(5_000);
        check(r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"a":"\ud800"}}"#, Some(json!(7)));
        check(&format!(r#"{{"method":"x","params":{deep},"id":7}}"#), None);
        let closed = "]".repeat(5_000);
        check(&format!(r#"{{"method":"x","params":{deep}{closed},"id":"a\"b"}}"#), Some(json!("a\"b")));
        check(r#" { "id" : -3 , "method" : "x" , broken"#, Some(json!(-3)));
    }

    #[test]
    fn what_is_no_id_of_a_request_is_not_given_back() {
        for line in [
            "",
            "{",
            "nonsense",
            r#"{"id":7"#,
            r#"{"id":7,"result":{}}"#,
            r#"{"id":7.5,"method":"x","#,
            r#"{"id":{"id":7},"method":"x","#,
            r#"{"params":{"id":7},"method":"x","#,
            r#"{"params":"\",\"id\":7,\"","method":"x","#,
            r#"[{"id":7,"method":"x"},"#,
        ] {
            check(line, None);
        }
        check(&format!(r#"{{"id":"{}","method":"x","#, "i".repeat(1000)), None);
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_dropped_and_the_next_one_is_read() {
        let mut input = br#"{"method":"x","params":""#.to_vec();
        input.extend(std::iter::repeat_n(b'x', LONGEST));
        input.extend_from_slice(b"\",\"id\":9}\nnext\ntail");
        let mut lines = Lines::new(input.as_slice());
        assert!(matches!(lines.next().await.unwrap(), Some(Line::TooLong(Some(id))) if id == json!(9)));
        assert!(lines.line.capacity() < PIECE, "{}", lines.line.capacity());
        assert!(matches!(lines.next().await.unwrap(), Some(Line::Whole(line)) if line == b"next"));
        assert!(lines.next().await.unwrap().is_none());
    }
}
