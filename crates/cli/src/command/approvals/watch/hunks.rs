//! Moving between hunks, marking them, and approving only the marked ones.

use vambrace_broker::Amendment;
use vambrace_store::ApprovalKind;

use super::state::{WatchAction, WatchState};
use crate::output::Tone;

impl WatchState {
    pub(super) fn jump(&mut self, by: isize) {
        let Some(request) = self.current_request() else { return };
        let places = request.diff.places();
        let last = places.len().saturating_sub(1);
        self.cursor = self.cursor.saturating_add_signed(by).min(last);
        let place = places.get(self.cursor).copied();
        if let Some(row) = self.page.rows.iter().position(|row| row.at.is_some() && row.at == place) {
            self.top = row.saturating_sub(1);
        }
    }

    pub(super) fn mark(&mut self, file: bool) {
        let Some(request) = self.current_request() else { return };
        let places = request.diff.places();
        let Some(here) = places.get(self.cursor).copied() else {
            self.show_message(Tone::Care, "there is no hunk to mark here");
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

    pub(super) fn part(&mut self) -> Vec<WatchAction> {
        let Some(request) = self.current_request() else { return Vec::new() };
        if self.marked.is_empty() {
            self.show_message(Tone::Care, "nothing is marked: space marks a hunk, f its whole file");
            return Vec::new();
        }
        let mut whole = true;
        let mut hunks: Vec<(String, Vec<usize>)> = Vec::new();
        for (number, file) in request.diff.files.iter().enumerate() {
            let own: Vec<usize> =
                self.marked.iter().filter(|place| place.0 == number).map(|place| place.1).collect();
            if !own.is_empty() {
                whole &= own.len() == file.hunks.max(1);
                hunks.push((file.path.clone(), own.into_iter().filter(|hunk| *hunk > 0).collect()));
            }
        }
        let part = if whole {
            Amendment::Files(hunks.into_iter().map(|(path, _)| path).collect())
        } else {
            Amendment::Hunks(hunks)
        };
        vec![WatchAction::Preview(request.id().to_owned(), part)]
    }

    pub(super) fn edit(&mut self) -> Vec<WatchAction> {
        let Some(request) = self.current_request() else { return Vec::new() };
        let change = request.row().is_some_and(|row| row.kind == ApprovalKind::Change);
        let place = request.diff.places().get(self.cursor).copied().unwrap_or_default();
        let path = request.diff.files.get(place.0).map(|file| file.path.clone());
        match path.or_else(|| request.look.files.first().map(|file| file.path.clone())).filter(|_| change) {
            Some(path) => vec![WatchAction::Edit(request.id().to_owned(), path)],
            None => {
                self.show_message(Tone::Care, "only file changes can be edited");
                Vec::new()
            }
        }
    }
}
