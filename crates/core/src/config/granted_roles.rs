//! Which roles are granted, and which one a caller gets that chooses none (T5). Declarations stay per file; a project
//! file grants nothing, and an untrusted one neither chooses nor adds a role.

use std::collections::BTreeSet;

use super::error::{ConfigNote, nearest};
use super::file::FileConfig;
use super::origin::{ConfigSource, Located};
use super::role::LayerRoles;
use crate::role::BUILT_IN_ROLES;

/// The roles of every file without the ignored ones, and the default role.
pub(crate) fn join_roles(
    files: &[(ConfigSource, FileConfig)],
    notes: &mut Vec<ConfigNote>,
) -> (Vec<LayerRoles>, Option<Located<String>>) {
    let mut layers: Vec<LayerRoles> = Vec::new();
    let mut default = None;
    for (source, file) in files {
        let mut layer = LayerRoles { source: *source, ..file.roles.clone() };
        let granted: BTreeSet<String> = granted_by(&layers);
        let declared = |name: &str| layers.iter().chain([&layer]).any(|layer| layer.get(name).is_some());
        let known = |name: &str| {
            BUILT_IN_ROLES.contains(&name) || layers.iter().any(|layer| layer.get(name).is_some())
        };
        let trusted = source.is_trusted();
        let unchosen = |name: &str| match source {
            ConfigSource::Organisation => None,
            ConfigSource::Project { trusted: false } => {
                Some("is ignored: an untrusted project cannot choose a role")
            }
            // A role declared here may be narrower than a granted one: the policy compares them.
            _ if granted.is_empty() || granted.contains(name) => None,
            _ if declared(name) && !BUILT_IN_ROLES.contains(&name) => None,
            _ => Some("is ignored: no file above grants this role"),
        };
        let default_here = layer.default.clone().filter(|name| match unchosen(&name.value) {
            Some(why) => {
                notes.push(ConfigNote::new(&name.at, "roles.default", format!("`{}` {why}", name.value)));
                false
            }
            None => true,
        });
        layer.default = default_here;
        layer.roles.retain(|role| {
            let kept = trusted || known(&role.name);
            if !kept {
                let why = "is ignored: an untrusted project cannot declare a new role";
                notes.push(ConfigNote::new(&role.at, format!("roles.{}", role.name), why));
            }
            kept
        });
        default = layer.default.clone().or(default);
        layers.push(layer);
    }
    if let Some(name) = &default {
        let declared: Vec<&str> =
            layers.iter().flat_map(|layer| layer.roles.iter().map(|role| role.name.as_str())).collect();
        let valid = || BUILT_IN_ROLES.iter().copied().chain(declared.iter().copied());
        if !valid().any(|known| known == name.value) {
            let near = nearest(&name.value, valid()).map(|near| format!("; the nearest is `{near}`"));
            let message = format!("`{}` is not a declared role{}", name.value, near.unwrap_or_default());
            notes.push(ConfigNote::new(&name.at, "roles.default", message));
        }
    }
    (layers, default)
}

/// The granted roles: those that the organisation names, else those that the user names. (A user who could add to the
/// organisation's roles would widen them.)
pub(crate) fn granted_by(layers: &[LayerRoles]) -> BTreeSet<String> {
    let named_by = |source: ConfigSource| -> BTreeSet<String> {
        let layer = layers.iter().filter(|layer| layer.source == source);
        layer.flat_map(|layer| layer.names().map(str::to_owned)).collect()
    };
    let organisation = named_by(ConfigSource::Organisation);
    if organisation.is_empty() { named_by(ConfigSource::User) } else { organisation }
}
