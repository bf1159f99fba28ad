//! Splits input into lines of bounded length, one message each. A line that is too long is discarded up to its newline; only
//! its request id is kept, so that an error can be sent. Parsing messages is not done here.

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};

/// Maximum message: 16 MiB of arguments and 64 KiB around them.
pub(super) const MAX_MESSAGE_BYTES: usize = (16 << 20) + (64 << 10);
/// Size of the read buffer.
const READ_BYTES: usize = 64 << 10;
/// Maximum length of an id in an error response.
const MAX_ID_BYTES: usize = 256;

/// A line of input.
pub(super) enum MessageLine {
    /// Without its newline.
    Whole(Vec<u8>),
    /// Discarded; its id, if it was a request with an id.
    TooLong(Option<Value>),
}

/// Reads the lines of a stream. `next` is cancel safe: a cancelled read continues with the same line.
pub(super) struct MessageReader<R> {
    input: BufReader<R>,
    line: Vec<u8>,
    /// The id scanner of a line that is too long.
    dropped: Option<IdScanner>,
}

impl<R: AsyncRead + Unpin> MessageReader<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input: BufReader::with_capacity(READ_BYTES, input), line: Vec::new(), dropped: None }
    }

    /// The next line; `None` at the end of input. Bytes after the last newline are not a line.
    pub(super) async fn next(&mut self) -> std::io::Result<Option<MessageLine>> {
        loop {
            let available = self.input.fill_buf().await?;
            if available.is_empty() {
                return Ok(None);
            }
            let newline = available.iter().position(|byte| *byte == b'\n');
            let part = available.get(..newline.unwrap_or(available.len())).unwrap_or_default();
            if let Some(dropped) = &mut self.dropped {
                dropped.look(part);
            } else if self.line.len() + part.len() > MAX_MESSAGE_BYTES {
                let mut dropped = IdScanner::default();
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
                    Some(dropped) => MessageLine::TooLong(dropped.id()),
                    None => MessageLine::Whole(std::mem::take(&mut self.line)),
                }));
            }
        }
    }
}

/// The id of a request that cannot be parsed.
pub(super) fn id(line: &[u8]) -> Option<Value> {
    let mut sought = IdScanner::default();
    sought.look(line);
    sought.id()
}

/// Finds `id` and `method` among the top-level fields, byte by byte, at any nesting depth of the rest.
#[derive(Default)]
struct IdScanner {
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// The last top-level string or number, up to the maximum length.
    token: Vec<u8>,
    key: Vec<u8>,
    id: Option<Value>,
    method: bool,
}

impl IdScanner {
    fn look(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.step(*byte);
        }
    }

    /// Only for a request: the id of a response is one of ours, and the client would take it for one of its own requests.
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
        if self.depth == 1 && self.token.len() <= MAX_ID_BYTES {
            self.token.push(byte);
        }
    }

    /// End of a top-level field.
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
    fn id_of_a_request_is_found_anywhere_in_the_message() {
        let deep = "[".repeat(5_000);
        check(r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"a":"\ud800"}}"#, Some(json!(7)));
        check(&format!(r#"{{"method":"x","params":{deep},"id":7}}"#), None);
        let closed = "]".repeat(5_000);
        check(&format!(r#"{{"method":"x","params":{deep}{closed},"id":"a\"b"}}"#), Some(json!("a\"b")));
        check(r#" { "id" : -3 , "method" : "x" , broken"#, Some(json!(-3)));
    }

    #[test]
    fn other_ids_are_ignored() {
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
    async fn line_that_is_too_long_is_discarded_and_the_next_one_is_read() {
        let mut input = br#"{"method":"x","params":""#.to_vec();
        input.extend(std::iter::repeat_n(b'x', MAX_MESSAGE_BYTES));
        input.extend_from_slice(b"\",\"id\":9}\nnext\ntail");
        let mut lines = MessageReader::new(input.as_slice());
        assert!(
            matches!(lines.next().await.unwrap(), Some(MessageLine::TooLong(Some(id))) if id == json!(9))
        );
        assert!(lines.line.capacity() < READ_BYTES, "{}", lines.line.capacity());
        assert!(matches!(lines.next().await.unwrap(), Some(MessageLine::Whole(line)) if line == b"next"));
        assert!(lines.next().await.unwrap().is_none());
    }
}
