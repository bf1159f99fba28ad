//! Hunks on the screen: going from one to the next, marking them, and what is asked for with those that are marked.

use vambrace_broker::Part;
use vambrace_store::AskKind;

use super::state::{Effect, State};
use crate::out::Tone;

impl State {
    pub(super) fn jump(&mut self, by: isize) {
        let Some(ask) = self.ask() else { return };
        let places = ask.diff.places();
        let last = places.len().saturating_sub(1);
        self.cursor = self.cursor.saturating_add_signed(by).min(last);
        let place = places.get(self.cursor).copied();
        if let Some(row) = self.page.rows.iter().position(|row| row.at.is_some() && row.at == place) {
            self.top = row.saturating_sub(1);
        }
    }

    pub(super) fn mark(&mut self, file: bool) {
        let Some(ask) = self.ask() else { return };
        let places = ask.diff.places();
        let Some(here) = places.get(self.cursor).copied() else {
            self.say(Tone::Care, "there are no hunks here that could be marked");
            return;
        };
        let chosen: Vec<(usize, usize)> =
            places.into_iter().filter(|place| *place == here || (file && place.0 == here.0)).collect();
        if chosen.iter().all(|place| self.marked.contains(place)) {
            chosen.iter().for_each(|place| {
                self.marked.remove(place);
            });
        } else {
            self.marked.extend(chosen);
        }
        if !file {
            self.jump(1);
        }
    }

    pub(super) fn part(&mut self) -> Vec<Effect> {
        let Some(ask) = self.ask() else { return Vec::new() };
        if self.marked.is_empty() {
            self.say(Tone::Care, "mark first what you agree to: space marks a hunk, f its whole file");
            return Vec::new();
        }
        let mut whole = true;
        let mut hunks: Vec<(String, Vec<usize>)> = Vec::new();
        for (number, file) in ask.diff.files.iter().enumerate() {
            let own: Vec<usize> =
                self.marked.iter().filter(|place| place.0 == number).map(|place| place.1).collect();
            if !own.is_empty() {
                whole &= own.len() == file.hunks.max(1);
                hunks.push((file.path.clone(), own.into_iter().filter(|hunk| *hunk > 0).collect()));
            }
        }
        let part = if whole {
            Part::Files(hunks.into_iter().map(|(path, _)| path).collect())
        } else {
            Part::Hunks(hunks)
        };
        vec![Effect::Preview(ask.id().to_owned(), part)]
    }

    pub(super) fn edit(&mut self) -> Vec<Effect> {
        let Some(ask) = self.ask() else { return Vec::new() };
        let change = ask.row().is_some_and(|row| row.kind == AskKind::Change);
        let place = ask.diff.places().get(self.cursor).copied().unwrap_or_default();
        let path = ask.diff.files.get(place.0).map(|file| file.path.clone());
        match path.or_else(|| ask.look.files.first().map(|file| file.path.clone())).filter(|_| change) {
            Some(path) => vec![Effect::Edit(ask.id().to_owned(), path)],
            None => {
                self.say(Tone::Care, "only a change of files can be edited");
                Vec::new()
            }
        }
    }
}
