//! `limits.calls_per_minute` of one file: a number for every tool, and numbers for single tools.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::origin::Sited;
use crate::tool::wildcard;

/// Calls per minute, as one file says it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CallRates {
    /// For tools that are not named.
    pub default: Option<Sited<u64>>,
    /// By the name of the tool, or a pattern with `*`, or `group:NAME`, as written.
    pub tools: BTreeMap<String, Sited<u64>>,
}

impl CallRates {
    /// The number for a tool by its names (its own name, its aliases and `group:NAME`). The lowest counts
    /// where several fit; `*` stands for any run of characters.
    #[must_use]
    pub fn lookup<'a>(&'a self, names: &[&str]) -> Option<&'a Sited<u64>> {
        let named = self.tools.iter().filter(|(written, _)| names.iter().any(|name| fits(written, name)));
        named.map(|(_, rate)| rate).min_by_key(|rate| rate.value).or(self.default.as_ref())
    }

    /// For `config show` and the revision.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let default = self.default.iter().map(|rate| ("default".to_owned(), Value::from(rate.value)));
        let tools = self.tools.iter().map(|(tool, rate)| (tool.clone(), Value::from(rate.value)));
        Value::Object(default.chain(tools).collect::<Map<_, _>>())
    }
}

fn fits(written: &str, name: &str) -> bool {
    wildcard(written, name)
}
