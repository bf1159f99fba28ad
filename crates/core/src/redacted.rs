//! `Redacted<T>`: text that a redactor has seen. The store and the ledger accept nothing else, so a
//! secret cannot reach the disk by forgetting a call. The redactor itself is handed in ([`Redact`]).

use std::borrow::Cow;
use std::ops::Range;

use serde_json::Value;

/// The redactor could not look at the text; nothing may leave.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the redactor failed: {0}")]
pub struct RedactError(pub String);

/// Text after redaction, with the number of replacements made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Masked<'a> {
    /// The text without its secrets.
    pub text: Cow<'a, str>,
    /// How many secrets were replaced.
    pub count: u32,
}

/// Something that finds and replaces secrets.
pub trait Redact: Send + Sync {
    /// Replaces every secret in `text`.
    fn redact<'a>(&self, text: &'a str) -> Result<Masked<'a>, RedactError>;

    /// The same for the value of a field: what the field is called counts too.
    fn redact_named<'a>(&self, name: &str, text: &'a str) -> Result<Masked<'a>, RedactError> {
        let _ = name;
        self.redact(text)
    }

    /// The same for a text that was cut out of a longer one: a piece of a secret at either end is replaced too.
    fn redact_cut<'a>(&self, text: &'a str) -> Result<Masked<'a>, RedactError> {
        self.redact(text)
    }

    /// Where the secrets of a text stand, in order, and what stands there instead. A redactor that does not tell counts
    /// each line with a secret as one, and the whole text where one goes over lines.
    fn secrets(&self, text: &str) -> Result<Vec<Secret>, RedactError> {
        let (mut secrets, mut count, mut at) = (Vec::new(), 0, 0);
        for line in text.split_inclusive('\n') {
            let masked = self.redact(line)?;
            count += masked.count;
            if masked.count > 0 {
                let mark = masked.text.trim_end_matches('\n').to_owned();
                secrets.push(Secret { span: at..at + line.trim_end_matches('\n').len(), mark });
            }
            at += line.len();
        }
        let masked = self.redact(text)?;
        if masked.count > count {
            return Ok(vec![Secret { span: 0..text.len(), mark: masked.text.replace('\n', " ") }]);
        }
        Ok(secrets)
    }
}

/// A secret in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Secret {
    /// Its bytes.
    pub span: Range<usize>,
    /// What stands there instead, without a line end.
    pub mark: String,
}

/// A value that a redactor has seen.
#[derive(Debug, Clone, PartialEq)]
pub struct Redacted<T> {
    // INVARIANT: built only through a `Redact`, or from text that was compiled in.
    value: T,
    count: u32,
}

impl<T> Redacted<T> {
    /// How many secrets were replaced.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The same where so many were replaced before.
    #[must_use]
    pub fn after(self, count: u32) -> Self {
        Self { count: self.count.saturating_add(count), ..self }
    }

    /// The clean value.
    pub fn get(&self) -> &T {
        &self.value
    }

    /// The clean value, given up.
    pub fn into_inner(self) -> T {
        self.value
    }
}

impl Redacted<String> {
    /// Redacts a text.
    pub fn text(text: &str, by: &dyn Redact) -> Result<Self, RedactError> {
        let masked = by.redact(text)?;
        Ok(Self { value: masked.text.into_owned(), count: masked.count })
    }

    /// Text that was compiled in holds no secret.
    #[must_use]
    pub fn literal(text: &'static str) -> Self {
        Self { value: text.to_owned(), count: 0 }
    }
}

impl Redacted<Value> {
    /// The same for a payload whose `content` was cut out of a longer text.
    pub fn cut_json(mut value: Value, by: &dyn Redact) -> Result<Self, RedactError> {
        let mut pieces = 0;
        if let Some(Value::String(content)) = value.get_mut("content") {
            let masked = by.redact_cut(content)?;
            pieces = masked.count;
            if let Cow::Owned(clean) = masked.text {
                *content = clean;
            }
        }
        let clean = Self::json(value, by)?;
        Ok(Self { count: clean.count + pieces, ..clean })
    }

    /// Redacts every string of a JSON value, the keys of its objects included.
    pub fn json(mut value: Value, by: &dyn Redact) -> Result<Self, RedactError> {
        let mut count = 0;
        redact_value(&mut value, "", by, &mut count)?;
        Ok(Self { value, count })
    }
}

/// A list of texts that is longer is no command line.
const LONGEST_LINE: usize = 16 << 10;
/// A number with fewer digits is no secret.
const LEAST_DIGITS: usize = 4;

