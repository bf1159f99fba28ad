//! What a bench says: figures, and for some of them what they must reach.

use serde_json::{Value, json};

/// One figure.
pub(crate) struct Figure {
    name: String,
    value: f64,
    unit: &'static str,
    must: Option<Must>,
}

/// What a figure must reach.
#[derive(Clone, Copy)]
pub(crate) enum Must {
    AtLeast(f64),
    AtMost(f64),
}

/// The figures of one bench.
pub(crate) struct Report {
    bench: &'static str,
    figures: Vec<Figure>,
}

impl Report {
    pub(crate) fn new(bench: &'static str) -> Self {
        Self { bench, figures: Vec::new() }
    }

    /// Adds a figure that is only told.
    pub(crate) fn tell(&mut self, name: impl Into<String>, value: f64, unit: &'static str) {
        self.figures.push(Figure { name: name.into(), value, unit, must: None });
    }

    /// Adds a figure that must reach something.
    pub(crate) fn must(&mut self, name: impl Into<String>, value: f64, unit: &'static str, must: Must) {
        self.figures.push(Figure { name: name.into(), value, unit, must: Some(must) });
    }

    /// Whether every figure reached what it must.
    pub(crate) fn reached(&self) -> bool {
        self.figures.iter().all(Figure::reached)
    }

    pub(crate) fn json(&self) -> Value {
        let figures: Vec<Value> = self
            .figures
            .iter()
            .map(|figure| {
                json!({"name": figure.name, "value": figure.value, "unit": figure.unit,
                       "must": figure.must.map(Must::text), "reached": figure.reached()})
            })
            .collect();
        json!({"bench": self.bench, "reached": self.reached(), "figures": figures})
    }

    pub(crate) fn text(&self) -> String {
        let mut out = format!("{}\n", self.bench);
        for figure in &self.figures {
            let must = match figure.must {
                Some(must) => {
                    format!("  must be {}: {}", must.text(), if figure.reached() { "yes" } else { "NO" })
                }
                None => String::new(),
            };
            out += &format!("  {:<52} {:>12.3} {:<8}{must}\n", figure.name, figure.value, figure.unit);
        }
        out
    }
}

impl Figure {
    fn reached(&self) -> bool {
        match self.must {
            None => true,
            Some(Must::AtLeast(least)) => self.value >= least,
            Some(Must::AtMost(most)) => self.value <= most,
        }
    }
}

impl Must {
    fn text(self) -> String {
        match self {
            Self::AtLeast(least) => format!(">= {least}"),
            Self::AtMost(most) => format!("<= {most}"),
        }
    }
}
