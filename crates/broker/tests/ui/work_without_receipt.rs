//! Work needs the receipt of a start; a permit is not enough.
use vambrace_core::settle::Permit;
use vambrace_tools::{ToolContext, ToolPlan};

fn run(plan: ToolPlan, context: &ToolContext, permit: &Permit) {
    let _ = plan.work.run(context, permit.fence(), permit);
}

fn main() {}
