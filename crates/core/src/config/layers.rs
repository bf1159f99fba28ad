//! Several files to one: *layers only narrow*. The topmost file that says something sets it; every file
//! below can only make it narrower; a project that is not trusted can only narrow, even the built-in
//! values. What would widen is set aside with a note that names both places.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value as Json;

use super::choice::Profile;
use super::effective::Effective;
use super::fault::{Note, quoted};
use super::file::{FileConfig, Setting};
use super::grant::join_roles;
use super::key::{Base, Combine, Covers, Key, Kind, Preset};
use super::keys::KEYS;
use super::origin::{Origin, Sited, Source};
use super::pattern::covers;
use super::rate::CallRates;
use super::rule::Rule;
use crate::rule::Decision;

/// The settings in force, with the origin of every value.
#[must_use]
pub fn combine(
    organisation: Option<FileConfig>,
    user: Option<FileConfig>,
    project: Option<FileConfig>,
) -> Effective {
    // The slot says how far a file is trusted; a project file is trusted only when it was read as such.
    let trusted = project.as_ref().is_some_and(|file| file.source == Source::Project { trusted: true });
    let slots =
        [(Source::Organisation, organisation), (Source::User, user), (Source::Project { trusted }, project)];
    let files = slots.into_iter().filter_map(|(source, file)| Some((source, file?))).collect();
    Layers { files, notes: Vec::new() }.combine()
}

/// The files from the organisation down, and what was set aside.
struct Layers {
    files: Vec<(Source, FileConfig)>,
    notes: Vec<Note>,
}

impl Layers {
    fn combine(mut self) -> Effective {
        let files = std::mem::take(&mut self.files);
        self.notes = files.iter().flat_map(|(_, file)| file.notes.iter().cloned()).collect();
        let mut values = BTreeMap::new();
        let mut rates = Vec::new();
        for key in KEYS.iter().filter(|key| key.is_value() && key.combine != Combine::PerFile) {
            let said: Vec<Said<'_>> = files
                .iter()
                .filter_map(|(source, file)| {
                    Some(Said { source: *source, value: file.values.get(key.path)? })
                })
                .collect();
            if key.kind == Kind::Rates {
                rates = self.rates(key, &said);
            } else if let Some(value) = self.one(key, &said) {
                values.insert(key.path, value);
            }
        }
        self.at_most(&mut values, "limits.read_bytes", "limits.read_bytes_hard");
        self.at_most(&mut values, "limits.command_sec", "limits.command_sec_hard");
        let (roles, default_role) = join_roles(&files, &mut self.notes);
        let rules = self.rules(&files);
        Effective::new(values, rates, roles, default_role, rules, self.notes)
    }

