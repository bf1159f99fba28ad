//! Roles as declared in files. Definitions are kept per file: the policy intersects them, so that a file below another
//! can only narrow a role.

use serde_json::{Value, json};

use super::key::ItemKind;
use super::list_item::normalize_item;
use super::origin::{ConfigSource, Located, ValueOrigin};
use super::yaml_tree::YamlNode;
use crate::effect::EffectKind;

/// A role as declared in one file. A field that is `None` is not restricted by this file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoleSettings {
    /// The role's name.
    pub name: String,
    /// Tools, patterns with `*`, `group:NAME`.
    pub tools: Option<Vec<String>>,
    /// Path globs.
    pub paths: Option<Vec<String>>,
    /// Kinds of effects.
    pub permits: Option<Vec<EffectKind>>,
    /// Where it is declared.
    pub at: ValueOrigin,
}

/// The roles of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerRoles {
    /// The file's layer.
    pub source: ConfigSource,
    /// The role of a caller that chooses none, if this file sets it.
    pub default: Option<Located<String>>,
    /// Declared roles, in file order.
    pub roles: Vec<RoleSettings>,
}

impl LayerRoles {
    /// The role with this name in this file.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&RoleSettings> {
        self.roles.iter().find(|role| role.name == name)
    }

    /// All role names in this file: the default and the declared ones.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let default = self.default.iter().map(|name| name.value.as_str());
        default.chain(self.roles.iter().map(|role| role.name.as_str()))
    }

    pub(crate) fn read(
        node: Option<&YamlNode>,
        source: ConfigSource,
        at: &dyn Fn(u32) -> ValueOrigin,
    ) -> Self {
        let mut layer = Self { source, default: None, roles: Vec::new() };
        for entry in node.map(YamlNode::entries).unwrap_or_default() {
            if entry.key == "default" {
                let name = entry.value.text().map(str::to_owned);
                layer.default = name.map(|name| Located::new(name, at(entry.at.line)));
                continue;
            }
            let permits = texts(&entry.value, "permits", ItemKind::Text);
            layer.roles.push(RoleSettings {
                name: entry.key.clone(),
                tools: texts(&entry.value, "tools", ItemKind::Tool),
                paths: texts(&entry.value, "paths", ItemKind::Glob),
                permits: permits.map(|names| names.iter().filter_map(|n| EffectKind::parse(n)).collect()),
                at: at(entry.at.line),
            });
        }
        layer
    }

    pub(crate) fn to_json(&self) -> Value {
        let roles: serde_json::Map<String, Value> = self
            .roles
            .iter()
            .map(|role| {
                let permits = role
                    .permits
                    .as_ref()
                    .map(|permits| permits.iter().map(|p| p.as_str()).collect::<Vec<_>>());
                let body = json!({"tools": role.tools, "paths": role.paths, "permits": permits});
                (role.name.clone(), body)
            })
            .collect();
        let default = self.default.as_ref().map(|name| &name.value);
        json!({"source": self.source.as_str(), "default": default, "roles": roles})
    }
}

/// The strings of a list below a key, in normalized form.
pub(crate) fn texts(node: &YamlNode, key: &str, item: ItemKind) -> Option<Vec<String>> {
    let list = node.get(key)?;
    let texts = list.items().iter().filter_map(YamlNode::text);
    Some(texts.filter_map(|text| normalize_item(item, text).ok()).collect())
}
