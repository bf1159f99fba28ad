//! Collects what is found about a command line. A judgement only becomes more severe, so that judging a further part
//! can never lower a class.

use vambrace_core::risk::RiskLevel;
use vambrace_core::terminal_escape;

use crate::classification::{Classification, CommandClass, StartedProgram};

/// Maximum number of reasons.
const MAX_REASONS: usize = 8;
/// Maximum number of characters of a word inside a reason.
const MAX_SHOWN_CHARS: usize = 60;
/// Maximum number of programs that are listed.
const MAX_PROGRAMS: usize = 512;

/// What is known so far.
#[derive(Debug)]
pub(crate) struct Judgement {
    class: CommandClass,
    risk: RiskLevel,
    reasons: Vec<(CommandClass, String)>,
    programs: Vec<StartedProgram>,
    unparsed: bool,
    connects: bool,
    typed_tool: Option<&'static str>,
    suggestion: Option<String>,
    forbidden: Option<String>,
    ask_singly: bool,
}

impl Judgement {
    pub(crate) fn new() -> Self {
        Self {
            class: CommandClass::ReadOnly,
            risk: RiskLevel::Low,
            reasons: Vec::new(),
            programs: Vec::new(),
            unparsed: false,
            connects: false,
            typed_tool: None,
            suggestion: None,
            forbidden: None,
            ask_singly: false,
        }
    }

    pub(crate) fn deny(&mut self, why: impl Into<String>) {
        self.raise(CommandClass::Deny, RiskLevel::High, why.into());
    }

    pub(crate) fn modify(&mut self, risk: RiskLevel, why: impl Into<String>) {
        self.raise(CommandClass::Modifying, risk.max(RiskLevel::Medium), why.into());
    }

    /// A reason that keeps the class.
    pub(crate) fn read(&mut self, why: impl Into<String>) {
        self.raise(CommandClass::ReadOnly, RiskLevel::Low, why.into());
    }

    /// The list of programs may be incomplete.
    pub(crate) fn unparsed(&mut self, why: impl Into<String>) {
        self.unparsed = true;
        self.modify(RiskLevel::High, why);
    }

    pub(crate) fn connect(&mut self) {
        self.connects = true;
    }

    pub(crate) fn ask_singly(&mut self) {
        self.ask_singly = true;
    }

    pub(crate) fn forbid(&mut self, program: &str) {
        self.forbidden.get_or_insert_with(|| shown(program));
    }

    pub(crate) fn use_tool(&mut self, tool: &'static str, suggestion: Option<&str>) {
        self.typed_tool.get_or_insert(tool);
        self.suggest(suggestion);
    }

    pub(crate) fn suggest(&mut self, suggestion: Option<&str>) {
        if let (None, Some(text)) = (&self.suggestion, suggestion) {
            self.suggestion = Some(text.to_owned());
        }
    }

    pub(crate) fn start(&mut self, name: &str, argv: Vec<String>) {
        if self.programs.len() < MAX_PROGRAMS {
            self.programs.push(StartedProgram { name: name.to_owned(), argv });
        } else {
            self.unparsed("more programs than are listed");
        }
    }

    fn raise(&mut self, class: CommandClass, risk: RiskLevel, why: String) {
        self.class = self.class.max(class);
        self.risk = self.risk.max(risk);
        let same_class = self.reasons.iter().filter(|(of, _)| *of == class).count();
        if same_class < MAX_REASONS && !self.reasons.iter().any(|(_, known)| *known == why) {
            self.reasons.push((class, why));
        }
    }

    pub(crate) fn finish(mut self) -> Classification {
        self.reasons.sort_by_key(|(class, _)| std::cmp::Reverse(*class));
        let why = self.reasons.into_iter().take(MAX_REASONS).map(|(_, why)| why).collect();
        Classification {
            class: self.class,
            risk: self.risk,
            why,
            programs: self.programs,
            unparsed: self.unparsed,
            connects: self.connects,
            typed_tool: self.typed_tool,
            suggestion: self.suggestion,
            forbidden: self.forbidden,
            ask_singly: self.ask_singly,
        }
    }
}

/// A word of the command line as it appears in a reason: one line, bounded, without control sequences.
pub(crate) fn shown(word: &str) -> String {
    let mut short: String = word.chars().take(MAX_SHOWN_CHARS).collect();
    if short.len() < word.len() {
        short.push('\u{2026}');
    }
    terminal_escape::one_line(&short)
}
