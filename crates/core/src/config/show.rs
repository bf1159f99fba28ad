//! The effective settings as `config show` prints them, and the revision that every call records.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::{Value as Json, json};
use sha2::{Digest as _, Sha256};

use super::effective::EffectiveConfig;
use super::file::SettingValue;
use super::key::{KeyStatus, ValueKind};
use super::keys::KEYS;
use super::origin::{Located, ValueOrigin};
use super::rate::CallRates;
use super::role::LayerRoles;
use super::rule::RuleSettings;

/// One line of `config show`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ShownValue {
    /// The dotted path.
    pub key: &'static str,
    /// The effective value; null if unset.
    pub value: Json,
    /// `built-in` or `file:line`; several, separated by commas, if a list comes from several files.
    pub origin: String,
}

impl EffectiveConfig {
    /// Every key that is in use, with its value and origin, in the order of the key table.
    #[must_use]
    pub fn show(&self) -> Vec<ShownValue> {
        KEYS.iter()
            .filter(|key| key.is_value() && key.status == KeyStatus::Used)
            .map(|key| {
                let (value, origins) = self.shown(key.path, key.kind);
                let origin = if origins.is_empty() { "built-in".to_owned() } else { origins.join(", ") };
                ShownValue { key: key.path, value, origin }
            })
            .collect()
    }

    /// The policy revision: SHA-256 of a canonical form of all effective settings. Comments, line numbers and file names
    /// do not change it.
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

    fn shown(&self, path: &str, kind: ValueKind) -> (Json, Vec<String>) {
        let mut origins: Vec<String> = Vec::new();
        let mut note = |at: &ValueOrigin| {
            let at = at.to_string();
            if !origins.contains(&at) {
                origins.push(at);
            }
        };
        let value = match path {
            "roles" => {
                let layers = self.roles.iter().filter(|layer| layer.names().next().is_some());
                let layers = layers.inspect(|layer| {
                    layer.default.iter().for_each(|name| note(&name.at));
                    layer.roles.iter().for_each(|role| note(&role.at));
                });
                layers.map(LayerRoles::to_json).collect()
            }
            "approvals.rules" => {
                self.rules.iter().inspect(|rule| note(&rule.at)).map(RuleSettings::to_json).collect()
            }
            _ if kind == ValueKind::Rates => {
                for rates in &self.rates {
                    rates.default.iter().chain(rates.tools.values()).for_each(|rate| note(&rate.at));
                }
                self.rates.iter().map(CallRates::to_json).collect()
            }
            path => match self.values.get(path) {
                Some(Located { value: SettingValue::List(items), at }) => {
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
