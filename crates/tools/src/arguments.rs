//! Validates arguments against the tool's schema. An error names the position, what was expected, and the nearest existing
//! argument.

use boon::{Compiler, SchemaIndex, Schemas, UrlLoader, ValidationError};
use serde::de::DeserializeOwned;
use serde_json::Value;
use vambrace_core::error::{CallError, ErrorCode};

/// A compiled schema.
pub(crate) struct ArgumentSchema {
    schemas: Schemas,
    root: SchemaIndex,
    names: Vec<String>,
}

/// The name of a schema while it is compiled; nothing is loaded from it.
const SCHEMA_NAME: &str = "vambrace:///schema.json";

/// A schema refers to nothing outside itself: no file, no host.
struct NoLoader;

impl UrlLoader for NoLoader {
    fn load(&self, url: &str) -> Result<Value, Box<dyn std::error::Error>> {
        Err(format!("`{url}` is outside the schema").into())
    }
}

impl ArgumentSchema {
    /// Compiles a schema. An invalid one is our own bug and is reported at start.
    pub(crate) fn new(schema: &Value) -> Result<Self, String> {
        let mut compiler = Compiler::new();
        compiler.use_loader(Box::new(NoLoader));
        compiler.add_resource(SCHEMA_NAME, schema.clone()).map_err(|error| error.to_string())?;
        let mut schemas = Schemas::new();
        let root = compiler.compile(SCHEMA_NAME, &mut schemas).map_err(|error| format!("{error:#}"))?;
        let names = schema
            .get("properties")
            .and_then(Value::as_object)
            .map(|properties| properties.keys().cloned().collect())
            .unwrap_or_default();
        Ok(Self { schemas, root, names })
    }

    /// Checks the arguments of a call.
    pub(crate) fn check(&self, tool: &str, args: &Value) -> Result<(), CallError> {
        let Some(fields) = args.as_object() else {
            return Err(invalid(tool, "the arguments must be an object"));
        };
        for name in fields.keys() {
            if !self.names.contains(name) {
                let near = vambrace_core::suggest::nearest(name, self.names.iter().map(String::as_str));
                let hint = match near {
                    Some(near) => format!("did you mean `{near}`? "),
                    None => String::new(),
                };
                return Err(invalid(tool, &format!("there is no argument `{}`", cut(name)))
                    .suggest(format!("{hint}the arguments are: {}", self.names.join(", "))));
            }
        }
        self.schemas.validate(args, self.root).map_err(|error| {
            let (place, why) = first_leaf(&error);
            let at = if place.is_empty() { String::new() } else { format!("`{}`: ", cut(&place)) };
            invalid(tool, &format!("{at}{}", cut(&why)))
        })
    }
}

/// The first cause that has no causes of its own: its position, and what is wrong there.
fn first_leaf(error: &ValidationError<'_, '_>) -> (String, String) {
    let mut leaf = error;
    while let Some(cause) = leaf.causes.first() {
        leaf = cause;
    }
    (leaf.instance_location.to_string().trim_start_matches('/').to_owned(), leaf.kind.to_string())
}

/// Deserializes arguments that passed the schema into the tool's own type.
pub(crate) fn read<T: DeserializeOwned>(tool: &str, args: &Value) -> Result<T, CallError> {
    let read = T::deserialize(args).or_else(|error| {
        let mut whole = args.clone();
        if floats_to_integers(&mut whole) { T::deserialize(&whole) } else { Err(error) }
    });
    // After the schema check, the only possible error is a number that is too large.
    read.map_err(|error| {
        let why = error.to_string().replace("u64", "a smaller number").replace("usize", "a smaller number");
        invalid(tool, &cut(&why))
    })
}

/// Rewrites `2.0` as `2`, which are equal for a JSON Schema; returns whether there was any.
fn floats_to_integers(value: &mut Value) -> bool {
    match value {
        Value::Number(number) if number.is_f64() => {
            let whole = number.as_f64().filter(|number| number.fract() == 0.0);
            let whole = whole.and_then(|number| format!("{number:.0}").parse::<i64>().ok());
            whole.inspect(|whole| *value = Value::from(*whole)).is_some()
        }
        Value::Array(items) => items.iter_mut().fold(false, |any, item| floats_to_integers(item) | any),
        Value::Object(fields) => fields.values_mut().fold(false, |any, item| floats_to_integers(item) | any),
        _ => false,
    }
}

fn invalid(tool: &str, why: &str) -> CallError {
    CallError::new(ErrorCode::InvalidArguments, format!("invalid arguments for `{tool}`: {why}"))
        .suggest(format!("`vambrace tools show {tool}` prints the schema; correct the named argument"))
}

fn cut(text: &str) -> String {
    text.chars().take(300).collect()
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Deserialize, Debug, PartialEq)]
    struct TestArgs {
        path: String,
        line: Option<u64>,
        edits: Option<Vec<TestArgs>>,
    }

    // T2: arguments that match the schema are accepted; for a schema 2.0 is an integer, and some clients send it
    #[test]
    fn integers_may_be_written_with_a_decimal_point() {
        let plain = json!({"path": "1.0", "line": 2, "edits": [{"path": "x", "line": 3}]});
        let pointed = json!({"path": "1.0", "line": 2.0, "edits": [{"path": "x", "line": 3e0}]});
        assert_eq!(read::<TestArgs>("t", &pointed).unwrap(), read::<TestArgs>("t", &plain).unwrap());
        for line in [json!(2.5), json!(1e30), json!(-1.0), json!("2")] {
            let error = read::<TestArgs>("t", &json!({"path": "x", "line": line})).unwrap_err();
            assert_eq!(error.code, ErrorCode::InvalidArguments);
            assert!(!error.message.contains("u64"), "{error:?}");
        }
    }
}