/// `name` is what the value is called, empty when it has no name.
fn redact_value(value: &mut Value, name: &str, by: &dyn Redact, count: &mut u32) -> Result<(), RedactError> {
    match value {
        Value::String(text) => {
            let masked = if name.is_empty() { by.redact(text)? } else { by.redact_named(name, text)? };
            *count += masked.count;
            if let Cow::Owned(clean) = masked.text {
                *text = clean;
            }
        }
        Value::Array(items) => {
            redact_line(items, by, count)?;
            // `["X-Api-Key", "..."]`
            let label = match items.as_slice() {
                [Value::String(label), Value::String(_)] if name.is_empty() => Some(label.clone()),
                _ => None,
            };
            for (n, item) in items.iter_mut().enumerate() {
                redact_value(item, label.as_deref().filter(|_| n == 1).unwrap_or(name), by, count)?;
            }
        }
        Value::Object(fields) => {
            // `{"name": "X-Api-Key", "value": "..."}`
            let label = ["name", "key", "Name", "Key"].iter().find_map(|key| fields.get(*key)?.as_str());
            let label = label.unwrap_or(name).to_owned();
            for (key, mut item) in std::mem::take(fields) {
                let called = if key.eq_ignore_ascii_case("value") { &label } else { &key };
                redact_value(&mut item, called, by, count)?;
                let masked = by.redact(&key)?;
                *count += masked.count;
                let clean = masked.text.into_owned();
                fields.insert(clean, item);
            }
        }
        // A secret of digits alone may be sent as a number.
        Value::Number(number) => {
            let text = number.to_string();
            if text.len() >= LEAST_DIGITS {
                let masked = by.redact(&text)?;
                *count += masked.count;
                if masked.count > 0 {
                    *value = Value::String(masked.text.into_owned());
                }
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
    Ok(())
}

/// The words of a command line, whose flags tell what follows them: `["docker", "login", "-p", "..."]`.
fn redact_line(items: &mut [Value], by: &dyn Redact, count: &mut u32) -> Result<(), RedactError> {
    let words: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
    let length: usize = words.iter().map(|word| word.len() + 1).sum();
    if words.len() < 2 || words.len() < items.len() || length > LONGEST_LINE {
        return Ok(());
    }
    let secrets = by.secrets(&words.join(" "))?;
    let mut from = 0;
    for item in items {
        let Value::String(word) = item else { continue };
        let inside = |secret: &&Secret| secret.span.start >= from && secret.span.end <= from + word.len();
        let length = word.len();
        // From the last to the first, so that places stay what they are.
        for Secret { span, mark } in secrets.iter().filter(inside).rev().cloned().collect::<Vec<_>>() {
            word.replace_range(span.start - from..span.end - from, &mark);
            *count += 1;
        }
        from += length + 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Dogs;
    impl Redact for Dogs {
        fn redact<'a>(&self, text: &'a str) -> Result<Masked<'a>, RedactError> {
            let count = u32::try_from(text.matches("dog").count()).unwrap();
            let text = if count == 0 { text.into() } else { text.replace("dog", "***").into() };
            Ok(Masked { text, count })
        }
    }

    struct Names;
    impl Redact for Names {
        fn redact<'a>(&self, text: &'a str) -> Result<Masked<'a>, RedactError> {
            Ok(Masked { text: text.into(), count: 0 })
        }

        fn redact_named<'a>(&self, name: &str, text: &'a str) -> Result<Masked<'a>, RedactError> {
            Ok(if name == "password" {
                Masked { text: "***".to_owned().into(), count: 1 }
            } else {
                self.redact(text)?
            })
        }
    }

    // T21: the name of a field counts
    #[test]
    fn fields_are_redacted_with_their_names() {
        let clean = Redacted::json(serde_json::json!({"a": [{"password": "x", "b": "x"}]}), &Names).unwrap();
        assert_eq!(
            (clean.count(), clean.get().to_string()),
            (1, r#"{"a":[{"password":"***","b":"x"}]}"#.to_owned())
        );
        for (value, expected) in [
            (serde_json::json!({"name": "password", "value": "x"}), r#"{"name":"password","value":"***"}"#),
            (serde_json::json!({"password": ["x", "y"]}), r#"{"password":["***","***"]}"#),
            (
                serde_json::json!({"password": {"value": "x", "type": "y"}}),
                r#"{"password":{"value":"***","type":"y"}}"#,
            ),
            (serde_json::json!([["password", "x"]]), r#"[["password","***"]]"#),
            (serde_json::json!(["password", "x", "y"]), r#"["password","x","y"]"#),
        ] {
            let clean = Redacted::json(value, &Names).unwrap();
            let same: Value = serde_json::from_str(expected).unwrap();
            assert_eq!(*clean.get(), same);
        }
    }

    #[test]
    fn keys_and_nested_strings_are_redacted() {
        struct Digits;
        impl Redact for Digits {
            fn redact<'a>(&self, text: &'a str) -> Result<Masked<'a>, RedactError> {
                let count = u32::from(text == "48151623");
                Ok(Masked { text: if count > 0 { "***".into() } else { text.into() }, count })
            }
        }
        let clean = Redacted::json(serde_json::json!({"pin": 48151623, "n": 48151624}), &Digits).unwrap();
        assert_eq!(*clean.get(), serde_json::json!({"pin": "***", "n": 48151624}));
        let value = serde_json::json!({"a dog": ["dog", 1, {"x": "hotdog"}], "cat": "cat"});
        let clean = Redacted::json(value, &Dogs).unwrap();
        assert_eq!(clean.count(), 3);
        assert_eq!(*clean.get(), serde_json::json!({"a ***": ["***", 1, {"x": "hot***"}], "cat": "cat"}));
    }
}
