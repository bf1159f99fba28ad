//! Roles as files declare them. Definitions are kept per file: the decision intersects them, so that a file
//! below another can only take away.

use serde_json::{Value, json};

use super::key::Item;
use super::origin::{Origin, Sited, Source};
use super::pattern::kept_form;
use super::tree::Node;
use crate::effect::EffectKind;

/// A role as one file declares it. What is `None` is not restricted by this file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Role {
    /// Its name.
    pub name: String,
    /// Tools, patterns with `*`, `group:NAME`.
    pub tools: Option<Vec<String>>,
    /// Globs over paths.
    pub paths: Option<Vec<String>>,
    /// Kinds of effects.
    pub permits: Option<Vec<EffectKind>>,
    /// Where it is declared.
    pub at: Origin,
}

/// The roles of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerRoles {
    /// The file's layer.
    pub source: Source,
    /// The role of a caller that chooses none, as this file says it.
    pub default: Option<Sited<String>>,
    /// Declared roles in the order of the file.
    pub roles: Vec<Role>,
}

impl LayerRoles {
    /// The role of a name in this file.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Role> {
        self.roles.iter().find(|role| role.name == name)
    }

    /// Every name in this file: the default and the declared ones.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let default = self.default.iter().map(|name| name.value.as_str());
        default.chain(self.roles.iter().map(|role| role.name.as_str()))
    }

    pub(crate) fn read(node: Option<&Node>, source: Source, at: &dyn Fn(u32) -> Origin) -> Self {
        let mut layer = Self { source, default: None, roles: Vec::new() };
        for entry in node.map(Node::entries).unwrap_or_default() {
            if entry.key == "default" {
                let name = entry.value.text().map(str::to_owned);
                layer.default = name.map(|name| Sited::new(name, at(entry.at.line)));
                continue;
            }
            let permits = texts(&entry.value, "permits", Item::Text);
            layer.roles.push(Role {
                name: entry.key.clone(),
                tools: texts(&entry.value, "tools", Item::Tool),
                paths: texts(&entry.value, "paths", Item::Glob),
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

/// The texts of a list below a key, in their kept form.
pub(crate) fn texts(node: &Node, key: &str, item: Item) -> Option<Vec<String>> {
    let list = node.get(key)?;
    let kept = list.items().iter().filter_map(Node::text);
    Some(kept.filter_map(|text| kept_form(item, text).ok()).collect())
}
