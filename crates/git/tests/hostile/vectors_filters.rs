//! Vectors: filters and drivers that attributes name, in every form and file.

use std::fs;

use super::vectors::{AttackVector, Expectation, local, plain_add, plain_diff, plain_switch, set};

pub(crate) const FILTER_VECTORS: &[AttackVector] = &[
    local("diff.external", |lab| set(lab, "diff", "external"), plain_diff),
    local("diff.*.command", |lab| set(lab, "diff \"evil\"", "command"), plain_diff),
    local("diff.*.textconv", |lab| set(lab, "diff \"evil\"", "textconv"), plain_diff),
    local(
        "diff.*.textconv in a log",
        |lab| set(lab, "diff \"evil\"", "textconv"),
        |lab| {
            lab.plain(&["log", "-p"]);
        },
    ),
    local(
        "diff.*.textconv of one file",
        |lab| set(lab, "diff \"evil\"", "textconv"),
        |lab| {
            lab.plain(&["show", "--textconv", "HEAD:data.evil"]);
        },
    ),
    local("filter.*.clean by add", |lab| set(lab, "filter \"evil\"", "clean"), plain_add),
    local("filter.*.clean by diff", |lab| set(lab, "filter \"evil\"", "clean"), plain_diff),
    local("filter.*.smudge", |lab| set(lab, "filter \"evil\"", "smudge"), plain_switch),
    local("filter.*.process", |lab| set(lab, "filter \"evil\"", "process"), plain_add),
    local(
        "filter.*.clean, required",
        |lab| {
            set(lab, "filter \"evil\"", "clean");
            lab.config("[filter \"evil\"]\n\trequired = true");
        },
        plain_add,
    ),
    local(
        "filter with = in its name",
        |lab| {
            lab.write(".git/info/attributes", "*.evil filter=a=b\n");
            set(lab, "filter \"a=b\"", "clean");
        },
        plain_add,
    ),
    local(
        "filter with an empty name",
        |lab| {
            lab.write(".git/info/attributes", "*.evil filter=\n");
            set(lab, "filter \"\"", "clean");
        },
        plain_add,
    ),
    local("filter in the old section form", |lab| set(lab, "Filter.EVIL", "CLEAN"), plain_add),
    local(
        "filter with dots, quotes and bytes in its name",
        |lab| {
            lab.write(".git/info/attributes", "*.evil filter=e.v\"i\\l\u{e9}\n");
            set(lab, "filter \"e.v\\\"i\\\\l\u{e9}\"", "clean");
        },
        plain_add,
    ),
    AttackVector {
        config_only: false,
        ..local(
            "filter by tracked attributes",
            |lab| {
                lab.write(".git/info/attributes", "");
                lab.write(".gitattributes", "*.evil filter=evil\n");
                lab.write(".git/info/exclude", ".gitattributes\n");
                set(lab, "filter \"evil\"", "clean");
            },
            plain_add,
        )
    },
    local(
        "filter by core.attributesFile",
        |lab| {
            lab.write(".git/info/attributes", "");
            lab.write(".git/more-attributes", "* filter=evil\n");
            lab.config("[core]\n\tattributesFile = .git/more-attributes");
            set(lab, "filter \"evil\"", "clean");
        },
        plain_add,
    ),
    local(
        "filter in an included file",
        |lab| {
            lab.write(".git/more", &format!("[filter \"evil\"]\n\tclean = {}\n", lab.program("program")));
            lab.config("[include]\n\tpath = more");
        },
        plain_add,
    ),
    local(
        "filter in a conditionally included file, two deep",
        |lab| {
            lab.write(".git/x/deep", &format!("[filter \"evil\"]\n\tclean = {}\n", lab.program("program")));
            lab.write(".git/more", "[include]\n\tpath = \"x/deep\"\n");
            lab.config("[includeIf \"onbranch:main\"]\n\tpath = ../.git/more");
        },
        plain_add,
    ),
    AttackVector {
        expectation: Expectation::Rejected("is outside the workspace"),
        ..local(
            "filter in a file outside the workspace",
            |lab| {
                let more = lab.root.join("more");
                fs::write(&more, format!("[filter \"evil\"]\n\tclean = {}\n", lab.program("program")))
                    .unwrap();
                lab.config(&format!("[include]\n\tpath = {}", more.display()));
            },
            plain_add,
        )
    },
    AttackVector {
        config_only: false,
        ..local(
            "merge.*.driver",
            |lab| set(lab, "merge \"evil\"", "driver"),
            |lab| {
                lab.plain(&["commit", "-a", "-m", "x"]);
                lab.plain(&["merge", "other"]);
            },
        )
    },
];
