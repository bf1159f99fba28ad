//! `limits.calls_per_minute` of one file: a default limit, and limits for single tools.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::origin::Located;
use crate::tool::wildcard;

/// Maximum calls per minute, as set in one file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CallRates {
    /// For tools that `tools` does not match.
    pub default: Option<Located<u64>>,
    /// By tool name, pattern with `*`, or `group:NAME`, as written.
    pub tools: BTreeMap<String, Located<u64>>,
}

impl CallRates {
    /// The limit for a tool, by its names (its own name, its aliases and `group:NAME`). The lowest counts if several
    /// match; `*` stands for any run of characters.
    #[must_use]
    pub fn lookup<'a>(&'a self, names: &[&str]) -> Option<&'a Located<u64>> {
        let named = self.tools.iter().filter(|(written, _)| names.iter().any(|name| wildcard(written, name)));
        named.map(|(_, rate)| rate).min_by_key(|rate| rate.value).or(self.default.as_ref())
    }

    /// The limits as JSON, for `config show` and the revision.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let default = self.default.iter().map(|rate| ("default".to_owned(), Value::from(rate.value)));
        let tools = self.tools.iter().map(|(tool, rate)| (tool.clone(), Value::from(rate.value)));
        Value::Object(default.chain(tools).collect::<Map<_, _>>())
    }
}
