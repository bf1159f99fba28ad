//! Arguments against the schema. What does not fit is named with its place, what was expected, and the nearest
//! argument that exists.

use jsonschema::Validator;
use serde::de::DeserializeOwned;
use serde_json::Value;
use vambrace_core::error::{CallError, ErrorCode};

/// A compiled schema.
pub(crate) struct Arguments {
    validator: Validator,
    names: Vec<String>,
}

impl Arguments {
    /// Compiles; a schema that does not compile is a fault of ours and is told at start.
    pub(crate) fn new(schema: &Value) -> Result<Self, String> {
        let validator = jsonschema::validator_for(schema).map_err(|error| error.to_string())?;
        let names = schema
            .get("properties")
            .and_then(Value::as_object)
            .map(|properties| properties.keys().cloned().collect())
            .unwrap_or_default();
        Ok(Self { validator, names })
    }

    /// Checks.
    pub(crate) fn check(&self, tool: &str, args: &Value) -> Result<(), CallError> {
        let Some(fields) = args.as_object() else {
            return Err(invalid(tool, "the arguments must be an object"));
        };
        for name in fields.keys() {
            if !self.names.contains(name) {
                let near = vambrace_core::near::nearest(name, self.names.iter().map(String::as_str));
                let hint = match near {
                    Some(near) => format!("did you mean `{near}`? "),
                    None => String::new(),
                };
                return Err(invalid(tool, &format!("there is no argument `{}`", cut(name)))
                    .suggest(format!("{hint}the arguments are: {}", self.names.join(", "))));
            }
        }
        match self.validator.iter_errors(args).next() {
            None => Ok(()),
            Some(error) => {
                let place = error.instance_path().to_string();
                let at = if place.is_empty() {
                    String::new()
                } else {
                    format!("`{}`: ", place.trim_start_matches('/'))
                };
                Err(invalid(tool, &format!("{at}{}", cut(&error.to_string()))))
            }
        }
    }
}

/// Reads arguments that passed the schema into the tool's own type.
pub(crate) fn read<T: DeserializeOwned>(tool: &str, args: &Value) -> Result<T, CallError> {
    T::deserialize(args).map_err(|error| invalid(tool, &cut(&error.to_string())))
}

fn invalid(tool: &str, why: &str) -> CallError {
    CallError::new(ErrorCode::InvalidArguments, format!("invalid arguments for `{tool}`: {why}"))
        .suggest(format!("`vambrace tools show {tool}` prints the schema; correct the named argument"))
}

fn cut(text: &str) -> String {
    text.chars().take(300).collect()
}