    fn one(&mut self, key: &Key, said: &[Said<'_>]) -> Option<Sited<Setting>> {
        let any = Base::AnyTrusted;
        match key.combine {
            Combine::Part | Combine::PerFile => None,
            Combine::Own => preset(key),
            Combine::Cap => self.narrow(key, said, any, "lower", |new, old| int(new) <= int(old)),
            Combine::Floor => self.narrow(key, said, any, "raise", |new, old| int(new) >= int(old)),
            Combine::Narrowest(base) => {
                let rank = |setting: &Setting| match (key.kind, setting) {
                    (Kind::Choice(names), Setting::Text(text)) => names.iter().position(|name| name == text),
                    _ => None,
                };
                self.narrow(key, said, base, "narrow", |new, old| rank(new) <= rank(old))
            }
            Combine::Switch(narrow, base) => {
                self.narrow(key, said, base, "narrow", |new, _| *new == Setting::Bool(narrow))
            }
            Combine::Profile => self.narrow(key, said, any, "narrow", |new, _| {
                *new == Setting::Text(Profile::Readonly.as_str().to_owned())
            }),
            Combine::Inside => {
                // Paths of roles are read from the service root: who moves it moves them, so it takes trust.
                let (trusted, others): (Vec<_>, Vec<_>) =
                    said.iter().partition(|said| said.source.is_trusted());
                for Said { value, .. } in others {
                    let message = "is ignored: the project is not trusted (`vambrace trust`), and the paths of roles would move with it";
                    self.notes.push(Note::new(&value.at, key.path, message));
                }
                self.narrow(key, &trusted, Base::AboveProject, "narrow", inside)
            }
            Combine::Union => Some(union(key, said)),
            Combine::Intersect(how) => Some(self.intersect(key, said, how)),
            Combine::Topmost(base) => self.topmost(key, said, base),
            Combine::Above => {
                let (project, above): (Vec<_>, Vec<_>) =
                    said.iter().partition(|said| said.source.is_project());
                for Said { value, .. } in project {
                    let message = "is ignored: only the user's or the organisation's file can say this";
                    self.notes.push(Note::new(&value.at, key.path, message));
                }
                Some(self.intersect(key, &above, Covers::Same))
            }
            Combine::Collect => self.collect(key, said),
        }
    }

    /// The topmost file that may set the base sets it; after it, only what `narrower` accepts counts.
    fn narrow(
        &mut self,
        key: &Key,
        said: &[Said<'_>],
        base: Base,
        verb: &str,
        narrower: impl Fn(&Setting, &Setting) -> bool,
    ) -> Option<Sited<Setting>> {
        let mut current = preset(key);
        let mut set = false;
        for Said { source, value } in said {
            let sets = !set && may_set(*source, base);
            // A value that is unset holds no limit; a profile that is unset is the other one's choice.
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

    fn intersect(&mut self, key: &Key, said: &[Said<'_>], how: Covers) -> Sited<Setting> {
        let mut current = preset(key).unwrap_or_else(|| Sited::built_in(Setting::List(Vec::new())));
        let mut set = false;
        for Said { source, value } in said {
            if !set && may_set(*source, Base::AnyTrusted) {
                current = (*value).clone();
                set = true;
                continue;
            }
            let upper = items(&current.value);
            let mut kept: Vec<Sited<String>> = Vec::new();
            let mut dropped = Vec::new();
            for asked in items(&value.value) {
                let within = if upper.iter().any(|upper| covers(how, &upper.value, &asked.value)) {
                    vec![asked]
                } else {
                    upper.iter().filter(|upper| covers(how, &asked.value, &upper.value)).collect()
                };
                if within.is_empty() {
                    dropped.push(quoted(&asked.value));
                }
                for item in within {
                    if !kept.iter().any(|known| known.value == item.value) {
                        kept.push(item.clone());
                    }
                }
            }
            if !dropped.is_empty() {
                let message = format!(
                    "`{}` {} ignored: {} does not have {}{}",
                    dropped.join("`, `"),
                    if dropped.len() == 1 { "is" } else { "are" },
                    named(&current.at),
                    if dropped.len() == 1 { "it" } else { "them" },
                    untrusted(*source),
                );
                self.notes.push(Note::new(&value.at, key.path, message));
            }
            current = Sited::new(Setting::List(kept), value.at.clone());
        }
        current
    }

    fn topmost(&mut self, key: &Key, said: &[Said<'_>], base: Base) -> Option<Sited<Setting>> {
        let mut current = preset(key);
        let mut set = false;
        for Said { source, value } in said {
            if !set && may_set(*source, base) {
                current = Some((*value).clone());
                set = true;
            } else if source.is_project() && base == Base::AboveProject {
                let message = "is ignored: only the organisation or the user sets it";
                self.notes.push(Note::new(&value.at, key.path, message));
            } else if current.as_ref().is_none_or(|current| current.value != value.value) {
                self.ignored(key.path, &value.at, *source, &value.value, current.as_ref(), "");
            }
        }
        current
    }

    fn collect(&mut self, key: &Key, said: &[Said<'_>]) -> Option<Sited<Setting>> {
        let mut current = preset(key);
        for Said { source, value } in said {
            if !source.is_trusted() {
                self.ignored(key.path, &value.at, *source, &value.value, current.as_ref(), "");
                continue;
            }
            match (current.as_mut().map(|current| &mut current.value), &value.value) {
                (Some(Setting::List(all)), Setting::List(more)) => {
                    for item in more {
                        if !all.iter().any(|known| known.value == item.value) {
                            all.push(item.clone());
                        }
                    }
                }
                (Some(Setting::Json(Json::Array(all))), Setting::Json(Json::Array(more))) => {
                    all.extend(more.iter().cloned());
                }
                (Some(Setting::Json(Json::Object(all))), Setting::Json(Json::Object(more))) => {
                    for (name, body) in more {
                        if all.contains_key(name) {
                            let message = "is ignored: a file above declares it";
                            let path = format!("{}.{}", key.path, quoted(name));
                            self.notes.push(Note::new(&value.at, path, message));
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

    fn rates(&mut self, key: &Key, said: &[Said<'_>]) -> Vec<CallRates> {
        let mut all: Vec<CallRates> = Vec::new();
        for Said { value, .. } in said {
            let Setting::Rates(rates) = &value.value else { continue };
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
                    self.notes.push(Note::new(&rate.at, key.path, message));
                }
            }
            all.push(rates.clone());
        }
        all
    }

    /// A value that is asked for by default cannot be above the one that can be asked for at most.
    fn at_most(
        &mut self,
        values: &mut BTreeMap<&'static str, Sited<Setting>>,
        key: &'static str,
        hard: &'static str,
    ) {
        let (Some(value), Some(most)) = (values.get(key), values.get(hard)) else { return };
        if int(&value.value) > int(&most.value) {
            if value.at != Origin::BuiltIn {
                let message = format!("is cut to `{hard}` of {}", named(&most.at));
                self.notes.push(Note::new(&value.at, key, message));
            }
            let most = most.clone();
            values.insert(key, most);
        }
    }

    fn rules(&mut self, files: &[(Source, FileConfig)]) -> Vec<Rule> {
        let mut rules = Vec::new();
        for (source, file) in files {
            for rule in &file.rules {
                if !source.is_trusted() && rule.decision == Decision::Allow {
                    let message =
                        "a rule that allows is ignored: the project is not trusted (`vambrace trust`)";
                    self.notes.push(Note::new(&rule.at, "approvals.rules", message));
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
        at: &Origin,
        source: Source,
        value: &Setting,
        upper: Option<&Sited<Setting>>,
        verb: &str,
    ) {
        let upper = match upper {
            None => "it is unset".to_owned(),
            Some(Sited { value, at: Origin::BuiltIn }) => {
                format!("the built-in value is `{}`", plain(value))
            }
            Some(Sited { value, at }) => format!("{at} sets `{}`", plain(value)),
        };
        let who = if source.is_trusted() { "a file below" } else { "a project that is not trusted" };
        let why = if !verb.is_empty() {
            format!("{upper}, and {who} can only {verb} it")
        } else if source.is_trusted() {
            upper
        } else {
            "the project is not trusted (`vambrace trust`)".to_owned()
        };
        let message = format!("`{}` is ignored: {why}", plain(value));
        self.notes.push(Note::new(at, key, message));
    }
}

/// What one file says about one key.
#[derive(Clone, Copy)]
struct Said<'a> {
    source: Source,
    value: &'a Sited<Setting>,
}

/// The built-in value.
pub(crate) fn preset(key: &Key) -> Option<Sited<Setting>> {
    let value = match key.preset {
        Preset::Unset => return None,
        Preset::Bool(value) => Setting::Bool(value),
        Preset::Int(value) => Setting::Int(value),
        Preset::Text(text) => Setting::Text(text.to_owned()),
        Preset::List(items) => {
            Setting::List(items.iter().map(|item| Sited::built_in((*item).to_owned())).collect())
        }
    };
    Some(Sited::built_in(value))
}

fn may_set(source: Source, base: Base) -> bool {
    match base {
        Base::AnyTrusted => source.is_trusted(),
        Base::AboveProject => !source.is_project(),
    }
}

fn int(setting: &Setting) -> u64 {
    match setting {
        Setting::Int(value) => *value,
        _ => 0,
    }
}

fn items(setting: &Setting) -> &[Sited<String>] {
    match setting {
        Setting::List(items) => items,
        _ => &[],
    }
}

/// Whether a folder is the other or inside it.
fn inside(new: &Setting, old: &Setting) -> bool {
    match (new, old) {
        (Setting::Text(new), Setting::Text(old)) => {
            old == "."
                || new == old
                || new.strip_prefix(old.as_str()).is_some_and(|rest| rest.starts_with('/'))
        }
        _ => false,
    }
}

fn union(key: &Key, said: &[Said<'_>]) -> Sited<Setting> {
    let mut at = Origin::BuiltIn;
    let mut all = preset(key).map(|preset| items(&preset.value).to_vec()).unwrap_or_default();
    let mut known: BTreeSet<String> = all.iter().map(|item| item.value.clone()).collect();
    for Said { value, .. } in said {
        at = value.at.clone();
        for item in items(&value.value) {
            if known.insert(item.value.clone()) {
                all.push(item.clone());
            }
        }
    }
    Sited::new(Setting::List(all), at)
}

fn named(at: &Origin) -> String {
    match at {
        Origin::BuiltIn => "the built-in value".to_owned(),
        Origin::File { .. } => at.to_string(),
    }
}

fn untrusted(source: Source) -> &'static str {
    if source.is_trusted() { "" } else { ", and the project is not trusted" }
}

fn plain(setting: &Setting) -> String {
    match setting {
        Setting::Text(text) => quoted(text),
        other => quoted(&other.to_json().to_string()),
    }
}
