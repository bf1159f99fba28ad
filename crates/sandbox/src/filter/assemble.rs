//! Compiles rules to BPF instructions: a search tree over system call numbers.

use std::collections::BTreeMap;

use crate::sys::seccomp::Instruction;

#[cfg(target_arch = "x86_64")]
pub(super) const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
pub(super) const ARCHITECTURE: u32 = 0xc000_00b7;

const LOAD: u16 = 0x20;
const AND: u16 = 0x54;
const JUMP: u16 = 0x05;
const IF_EQUAL: u16 = 0x15;
const IF_AT_LEAST: u16 = 0x35;
const IF_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;

const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;
const ARGUMENTS_AT: u32 = 16;

const KILL: u32 = 0x8000_0000;
const ERRNO: u32 = 0x0005_0000;
const NOTIFY: u32 = 0x7fc0_0000;
const ALLOW: u32 = 0x7fff_0000;
const X32: u32 = 0x4000_0000;

/// Maximum number of calls in a leaf, which is searched linearly.
const LEAF: usize = 4;

/// What the filter does with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FilterAction {
    Allow,
    /// Fail with this errno.
    Errno(i32),
    /// Notify the listener, which decides.
    Notify,
}

/// A test of one argument (its low half, which is all that the kernel reads in the calls judged here).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ArgumentTest {
    AnyBit { argument: u32, bits: u32 },
    Equal { argument: u32, value: u32 },
    MaskedEqual { argument: u32, mask: u32, value: u32 },
}

/// The rule of one call: the first case whose tests all hold decides, otherwise the default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SyscallRule {
    pub(super) cases: Vec<(Vec<ArgumentTest>, FilterAction)>,
    pub(super) otherwise: FilterAction,
}

impl SyscallRule {
    pub(super) fn always(verdict: FilterAction) -> Self {
        Self { cases: Vec::new(), otherwise: verdict }
    }

    pub(super) fn when(test: ArgumentTest, verdict: FilterAction) -> Self {
        Self { cases: vec![(vec![test], verdict)], otherwise: FilterAction::Allow }
    }

    pub(super) fn only_when(tests: Vec<Vec<ArgumentTest>>, otherwise: FilterAction) -> Self {
        Self { cases: tests.into_iter().map(|tests| (tests, FilterAction::Allow)).collect(), otherwise }
    }
}

/// The whole filter.
pub(super) fn assemble(rules: BTreeMap<u32, SyscallRule>) -> Vec<Instruction> {
    let mut program = vec![
        plain(LOAD, ARCHITECTURE_AT),
        branch(IF_EQUAL, ARCHITECTURE, 1, 0),
        plain(RETURN, KILL),
        plain(LOAD, NUMBER_AT),
    ];
    if cfg!(target_arch = "x86_64") {
        program.push(branch(IF_AT_LEAST, X32, 0, 1));
        program.push(verdict(FilterAction::Errno(libc::ENOSYS)));
    }
    let blocks: Vec<(u32, Vec<Instruction>)> =
        rules.iter().map(|(number, rule)| (*number, block(rule))).collect();
    program.extend(tree(&blocks));
    program
}

/// Every path through the result ends in a return.
fn tree(blocks: &[(u32, Vec<Instruction>)]) -> Vec<Instruction> {
    let mut program = Vec::new();
    let (left, right) = blocks.split_at(blocks.len() / 2);
    match right.first() {
        Some((first, _)) if blocks.len() > LEAF => {
            let (left, right) = (tree(left), tree(right));
            program.push(branch(IF_AT_LEAST, *first, 0, 1));
            program.push(plain(JUMP, u32::try_from(left.len()).unwrap_or(u32::MAX)));
            program.extend(left);
            program.extend(right);
        }
        _ => {
            for (number, block) in blocks {
                program.push(branch(IF_EQUAL, *number, 1, 0));
                program.push(plain(JUMP, u32::try_from(block.len()).unwrap_or(u32::MAX)));
                program.extend(block);
            }
            program.push(verdict(FilterAction::Allow));
        }
    }
    program
}

fn block(rule: &SyscallRule) -> Vec<Instruction> {
    let mut block = Vec::new();
    for (tests, then) in &rule.cases {
        // A test that fails jumps past the case; the jump is as long as the rest of the case.
        let mut case: Vec<Instruction> = vec![verdict(*then)];
        for test in tests.iter().rev() {
            let (load, mask, question, value) = match test {
                ArgumentTest::AnyBit { argument, bits } => (argument, None, IF_ANY_BIT, *bits),
                ArgumentTest::Equal { argument, value } => (argument, None, IF_EQUAL, *value),
                ArgumentTest::MaskedEqual { argument, mask, value } => {
                    (argument, Some(*mask), IF_EQUAL, *value)
                }
            };
            let skip = u8::try_from(case.len()).unwrap_or(u8::MAX);
            let mut before = vec![plain(LOAD, ARGUMENTS_AT + 8 * load)];
            before.extend(mask.map(|mask| plain(AND, mask)));
            before.push(branch(question, value, 0, skip));
            before.extend(case);
            case = before;
        }
        block.extend(case);
    }
    block.push(verdict(rule.otherwise));
    block
}

fn verdict(verdict: FilterAction) -> Instruction {
    plain(
        RETURN,
        match verdict {
            FilterAction::Allow => ALLOW,
            FilterAction::Errno(errno) => ERRNO | errno.unsigned_abs(),
            FilterAction::Notify => NOTIFY,
        },
    )
}

fn plain(code: u16, value: u32) -> Instruction {
    Instruction { code, on_true: 0, on_false: 0, value }
}

fn branch(code: u16, value: u32, on_true: u8, on_false: u8) -> Instruction {
    Instruction { code, on_true, on_false, value }
}

/// A BPF interpreter for tests: the filter's action for a call.
#[cfg(test)]
pub(super) fn run(program: &[Instruction], architecture: u32, number: u32, arguments: [u64; 6]) -> u32 {
    let (mut at, mut value) = (0_usize, 0_u32);
    loop {
        let now = program[at];
        at += 1;
        let jump = |yes: bool| usize::from(if yes { now.on_true } else { now.on_false });
        match now.code {
            LOAD => {
                value = match now.value {
                    NUMBER_AT => number,
                    ARCHITECTURE_AT => architecture,
                    at => arguments[((at - ARGUMENTS_AT) / 8) as usize] as u32,
                }
            }
            AND => value &= now.value,
            JUMP => at += now.value as usize,
            IF_EQUAL => at += jump(value == now.value),
            IF_AT_LEAST => at += jump(value >= now.value),
            IF_ANY_BIT => at += jump(value & now.value != 0),
            RETURN => return now.value,
            other => panic!("instruction {other:#x}"),
        }
    }
}
