//! Combines the configuration files: *layers only narrow*. The topmost file with a key sets it; every file below can only
//! narrow it; an untrusted project can only narrow, also the built-in values. A value that would widen is ignored, with
//! a note that names both locations.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value as Json;

use super::choice::Profile;
use super::effective::EffectiveConfig;
use super::error::{ConfigNote, quoted};
use super::file::{FileConfig, SettingValue};
use super::granted_roles::join_roles;
use super::key::{BaseSetter, Combine, ConfigKey, Covers, Preset, ValueKind};
use super::keys::KEYS;
use super::list_item::covers;
use super::origin::{ConfigSource, Located, ValueOrigin};
use super::rate::CallRates;
use super::rule::RuleSettings;
use crate::rule::RuleDecision;

/// Combines the files into the effective settings, with the origin of every value.
#[must_use]
pub fn combine(
    organisation: Option<FileConfig>,
    user: Option<FileConfig>,
    project: Option<FileConfig>,
) -> EffectiveConfig {
    // The argument position determines the layer; a project file is trusted only if it was parsed as trusted.
    let trusted = project.as_ref().is_some_and(|file| file.source == ConfigSource::Project { trusted: true });
    let slots = [
        (ConfigSource::Organisation, organisation),
        (ConfigSource::User, user),
        (ConfigSource::Project { trusted }, project),
    ];
    let files = slots.into_iter().filter_map(|(source, file)| Some((source, file?))).collect();
    Layers { files, notes: Vec::new() }.combine()
}

/// The files from the organisation down, and notes about ignored values.
struct Layers {
    files: Vec<(ConfigSource, FileConfig)>,
    notes: Vec<ConfigNote>,
}

impl Layers {
    fn combine(mut self) -> EffectiveConfig {
        let files = std::mem::take(&mut self.files);
        self.notes = files.iter().flat_map(|(_, file)| file.notes.iter().cloned()).collect();
        let mut values = BTreeMap::new();
        let mut rates = Vec::new();
        for key in KEYS.iter().filter(|key| key.is_value() && key.combine != Combine::PerFile) {
            let values_set: Vec<FileValue<'_>> = files
                .iter()
                .filter_map(|(source, file)| {
                    Some(FileValue { source: *source, value: file.values.get(key.path)? })
                })
                .collect();
            if key.kind == ValueKind::Rates {
                rates = self.rates(key, &values_set);
            } else if let Some(value) = self.combine_key(key, &values_set) {
                values.insert(key.path, value);
            }
        }
        self.at_most(&mut values, "limits.read_bytes", "limits.read_bytes_hard");
        self.at_most(&mut values, "limits.command_sec", "limits.command_sec_hard");
        let (roles, default_role) = join_roles(&files, &mut self.notes);
        let rules = self.rules(&files);
        EffectiveConfig::new(values, rates, roles, default_role, rules, self.notes)
    }

