//! Properties that hold for every command line.

use proptest::prelude::*;
use vambrace_commands::{CommandClass, CommandTable};

/// A word for a shell that stands for exactly this text.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

fn shell_text(argv: &[String]) -> String {
    argv.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

/// Parts of shell texts, whole and broken.
fn part() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("ls -la".to_owned()),
        Just("cat a | grep b".to_owned()),
        Just("sort f > out".to_owned()),
        Just("rm -rf /".to_owned()),
        Just("echo \"$(id)\"".to_owned()),
        Just("git push".to_owned()),
        Just("./x.sh".to_owned()),
        Just("if true; then ls; fi".to_owned()),
        Just("x=1".to_owned()),
        Just("find . -exec cat {} +".to_owned()),
        Just("cd sub".to_owned()),
        "[a-z]{1,6}( -[a-z])?( [a-z./]{1,8})?",
    ]
}

fn shell_like() -> impl Strategy<Value = String> {
    proptest::collection::vec(
        prop_oneof![
            part(),
            "[ -~\n]{0,6}",
            prop_oneof![
                Just("'"),
                Just("\""),
                Just("$("),
                Just(")"),
                Just("`"),
                Just("<<E\n"),
                Just("\nE\n"),
                Just("${"),
                Just("}"),
                Just("\\"),
                Just("|"),
                Just("&&"),
                Just(";"),
                Just("("),
                Just("{ "),
                Just("[["),
                Just("]]"),
                Just("$(("),
                Just("))"),
                Just("case x in"),
                Just("esac"),
                Just(";;"),
                Just("for x in"),
                Just("do"),
                Just("done"),
                Just("#"),
            ]
            .prop_map(str::to_owned),
        ],
        0..12,
    )
    .prop_map(|parts| parts.join(" "))
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in any::<String>()) {
        let found = CommandTable::built_in().classify_shell(&text);
        prop_assert!(!found.unparsed || found.class >= CommandClass::Modifying);
        prop_assert!(found.why.len() <= 8);
    }

    #[test]
    fn no_shell_like_text_makes_it_panic(text in shell_like()) {
        let found = CommandTable::built_in().classify_shell(&text);
        prop_assert!(!found.unparsed || found.class >= CommandClass::Modifying);
    }

    #[test]
    fn no_argument_vector_makes_it_panic(argv in proptest::collection::vec(any::<String>(), 0..6)) {
        let found = CommandTable::built_in().classify_argv(&argv);
        prop_assert!(!found.unparsed || found.class >= CommandClass::Modifying);
    }

    #[test]
    fn known_programs_with_any_arguments_do_not_panic(
        name in prop_oneof![Just("find"), Just("sed"), Just("awk"), Just("git"), Just("tar"), Just("env"), Just("xargs"), Just("sh"),
            Just("rm"), Just("dd"), Just("ssh"), Just("docker"), Just("chmod"), Just("kill"), Just("test"), Just("printf"), Just("jq"),
            Just("python3"), Just("make"), Just("trap"), Just("export"), Just("cd"), Just("flock"), Just("parallel"), Just("xxd")],
        arguments in proptest::collection::vec("[-a-zA-Z0-9=/{}$'\"\\\\|;.*!~+: \n\u{e9}]{0,12}", 0..6),
    ) {
        let mut argv = vec![name.to_owned()];
        argv.extend(arguments);
        let found = CommandTable::built_in().classify_argv(&argv);
        prop_assert_eq!(&found.programs[0].name, name);
    }

    #[test]
    fn quoted_argument_vector_is_the_same_program(argv in proptest::collection::vec("[ -~\u{e9}\u{4e2d}\n\t]{1,10}", 1..6)) {
        let table = CommandTable::built_in();
        let direct = table.classify_argv(&argv);
        let by_shell = table.classify_shell(&shell_text(&argv));
        prop_assert_eq!(&direct.programs[0], &by_shell.programs[0]);
        prop_assert!(by_shell.class >= direct.class.min(CommandClass::Modifying) || direct.class == CommandClass::Deny);
    }

    #[test]
    fn further_part_never_lowers_the_class(
        parts in proptest::collection::vec(part(), 1..5),
        operator in prop_oneof![Just(" | "), Just(" && "), Just("; "), Just(" || "), Just(" & "), Just("\n")],
        further in part(),
    ) {
        let table = CommandTable::built_in();
        let before = parts.join(operator);
        let after = format!("{before}{operator}{further}");
        prop_assert!(table.classify_shell(&after).class >= table.classify_shell(&before).class, "{}", after);
        let alone = table.classify_shell(&further).class;
        prop_assert!(table.classify_shell(&after).class >= alone, "{}", after);
    }

    #[test]
    fn wrapper_never_lowers_the_class(
        inner in prop_oneof![Just("ls"), Just("rm -rf /"), Just("git push"), Just("./x"), Just("sort -o x y"), Just("sudo ls"), Just("cat")],
        wrappers in proptest::collection::vec(
            prop_oneof![Just("env"), Just("env X=1"), Just("timeout 5"), Just("nice -n 3"), Just("nohup"), Just("stdbuf -o0"), Just("command"),
                Just("busybox"), Just("setsid"), Just("ionice -c3"), Just("xargs"), Just("time -p")],
            0..15,
        ),
    ) {
        let table = CommandTable::built_in();
        let words: Vec<&str> = wrappers.iter().flat_map(|wrapper| wrapper.split(' ')).chain(inner.split(' ')).collect();
        let alone: Vec<&str> = inner.split(' ').collect();
        prop_assert!(table.classify_argv(&words).class >= table.classify_argv(&alone).class, "{:?}", words);
    }
}
