//! The fields of a line as JSON. Arguments nested deeper than the parser's limit are returned as text: no call can make
//! its own record unreadable.

use std::collections::HashMap;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// The fields of a line; `None` if it is not a JSON object.
#[must_use]
pub fn line_fields(line: &str) -> Option<Map<String, Value>> {
    match serde_json::from_str::<Map<String, Value>>(line) {
        Ok(fields) => Some(fields),
        Err(_) => shallow(line),
    }
}

/// Skipping a value does not recurse, whatever its depth.
fn shallow(line: &str) -> Option<Map<String, Value>> {
    let raw: HashMap<String, Box<RawValue>> = serde_json::from_str(line).ok()?;
    let value = |raw: &RawValue| serde_json::from_str(raw.get()).unwrap_or_else(|_| Value::from(raw.get()));
    let mut fields: Vec<(String, Value)> = raw.iter().map(|(key, raw)| (key.clone(), value(raw))).collect();
    fields.sort_by(|(one, _), (other, _)| one.cmp(other));
    Some(fields.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    // T22: nesting hides nothing
    #[test]
    fn arguments_of_any_depth_leave_the_other_fields_readable() {
        for depth in [1, 126, 127, 128, 5000] {
            let deep = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
            let line = format!(r#"{{"op":"violation","tool_args":{deep},"seq":7}}"#);
            let fields = line_fields(&line).unwrap();
            assert_eq!(fields.get("op"), Some(&Value::from("violation")), "{depth}");
            assert_eq!(fields.get("seq"), Some(&Value::from(7)), "{depth}");
        }
        for bad in ["", "[]", "{", r#"{"op":}"#, r#"{"op":"x"} x"#] {
            assert_eq!(line_fields(bad), None, "{bad}");
        }
    }
}
