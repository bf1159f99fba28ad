//! A plan: validated arguments and their effects, with the digest that every later permission is bound to.

use std::sync::Arc;

use serde_json::Value;

use crate::digest::Digest;
use crate::effect::Effect;
use crate::error::CallError;
use crate::risk::Risk;
use crate::tool::ToolDescriptor;

/// What a call would do.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The tool.
    pub tool: Arc<ToolDescriptor>,
    /// The arguments, validated.
    pub args: Value,
    /// What the call does.
    pub effects: Vec<Effect>,
    /// Digest of the file content that the plan was made from: other content is another plan.
    pub content_digest: Option<Digest>,
    /// How risky the call is.
    pub risk: Risk,
    /// Why the workspace denies it, if it does. The effects then come from the path names alone; no file was opened.
    pub workspace_denial: Option<CallError>,
}

impl Plan {
    /// Digest over tool, arguments, effects and the content they were made from. The policy revision is deliberately
    /// left out: it is recorded separately.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let args = canonical(&self.args);
        let effects: Vec<String> = self.effects.iter().map(Effect::canonical).collect();
        let content_digest = self.content_digest.map(|digest| digest.to_string()).unwrap_or_default();
        let parts = [
            b"vambrace-plan-2",
            self.tool.name.as_str().as_bytes(),
            args.as_bytes(),
            content_digest.as_bytes(),
        ];
        Digest::of_parts(parts.into_iter().chain(effects.iter().map(String::as_bytes)))
    }
}

/// JSON with sorted keys, so that the order in which an agent writes them does not matter.
#[must_use]
pub fn canonical(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let mut keys: Vec<_> = fields.iter().collect();
            keys.sort_unstable_by_key(|(key, _)| *key);
            let fields: Vec<String> = keys
                .into_iter()
                .map(|(key, value)| format!("{}:{}", Value::from(key.as_str()), canonical(value)))
                .collect();
            format!("{{{}}}", fields.join(","))
        }
        Value::Array(items) => {
            format!("[{}]", items.iter().map(canonical).collect::<Vec<_>>().join(","))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_order_does_not_matter_and_values_do() {
        let parse = |text: &str| canonical(&serde_json::from_str(text).unwrap());
        assert_eq!(parse(r#"{"a":1,"b":{"d":[1,2],"c":"x"}}"#), parse(r#"{"b":{"c":"x","d":[1,2]},"a":1}"#));
        assert_ne!(parse(r#"{"a":[1,2]}"#), parse(r#"{"a":[2,1]}"#));
        assert_ne!(parse(r#"{"a":"1"}"#), parse(r#"{"a":1}"#));
    }
}
