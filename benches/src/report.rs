//! The report of a bench: figures, and required values for some of them.

use serde_json::{Value, json};

/// One figure.
pub(crate) struct Figure {
    name: String,
    value: f64,
    unit: &'static str,
    must: Option<Requirement>,
}

/// The required value of a figure.
#[derive(Clone, Copy)]
pub(crate) enum Requirement {
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

    /// Adds a figure without a requirement.
    pub(crate) fn add(&mut self, name: impl Into<String>, value: f64, unit: &'static str) {
        self.figures.push(Figure { name: name.into(), value, unit, must: None });
    }

    /// Adds a figure with a required value.
    pub(crate) fn require(
        &mut self,
        name: impl Into<String>,
        value: f64,
        unit: &'static str,
        must: Requirement,
    ) {
        self.figures.push(Figure { name: name.into(), value, unit, must: Some(must) });
    }

    /// Whether every requirement is met.
    pub(crate) fn reached(&self) -> bool {
        self.figures.iter().all(Figure::reached)
    }

    pub(crate) fn json(&self) -> Value {
        let figures: Vec<Value> = self
            .figures
            .iter()
            .map(|figure| {
                json!({"name": figure.name, "value": figure.value, "unit": figure.unit,
                       "must": figure.must.map(Requirement::text), "reached": figure.reached()})
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
            Some(Requirement::AtLeast(least)) => self.value >= least,
            Some(Requirement::AtMost(most)) => self.value <= most,
        }
    }
}

impl Requirement {
    fn text(self) -> String {
        match self {
            Self::AtLeast(least) => format!(">= {least}"),
            Self::AtMost(most) => format!("<= {most}"),
        }
    }
}
