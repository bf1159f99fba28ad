//! Classifies command lines by what they could do: only read, change something, or what must not run on a rule for a
//! class of commands. It also lists the programs that a command line could start.
//!
//! The class decides who is asked. It is no boundary: a program that is classified as reading still runs in the sandbox.
//!
//! Facts about programs are data (`data/*.txt`, compiled in): options, operands, subcommands, lists of names. Programs
//! whose arguments are a language of their own have a rule in `special/`. A shell text is parsed (`shell/`) and every
//! command in it is judged; whatever the parser does not take apart exactly as bash does is marked, and the class is
//! then at least modifying. A judgement only becomes more severe.
//!
//! Deliberately absent: input and output, the environment, what a path is or contains, and any decision.

mod argument;
mod built_in;
mod classification;
mod environment;
mod hidden_text;
mod judge;
mod judgement;
mod line_state;
mod operand_judge;
mod options;
mod paths;
mod pipeline_flow;
mod profile;
mod profile_judge;
mod program_name;
mod shell;
mod shell_judge;
mod shell_words;
mod special;
mod suspicious;
mod table;
mod table_reader;

pub use classification::{Classification, CommandClass, StartedProgram};
pub use table::CommandTable;