    fn combine_key(&mut self, key: &ConfigKey, values: &[FileValue<'_>]) -> Option<Located<SettingValue>> {
        let any = BaseSetter::AnyTrusted;
        match key.combine {
            Combine::Part | Combine::PerFile => None,
            Combine::Own => preset(key),
            Combine::Cap => self.narrow(key, values, any, "lower", |new, old| int(new) <= int(old)),
            Combine::Floor => self.narrow(key, values, any, "raise", |new, old| int(new) >= int(old)),
            Combine::Narrowest(base) => {
                let rank = |setting: &SettingValue| match (key.kind, setting) {
                    (ValueKind::Choice(names), SettingValue::Text(text)) => {
                        names.iter().position(|name| name == text)
                    }
                    _ => None,
                };
                self.narrow(key, values, base, "narrow", |new, old| rank(new) <= rank(old))
            }
            Combine::Switch(narrow, base) => {
                self.narrow(key, values, base, "narrow", |new, _| *new == SettingValue::Bool(narrow))
            }
            Combine::Profile => self.narrow(key, values, any, "narrow", |new, _| {
                *new == SettingValue::Text(Profile::Readonly.as_str().to_owned())
            }),
            Combine::Inside => {
                // Paths of roles are relative to the service root: moving it moves them, so only trusted files may.
                let (trusted, others): (Vec<_>, Vec<_>) =
                    values.iter().partition(|entry| entry.source.is_trusted());
                for FileValue { value, .. } in others {
                    let message = "is ignored: the project is not trusted (`vambrace trust`), and the paths of roles would move with it";
                    self.notes.push(ConfigNote::new(&value.at, key.path, message));
                }
                self.narrow(key, &trusted, BaseSetter::AboveProject, "narrow", inside)
            }
            Combine::Union => Some(union(key, values)),
            Combine::Intersect(how) => Some(self.intersect(key, values, how)),
            Combine::Topmost(base) => self.topmost(key, values, base),
            Combine::NotFromProject => {
                let (project, above): (Vec<_>, Vec<_>) =
                    values.iter().partition(|entry| entry.source.is_project());
                for FileValue { value, .. } in project {
                    let message = "is ignored: only the file of the user or the organisation can set it";
                    self.notes.push(ConfigNote::new(&value.at, key.path, message));
                }
                Some(self.intersect(key, &above, Covers::Same))
            }
            Combine::Collect => self.collect(key, values),
        }
    }

    /// The topmost file that may set the value sets it; below it, only values that `narrower` accepts count.
    fn narrow(
        &mut self,
        key: &ConfigKey,
        values: &[FileValue<'_>],
        base: BaseSetter,
        verb: &str,
        narrower: impl Fn(&SettingValue, &SettingValue) -> bool,
    ) -> Option<Located<SettingValue>> {
        let mut current = preset(key);
        let mut set = false;
        for FileValue { source, value } in values {
            let sets = !set && may_set(*source, base);
            // Setting a value that is unset narrows it, except for a profile: an unset one follows `profile`.
            let unset_accepts = key.combine != Combine::Profile;
            let accepted = match &current {
                Some(current) => value.value == current.value || narrower(&value.value, &current.value),
                None => unset_accepts || narrower(&value.value, &value.value),
            };
            if sets || accepted {
                let same = current.as_ref().is_some_and(|current| set && current.value == value.value);
                if !same {
                    current = Some((*value).clone());
                }
                set |= sets;
            } else {
                let upper = current.as_ref();
                self.ignored(key.path, &value.at, *source, &value.value, upper, verb);
            }
        }
        current
    }

    fn intersect(&mut self, key: &ConfigKey, values: &[FileValue<'_>], how: Covers) -> Located<SettingValue> {
        let mut current = preset(key).unwrap_or_else(|| Located::built_in(SettingValue::List(Vec::new())));
        let mut set = false;
        for FileValue { source, value } in values {
            if !set && may_set(*source, BaseSetter::AnyTrusted) {
                current = (*value).clone();
                set = true;
                continue;
            }
            let upper = items(&current.value);
            let mut kept: Vec<Located<String>> = Vec::new();
            let mut dropped = Vec::new();
            for wanted in items(&value.value) {
                let within = if upper.iter().any(|upper| covers(how, &upper.value, &wanted.value)) {
                    vec![wanted]
                } else {
                    upper.iter().filter(|upper| covers(how, &wanted.value, &upper.value)).collect()
                };
                if within.is_empty() {
                    dropped.push(quoted(&wanted.value));
                }
                for item in within {
                    if !kept.iter().any(|known| known.value == item.value) {
                        kept.push(item.clone());
                    }
                }
            }
            if !dropped.is_empty() {
                let message = format!(
                    "`{}` {} ignored: {} does not contain {}{}",
                    dropped.join("`, `"),
                    if dropped.len() == 1 { "is" } else { "are" },
                    named(&current.at),
                    if dropped.len() == 1 { "it" } else { "them" },
                    untrusted(*source),
                );
                self.notes.push(ConfigNote::new(&value.at, key.path, message));
            }
            current = Located::new(SettingValue::List(kept), value.at.clone());
        }
        current
    }

    fn topmost(
        &mut self,
        key: &ConfigKey,
        values: &[FileValue<'_>],
        base: BaseSetter,
    ) -> Option<Located<SettingValue>> {
        let mut current = preset(key);
        let mut set = false;
        for FileValue { source, value } in values {
            if !set && may_set(*source, base) {
                current = Some((*value).clone());
                set = true;
            } else if source.is_project() && base == BaseSetter::AboveProject {
                let message = "is ignored: only the organisation or the user can set it";
                self.notes.push(ConfigNote::new(&value.at, key.path, message));
            } else if current.as_ref().is_none_or(|current| current.value != value.value) {
                self.ignored(key.path, &value.at, *source, &value.value, current.as_ref(), "");
            }
        }
        current
    }

    fn collect(&mut self, key: &ConfigKey, values: &[FileValue<'_>]) -> Option<Located<SettingValue>> {
        let mut current = preset(key);
        for FileValue { source, value } in values {
            if !source.is_trusted() {
                self.ignored(key.path, &value.at, *source, &value.value, current.as_ref(), "");
                continue;
            }
            match (current.as_mut().map(|current| &mut current.value), &value.value) {
                (Some(SettingValue::List(all)), SettingValue::List(more)) => {
                    for item in more {
                        if !all.iter().any(|known| known.value == item.value) {
                            all.push(item.clone());
                        }
                    }
                }
                (Some(SettingValue::Json(Json::Array(all))), SettingValue::Json(Json::Array(more))) => {
                    all.extend(more.iter().cloned());
                }
                (Some(SettingValue::Json(Json::Object(all))), SettingValue::Json(Json::Object(more))) => {
                    for (name, body) in more {
                        if all.contains_key(name) {
                            let message = "is ignored: a file above declares it";
                            let path = format!("{}.{}", key.path, quoted(name));
                            self.notes.push(ConfigNote::new(&value.at, path, message));
                        } else {
                            all.insert(name.clone(), body.clone());
                        }
                    }
                }
                _ => current = Some((*value).clone()),
            }
        }
        current
    }

    fn rates(&mut self, key: &ConfigKey, values: &[FileValue<'_>]) -> Vec<CallRates> {
        let mut all: Vec<CallRates> = Vec::new();
        for FileValue { value, .. } in values {
            let SettingValue::Rates(rates) = &value.value else { continue };
            for (tool, rate) in rates
                .default
                .iter()
                .map(|rate| (None, rate))
                .chain(rates.tools.iter().map(|(tool, rate)| (Some(tool), rate)))
            {
                let names: Vec<&str> = tool.iter().map(|tool| tool.as_str()).collect();
                let lower =
                    all.iter().filter_map(|upper| upper.lookup(&names)).min_by_key(|upper| upper.value);
                if let Some(upper) = lower.filter(|upper| upper.value < rate.value) {
                    let message = format!(
                        "`{}` is ignored: {} sets `{}`, and a file below can only lower it",
                        rate.value, upper.at, upper.value
                    );
                    self.notes.push(ConfigNote::new(&rate.at, key.path, message));
                }
            }
            all.push(rates.clone());
        }
        all
    }

    /// Limits a default value to its maximum.
    fn at_most(
        &mut self,
        values: &mut BTreeMap<&'static str, Located<SettingValue>>,
        key: &'static str,
        hard: &'static str,
    ) {
        let (Some(value), Some(most)) = (values.get(key), values.get(hard)) else { return };
        if int(&value.value) > int(&most.value) {
            if value.at != ValueOrigin::BuiltIn {
                let message = format!("is lowered to `{hard}` of {}", named(&most.at));
                self.notes.push(ConfigNote::new(&value.at, key, message));
            }
            let most = most.clone();
            values.insert(key, most);
        }
    }

    fn rules(&mut self, files: &[(ConfigSource, FileConfig)]) -> Vec<RuleSettings> {
        let mut rules = Vec::new();
        for (source, file) in files {
            for rule in &file.rules {
                if !source.is_trusted() && rule.decision == RuleDecision::Allow {
                    let message =
                        "a rule that allows is ignored: the project is not trusted (`vambrace trust`)";
                    self.notes.push(ConfigNote::new(&rule.at, "approvals.rules", message));
                } else {
                    rules.push(rule.clone());
                }
            }
        }
        rules
    }

    fn ignored(
        &mut self,
        key: &str,
        at: &ValueOrigin,
        source: ConfigSource,
        value: &SettingValue,
        upper: Option<&Located<SettingValue>>,
        verb: &str,
    ) {
        let upper = match upper {
            None => "it is unset".to_owned(),
            Some(Located { value, at: ValueOrigin::BuiltIn }) => {
                format!("the built-in value is `{}`", plain(value))
            }
            Some(Located { value, at }) => format!("{at} sets `{}`", plain(value)),
        };
        let lower = if source.is_trusted() { "a file below" } else { "an untrusted project" };
        let why = if !verb.is_empty() {
            format!("{upper}, and {lower} can only {verb} it")
        } else if source.is_trusted() {
            upper
        } else {
            "the project is not trusted (`vambrace trust`)".to_owned()
        };
        let message = format!("`{}` is ignored: {why}", plain(value));
        self.notes.push(ConfigNote::new(at, key, message));
    }
}

/// The value of one key in one file.
#[derive(Clone, Copy)]
struct FileValue<'a> {
    source: ConfigSource,
    value: &'a Located<SettingValue>,
}

/// The built-in value.
pub(crate) fn preset(key: &ConfigKey) -> Option<Located<SettingValue>> {
    let value = match key.preset {
        Preset::Unset => return None,
        Preset::Bool(value) => SettingValue::Bool(value),
        Preset::Int(value) => SettingValue::Int(value),
        Preset::Text(text) => SettingValue::Text(text.to_owned()),
        Preset::List(items) => {
            SettingValue::List(items.iter().map(|item| Located::built_in((*item).to_owned())).collect())
        }
    };
    Some(Located::built_in(value))
}

fn may_set(source: ConfigSource, base: BaseSetter) -> bool {
    match base {
        BaseSetter::AnyTrusted => source.is_trusted(),
        BaseSetter::AboveProject => !source.is_project(),
    }
}

fn int(setting: &SettingValue) -> u64 {
    match setting {
        SettingValue::Int(value) => *value,
        _ => 0,
    }
}

fn items(setting: &SettingValue) -> &[Located<String>] {
    match setting {
        SettingValue::List(items) => items,
        _ => &[],
    }
}

/// Whether the new directory is the old one or inside it.
fn inside(new: &SettingValue, old: &SettingValue) -> bool {
    match (new, old) {
        (SettingValue::Text(new), SettingValue::Text(old)) => {
            old == "."
                || new == old
                || new.strip_prefix(old.as_str()).is_some_and(|rest| rest.starts_with('/'))
        }
        _ => false,
    }
}

fn union(key: &ConfigKey, values: &[FileValue<'_>]) -> Located<SettingValue> {
    let mut at = ValueOrigin::BuiltIn;
    let mut all = preset(key).map(|preset| items(&preset.value).to_vec()).unwrap_or_default();
    let mut known: BTreeSet<String> = all.iter().map(|item| item.value.clone()).collect();
    for FileValue { value, .. } in values {
        at = value.at.clone();
        for item in items(&value.value) {
            if known.insert(item.value.clone()) {
                all.push(item.clone());
            }
        }
    }
    Located::new(SettingValue::List(all), at)
}

fn named(at: &ValueOrigin) -> String {
    match at {
        ValueOrigin::BuiltIn => "the built-in value".to_owned(),
        ValueOrigin::File { .. } => at.to_string(),
    }
}

fn untrusted(source: ConfigSource) -> &'static str {
    if source.is_trusted() { "" } else { ", and the project is not trusted" }
}

fn plain(setting: &SettingValue) -> String {
    match setting {
        SettingValue::Text(text) => quoted(text),
        other => quoted(&other.to_json().to_string()),
    }
}
