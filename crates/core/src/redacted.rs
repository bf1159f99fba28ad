//! `Redacted<T>`: a value that has passed a redactor. The store and the ledger accept nothing else, so a forgotten call
//! to the redactor cannot put a secret on disk. The redactor itself is passed in ([`Redact`]).

use std::borrow::Cow;
use std::ops::Range;

use serde_json::Value;

/// The redactor failed; the text must not leave the process.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the redactor failed: {0}")]
pub struct RedactError(pub String);

/// Text after redaction, with the number of replacements made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedactOutput<'a> {
    /// The text without its secrets.
    pub text: Cow<'a, str>,
    /// How many secrets were replaced.
    pub count: u32,
}

/// Something that finds and replaces secrets.
pub trait Redact: Send + Sync {
    /// Replaces every secret in `text`.
    fn redact<'a>(&self, text: &'a str) -> Result<RedactOutput<'a>, RedactError>;

    /// The same for the value of a field; the field's name counts as context.
    fn redact_named<'a>(&self, name: &str, text: &'a str) -> Result<RedactOutput<'a>, RedactError> {
        let _ = name;
        self.redact(text)
    }

    /// The same for an excerpt of a longer text: a partial secret at either end is replaced too.
    fn redact_cut<'a>(&self, text: &'a str) -> Result<RedactOutput<'a>, RedactError> {
        self.redact(text)
    }

    /// The secrets of a text, in order, with their placeholders: replacing them has the result of [`Self::redact`]. This
    /// default implementation reports each line with a secret as one secret, and the whole text if a secret spans lines.
    fn secrets(&self, text: &str) -> Result<Vec<SecretSpan>, RedactError> {
        let (mut secrets, mut count, mut at) = (Vec::new(), 0, 0);
        for line in text.split_inclusive('\n') {
            let masked = self.redact(line)?;
            count += masked.count;
            if masked.count > 0 {
                let placeholder = masked.text.trim_end_matches('\n').to_owned();
                secrets.push(SecretSpan { span: at..at + line.trim_end_matches('\n').len(), placeholder });
            }
            at += line.len();
        }
        let masked = self.redact(text)?;
        if masked.count > count {
            return Ok(vec![SecretSpan { span: 0..text.len(), placeholder: masked.text.replace('\n', " ") }]);
        }
        Ok(secrets)
    }
}

/// A secret in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretSpan {
    /// Byte range of the secret.
    pub span: Range<usize>,
    /// The placeholder that replaces it, without a newline.
    pub placeholder: String,
}

/// A value that has passed a redactor.
#[derive(Debug, Clone, PartialEq)]
pub struct Redacted<T> {
    // INVARIANT: built only through a `Redact`, or from compiled-in text.
    value: T,
    count: u32,
}

impl<T> Redacted<T> {
    /// How many secrets were replaced.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Adds to the count: for secrets that were already replaced in the input.
    #[must_use]
    pub fn add_count(self, count: u32) -> Self {
        Self { count: self.count.saturating_add(count), ..self }
    }

    /// The redacted value.
    pub fn get(&self) -> &T {
        &self.value
    }

    /// Unwraps the redacted value.
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

    /// Compiled-in text contains no secret.
    #[must_use]
    pub fn literal(text: &'static str) -> Self {
        Self { value: text.to_owned(), count: 0 }
    }
}

impl Redacted<Value> {
    /// Like [`Self::json`], for a payload whose `content` is an excerpt of a longer text.
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

/// Longer lists of strings are not treated as command lines, in bytes.
const MAX_COMMAND_LINE_BYTES: usize = 16 << 10;
/// Numbers with fewer digits are not checked for secrets.
const MIN_SECRET_DIGITS: usize = 4;

/// `name` is the name of the value's field, empty if it has none.
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
            redact_command_line(items, by, count)?;
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
            if text.len() >= MIN_SECRET_DIGITS {
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

/// Redacts the words of a command line, where a flag tells what follows it: `["docker", "login", "-p", "..."]`.
fn redact_command_line(items: &mut [Value], by: &dyn Redact, count: &mut u32) -> Result<(), RedactError> {
    let words: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
    let length: usize = words.iter().map(|word| word.len() + 1).sum();
    if words.len() < 2 || words.len() < items.len() || length > MAX_COMMAND_LINE_BYTES {
        return Ok(());
    }
    let secrets = by.secrets(&words.join(" "))?;
    let mut from = 0;
    for item in items {
        let Value::String(word) = item else { continue };
        let inside = |secret: &&SecretSpan| secret.span.start >= from && secret.span.end <= from + word.len();
        let length = word.len();
        // From the last to the first, so that the offsets stay valid.
        for SecretSpan { span, placeholder } in
            secrets.iter().filter(inside).rev().cloned().collect::<Vec<_>>()
        {
            word.replace_range(span.start - from..span.end - from, &placeholder);
            *count += 1;
        }
        from += length + 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct DogRedactor;
    impl Redact for DogRedactor {
        fn redact<'a>(&self, text: &'a str) -> Result<RedactOutput<'a>, RedactError> {
            let count = u32::try_from(text.matches("dog").count()).unwrap();
            let text = if count == 0 { text.into() } else { text.replace("dog", "***").into() };
            Ok(RedactOutput { text, count })
        }
    }

    struct PasswordFieldRedactor;
    impl Redact for PasswordFieldRedactor {
        fn redact<'a>(&self, text: &'a str) -> Result<RedactOutput<'a>, RedactError> {
            Ok(RedactOutput { text: text.into(), count: 0 })
        }

        fn redact_named<'a>(&self, name: &str, text: &'a str) -> Result<RedactOutput<'a>, RedactError> {
            Ok(if name == "password" {
                RedactOutput { text: "***".to_owned().into(), count: 1 }
            } else {
                self.redact(text)?
            })
        }
    }

    // T21: the field's name counts as context
    #[test]
    fn field_values_are_redacted_by_field_name() {
        let clean =
            Redacted::json(serde_json::json!({"a": [{"password": "x", "b": "x"}]}), &PasswordFieldRedactor)
                .unwrap();
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
            let clean = Redacted::json(value, &PasswordFieldRedactor).unwrap();
            let same: Value = serde_json::from_str(expected).unwrap();
            assert_eq!(*clean.get(), same);
        }
    }

    #[test]
    fn keys_and_nested_strings_are_redacted() {
        struct NumberRedactor;
        impl Redact for NumberRedactor {
            fn redact<'a>(&self, text: &'a str) -> Result<RedactOutput<'a>, RedactError> {
                let count = u32::from(text == "48151623");
                Ok(RedactOutput { text: if count > 0 { "***".into() } else { text.into() }, count })
            }
        }
        let clean =
            Redacted::json(serde_json::json!({"pin": 48151623, "n": 48151624}), &NumberRedactor).unwrap();
        assert_eq!(*clean.get(), serde_json::json!({"pin": "***", "n": 48151624}));
        let value = serde_json::json!({"a dog": ["dog", 1, {"x": "hotdog"}], "cat": "cat"});
        let clean = Redacted::json(value, &DogRedactor).unwrap();
        assert_eq!(clean.count(), 3);
        assert_eq!(*clean.get(), serde_json::json!({"a ***": ["***", 1, {"x": "hot***"}], "cat": "cat"}));
    }
}
