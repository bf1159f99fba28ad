//! The settings in force as people and the ledger see them: what `config show` prints, and the revision that
//! every call records.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::{Value as Json, json};
use sha2::{Digest as _, Sha256};

use super::effective::Effective;
use super::file::Setting;
use super::key::Kind;
use super::keys::KEYS;
use super::origin::{Origin, Sited};
use super::rate::CallRates;
use super::role::LayerRoles;
use super::rule::Rule;

/// One line of `config show`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ShownValue {
    /// The dotted path.
    pub key: &'static str,
    /// The value in force; null when unset.
    pub value: Json,
    /// `built-in`, or `file:line`; several where a list comes from several.
    pub origin: String,
    /// `used`, or `accepted, not yet used`.
    pub status: &'static str,
}

impl Effective {
    /// Every key with its value, origin and status, in the order of the table.
    #[must_use]
    pub fn show(&self) -> Vec<ShownValue> {
        KEYS.iter()
            .filter(|key| key.is_value())
            .map(|key| {
                let (value, origins) = self.shown(key.path, key.kind);
                let origin = if origins.is_empty() { "built-in".to_owned() } else { origins.join(", ") };
                ShownValue { key: key.path, value, origin, status: key.status.as_str() }
            })
            .collect()
    }

    /// The policy's revision: sha256 of a canonical rendering of everything in force. Comments, line
    /// numbers and file names do not change it.
    #[must_use]
    pub fn revision(&self) -> String {
        let keys = KEYS.iter().filter(|key| key.is_value());
        let values: Vec<Json> = keys.map(|key| json!([key.path, self.shown(key.path, key.kind).0])).collect();
        let default = self.default_role.as_ref().map(|role| &role.value);
        let text = json!({"revision": 1, "default_role": default, "values": values}).to_string();
        let digest = Sha256::digest(text.as_bytes());
        digest.iter().fold(String::with_capacity(64), |mut hex, byte| {
            // Writing to a string cannot fail.
            let _ = write!(hex, "{byte:02x}");
            hex
        })
    }

    fn shown(&self, path: &str, kind: Kind) -> (Json, Vec<String>) {
        let mut origins: Vec<String> = Vec::new();
        let mut note = |at: &Origin| {
            let at = at.to_string();
            if !origins.contains(&at) {
                origins.push(at);
            }
        };
        let value = match path {
            "roles" => {
                let said = self.roles.iter().filter(|layer| layer.names().next().is_some());
                let said = said.inspect(|layer| {
                    layer.default.iter().for_each(|name| note(&name.at));
                    layer.roles.iter().for_each(|role| note(&role.at));
                });
                said.map(LayerRoles::to_json).collect()
            }
            "approvals.rules" => {
                self.rules.iter().inspect(|rule| note(&rule.at)).map(Rule::to_json).collect()
            }
            _ if kind == Kind::Rates => {
                for rates in &self.rates {
                    rates.default.iter().chain(rates.tools.values()).for_each(|rate| note(&rate.at));
                }
                self.rates.iter().map(CallRates::to_json).collect()
            }
            path => match self.values.get(path) {
                Some(Sited { value: Setting::List(items), at }) => {
                    if items.is_empty() {
                        note(at);
                    }
                    items
                        .iter()
                        .inspect(|item| note(&item.at))
                        .map(|item| Json::from(item.value.as_str()))
                        .collect()
                }
                Some(value) => {
                    note(&value.at);
                    value.value.to_json()
                }
                None => Json::Null,
            },
        };
        (value, origins)
    }
}
