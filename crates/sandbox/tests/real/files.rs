//! What a program sees of the workspace and of the paths around it.

use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use libtest_mimic::Trial;
use vambrace_core::fence::PathFence;
use vambrace_core::glob::{GlobPurpose, GlobRoots, PathGlobs};
use vambrace_sandbox::{Exit, Filesystem, Observe, SandboxError, Tier, WithheldReason};

use super::harness::{
    TIERS, TestProject, changes, check_out, err, in_tier, is_root, mode, out, run, sandbox, start, test,
    try_run, withheld, write_back,
};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test("files::no_file_of_the_host_gets_a_set_id_bit", no_file_of_the_host_gets_a_set_id_bit),
        test(
            "files::granted_parent_directory_does_not_open_the_workspace",
            granted_parent_directory_does_not_open_the_workspace,
        ),
        test("files::setgid_workspace_can_be_changed", setgid_workspace_can_be_changed),
        test("files::masked_names_do_not_exist_in_any_mode", masked_names_do_not_exist_in_any_mode),
        test("files::paths_outside_the_fence_cannot_be_read", paths_outside_the_fence_cannot_be_read),
        test("files::unreadable_directory_exposes_no_secret", unreadable_directory_exposes_no_secret),
        test("files::secret_created_during_the_run_is_masked", secret_created_during_the_run_is_masked),
        test("files::deny_shows_nothing", deny_shows_nothing),
        test("files::read_shows_files_and_changes_nothing", read_shows_files_and_changes_nothing),
        test(
            "files::write_starts_empty_and_only_new_names_are_written_back",
            write_starts_empty_and_only_new_names_are_written_back,
        ),
        test("files::speculative_changes_nothing", speculative_changes_nothing),
        test(
            "files::scratch_directories_outlive_a_run_and_are_never_written_back",
            scratch_directories_outlive_a_run_and_are_never_written_back,
        ),
        test(
            "files::run_that_would_see_the_state_directory_is_denied",
            run_that_would_see_the_state_directory_is_denied,
        ),
        test(
            "files::granted_subdirectory_does_not_hide_its_parent",
            granted_subdirectory_does_not_hide_its_parent,
        ),
        test("files::extra_paths_are_readable_or_writable", extra_paths_are_readable_or_writable),
        test(
            "files::extra_path_that_is_a_symlink_works_by_its_own_name",
            extra_path_that_is_a_symlink_works_by_its_own_name,
        ),
        test(
            "files::extra_path_in_the_workspace_exposes_no_secret",
            extra_path_in_the_workspace_exposes_no_secret,
        ),
        test(
            "files::pinned_script_changed_while_running_keeps_its_content",
            pinned_script_changed_while_running_keeps_its_content,
        ),
        test("files::hard_link_to_a_secret_does_not_unmask_it", hard_link_to_a_secret_does_not_unmask_it),
        test(
            "files::tier_no_userns_hides_network_and_mounts_of_the_host",
            tier_no_userns_hides_network_and_mounts_of_the_host,
        ),
        test(
            "files::tier_no_userns_denies_what_it_cannot_enforce",
            tier_no_userns_denies_what_it_cannot_enforce,
        ),
    ]
}

// T12
fn masked_names_do_not_exist_in_any_mode() {
    let fixture = TestProject::new();
    let script = "cat .env deep/er/key.pem secrets/a; ls -A . deep/er; mv deep moved 2>/dev/null; \
                  find . -name '*.pem' -o -name .env -o -name secrets";
    for mode in [Filesystem::Read, Filesystem::ReadWrite, Filesystem::Speculative] {
        let outcome = run(&fixture.shell(mode, script));
        let printed = out(&outcome) + &err(&outcome);
        assert!(!printed.contains("in-the-"), "{mode:?}: {printed}");
        assert_eq!(out(&outcome), ".:\n.git\ndeep\nplain.txt\nsrc\n\ndeep/er:\n", "{mode:?}");
    }
    let outcome = run(&in_tier(
        fixture.shell(Filesystem::Read, "cat .env deep/er/key.pem secrets/a; cat plain.txt"),
        Tier::NoUserns,
    ));
    let printed = out(&outcome) + &err(&outcome);
    assert!(!printed.contains("in-the-") && printed.contains("plain\n"), "{printed}");
}

// T12: a directory that cannot be listed cannot be walked either
fn unreadable_directory_exposes_no_secret() {
    let fixture = TestProject::new();
    let secrets = ["a/d/.env", "a/d/secrets/k", "a/d/x.pem"];
    for name in secrets.into_iter().chain(["a/d/plain"]) {
        fixture.write(&format!("project/{name}"), "in-a-secret\n");
    }
    let set = |mode| {
        std::fs::set_permissions(fixture.path("project/a/d"), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    set(0o755);
    let before = fixture.listing("project");
    for closed in [0o311, 0o600, 0o400, 0] {
        set(closed);
        let look = format!("chmod 755 a/d; cat {}; ls a/d; cat plain.txt", secrets.join(" "));
        for tier in TIERS {
            let printed = out(&run(&in_tier(fixture.shell(Filesystem::Read, &look), tier)));
            assert!(
                !printed.contains("in-a-secret") && printed.ends_with("plain\n"),
                "{closed:o} {tier}: {printed}"
            );
        }
        for then in ["rm -rf a", "rm -rf a/d; mkdir -p a/d; echo x >a/d/plain; echo x >a/d/.env", "mv a b"] {
            let outcome = run(&fixture.shell(Filesystem::ReadWrite, &format!("{look}; {then}")));
            assert!(!out(&outcome).contains("in-a-secret"), "{closed:o}: {}", out(&outcome));
            if is_root() {
                // Root can read every directory: only the secrets are masked.
                continue;
            }
            assert!(
                !changes(&outcome).iter().any(|change| change.contains(" a/d")),
                "{:?}",
                changes(&outcome)
            );
            write_back(&outcome).unwrap();
            assert_eq!(mode(&fixture.path("project/a/d")) & 0o777, closed);
        }
        set(0o755);
        let _ = std::fs::remove_dir(fixture.path("project/b"));
        assert_eq!(fixture.listing("project"), before, "{closed:o}");
    }
    // If the workspace itself is unreadable, the error names it.
    std::fs::set_permissions(fixture.project(), std::fs::Permissions::from_mode(0o311)).unwrap();
    let ran = try_run(&fixture.shell(Filesystem::Read, "true"));
    std::fs::set_permissions(fixture.project(), std::fs::Permissions::from_mode(0o755)).unwrap();
    if !is_root() {
        assert!(ran.unwrap_err().to_string().contains(fixture.project().to_str().unwrap()));
    }
}

// P4
// T12: plain names in the workspace's top directory
fn secret_created_during_the_run_is_masked() {
    for (filesystem, shown) in
        [(Filesystem::Read, false), (Filesystem::ReadWrite, false), (Filesystem::Read, true)]
    {
        let fixture = TestProject::new();
        std::fs::remove_file(fixture.path("project/.env")).unwrap();
        std::fs::remove_dir_all(fixture.path("project/secrets")).unwrap();
        let script = "echo up; read line; cat .env secrets/a later.txt 2>/dev/null; ls -A | grep -c -e env -e later -e secrets; \
                      cat plain.txt";
        let mut spec = fixture.shell(filesystem, script);
        spec.masked.push("later.txt".to_owned());
        if shown {
            // A name that the spec does not mask is visible.
            spec.masked = vec!["later.txt".to_owned()];
        }
        let (reader, mut writer) = std::io::pipe().unwrap();
        let outcome = sandbox().run(&spec, vambrace_sandbox::Input::From(reader.as_fd()), &mut |_, piece| {
            if piece == b"up\n" {
                for name in [".env", "secrets/a", "later.txt"] {
                    fixture.write(&format!("project/{name}"), &format!("secret {name}\n"));
                }
                writer.write_all(b"go on\n").unwrap();
            }
        });
        let outcome = outcome.unwrap();
        let expected = match shown {
            true => "up\nsecret .env\nsecret secrets/a\n2\nplain\n",
            false => "up\n0\nplain\n",
        };
        check_out(&outcome, expected);
    }
}

// P4
fn deny_shows_nothing() {
    let fixture = TestProject::new();
    for tier in TIERS {
        let script = format!("cat {0}/plain.txt {0}/src/main.rs; ls {0}/src", fixture.project().display());
        let outcome = run(&in_tier(fixture.shell(Filesystem::Deny, &script), tier));
        assert_eq!(out(&outcome), "", "{tier}");
        assert_ne!(outcome.exit, Exit::Code(0));
    }
}

// P4
fn read_shows_files_and_changes_nothing() {
    let fixture = TestProject::new();
    let before = fixture.listing("project");
    for tier in TIERS {
        let script = "cat plain.txt; echo x >plain.txt; echo x >new; rm plain.txt; mkdir d; mv src s; \
                      chmod 777 plain.txt; ln -s a b; ln plain.txt c; touch plain.txt; mkfifo f";
        let outcome = run(&in_tier(fixture.shell(Filesystem::Read, script), tier));
        assert_eq!(out(&outcome), "plain\n", "{}", err(&outcome));
        assert_eq!(fixture.listing("project"), before, "{tier}");
    }
}

// P4
fn write_starts_empty_and_only_new_names_are_written_back() {
    for tier in TIERS {
        write_in(tier);
    }
}

fn write_in(tier: Tier) {
    let fixture = TestProject::new();
    let script = "ls -A; echo new >new.txt; echo mine >plain.txt; mkdir -p src/sub; echo x >src/sub/x; \
                  echo y >src/main.rs; echo own >>new.txt; echo s >.env";
    let outcome = run(&in_tier(fixture.shell(Filesystem::Write, script), tier));
    check_out(&outcome, "");
    assert_eq!(changes(&outcome), ["created new.txt", "created src/sub", "created src/sub/x"]);
    assert_eq!(
        withheld(&outcome),
        [
            (".env".to_owned(), WithheldReason::Masked),
            ("plain.txt".to_owned(), WithheldReason::Exists),
            ("src/main.rs".to_owned(), WithheldReason::Exists)
        ]
    );
    assert_eq!(write_back(&outcome).unwrap(), 3);
    assert_eq!(fixture.read("project/new.txt").as_deref(), Some("new\nown\n"));
    assert_eq!(fixture.read("project/plain.txt").as_deref(), Some("plain\n"));
    assert_eq!(fixture.read("project/src/main.rs").as_deref(), Some("fn main() {}\n"));
    assert_eq!(fixture.read("project/src/sub/x").as_deref(), Some("x\n"));
    assert_eq!(fixture.read("project/.env").as_deref(), Some("TOKEN=in-the-env-file\n"));
}

// P4
fn speculative_changes_nothing() {
    let fixture = TestProject::new();
    let before = fixture.listing("project");
    let outcome =
        run(&fixture.shell(Filesystem::Speculative, "echo x >plain.txt; rm -r src; mkdir n; cat plain.txt"));
    check_out(&outcome, "x\n");
    assert_eq!(changes(&outcome), ["created n", "modified plain.txt", "deleted src", "deleted src/main.rs"]);
    assert_eq!(fixture.listing("project"), before);
    write_back(&outcome).unwrap();
    assert_eq!(fixture.read("project/plain.txt").as_deref(), Some("x\n"));
}

fn scratch_directories_outlive_a_run_and_are_never_written_back() {
    let fixture = TestProject::new();
    let mut spec = fixture
        .shell(Filesystem::ReadWrite, "mkdir -p target; cat target/built; echo 1 >>target/built; echo x >y");
    spec.scratch = vec!["target".to_owned()];
    let first = run(&spec);
    assert_eq!(out(&first), "");
    assert_eq!(changes(&first), ["created y"]);
    let second = run(&spec);
    assert_eq!(out(&second), "1\n");
    assert!(!fixture.path("project/target").exists());
    // Read-only runs have it as well.
    let mut read = fixture.shell(Filesystem::Read, "cat target/built; echo 3 >target/three; echo x >y");
    read.scratch = spec.scratch.clone();
    assert_eq!(out(&run(&read)), "1\n1\n");
    // Installed dependencies are visible; what is added to them is discarded and reported.
    fixture.write("project/node_modules/dep/index.js", "dep\n");
    let mut node =
        fixture.shell(Filesystem::ReadWrite, "cat node_modules/dep/index.js; echo x >node_modules/new");
    node.scratch = vec!["node_modules".to_owned()];
    let outcome = run(&node);
    assert_eq!(out(&outcome), "dep\n");
    assert_eq!(changes(&outcome), [""; 0]);
    let withheld = outcome.changes.unwrap().withheld;
    assert_eq!(withheld.len(), 1, "{withheld:?}");
    assert_eq!(
        (withheld[0].path.to_str(), withheld[0].why),
        (Some("node_modules"), WithheldReason::BuildDirectory)
    );
    assert_eq!(first.changes.unwrap().withheld.len(), 0);
    for (name, tier) in
        ["out/build", "../x", ".", ""].into_iter().flat_map(|name| TIERS.map(|tier| (name, tier)))
    {
        let mut deep = in_tier(fixture.shell(Filesystem::Read, "true"), tier);
        deep.scratch = vec![name.to_owned()];
        let ran = try_run(&deep);
        assert!(
            matches!(&ran, Err(SandboxError::Refused(why)) if why.contains("a single name")),
            "{name}: {ran:?}"
        );
    }
    // A symlink of that name in the project is not followed.
    std::os::unix::fs::symlink("../outside", fixture.path("project/target")).unwrap();
    run(&spec);
    assert_eq!(fixture.listing("outside").len(), 1);
}

// P4: the sandbox itself enforces this, not its callers.
fn run_that_would_see_the_state_directory_is_denied() {
    let fixture = TestProject::new();
    for name in ["home/.cargo/state/keys", "outside/state/keys", "project/state/keys"] {
        fixture.write(&format!("{name}/ledger.key"), "the-key");
        let state = fixture.path(name).parent().unwrap().to_owned();
        std::os::unix::fs::symlink(&state, fixture.path(&format!("{name}-link"))).unwrap();
        let sandbox = start(&fixture.path(&format!("{name}-link")));
        let script = format!("cat {}/keys/ledger.key", state.display());
        for tier in TIERS {
            let mut spec = in_tier(fixture.shell(Filesystem::Read, &script), tier);
            spec.read =
                [fixture.path("outside")].into_iter().filter(|outer| state.starts_with(outer)).collect();
            let error = sandbox.run(&spec, vambrace_sandbox::Input::Nothing, &mut |_, _| {}).unwrap_err();
            assert!(matches!(error, SandboxError::ShowsState { .. }), "{name} {tier}: {error}");
            spec.write = std::mem::take(&mut spec.read);
            let denied = sandbox.run(&spec, vambrace_sandbox::Input::Nothing, &mut |_, _| {});
            assert!(matches!(denied, Err(SandboxError::ShowsState { .. })), "{name} {tier}: {denied:?}");
        }
    }
    // A single certificate can be made visible, but not its directory.
    fixture.write("state/keys/ledger.key", "the-key");
    fixture.write("state/certificates/one.pem", "for all");
    let sandbox = start(&fixture.path("state"));
    let script = format!("cd {}; cat certificates/* keys/*", fixture.path("state").display());
    let mut spec = in_tier(fixture.shell(Filesystem::Read, &script), Tier::Full);
    spec.read = vec![fixture.path("state/certificates/one.pem")];
    let outcome = sandbox.run(&spec, vambrace_sandbox::Input::Nothing, &mut |_, _| {}).unwrap();
    assert_eq!(out(&outcome), "for all");
    spec.read = vec![fixture.path("state/certificates")];
    assert!(sandbox.run(&spec, vambrace_sandbox::Input::Nothing, &mut |_, _| {}).is_err());
}

fn extra_paths_are_readable_or_writable() {
    let fixture = TestProject::new();
    std::fs::create_dir(fixture.path("shared")).unwrap();
    let script = format!(
        "cat {0}/outside/file; echo x >{0}/outside/new; echo y >{0}/shared/new; cat {0}/shared/new",
        fixture.path("").display()
    );
    let mut spec = fixture.shell(Filesystem::Deny, &script);
    spec.read = vec![fixture.path("outside")];
    spec.write = vec![fixture.path("shared")];
    let outcome = run(&spec);
    assert_eq!(out(&outcome), "in-the-outside-file\ny\n", "{}", err(&outcome));
    assert_eq!(fixture.read("shared/new").as_deref(), Some("y\n"));
    assert!(!fixture.path("outside/new").exists());
    for path in ["/", "/proc", "/sys/kernel", "/dev"] {
        spec.read = vec![path.into()];
        assert!(try_run(&spec).is_err(), "{path}");
    }
}

// T12: a path granted inside the workspace is mounted over its masks
fn extra_path_in_the_workspace_exposes_no_secret() {
    let fixture = TestProject::new();
    for name in ["sub/.env", "sub/secrets/k", "sub/deep/x.pem"] {
        fixture.write(&format!("project/{name}"), "in-a-secret\n");
    }
    std::os::unix::fs::symlink("../plain.txt", fixture.path("project/sub/link.pem")).unwrap();
    fixture.write("project/sub/plain", "shown\n");
    let before = fixture.listing("project/sub");
    let script = format!(
        "cd {}; cat .env secrets/k deep/x.pem; cat plain; rm -rf .env secrets; echo x >.env; echo x >new",
        fixture.path("project/sub").display()
    );
    for mode in [Filesystem::Deny, Filesystem::Read, Filesystem::Write, Filesystem::ReadWrite] {
        let tiers = TIERS.into_iter().filter(|tier| *tier == Tier::Full || mode != Filesystem::ReadWrite);
        for (tier, writes) in tiers.flat_map(|tier| [(tier, false), (tier, true)]) {
            let mut spec = in_tier(fixture.shell(mode, &script), tier);
            (if writes { &mut spec.write } else { &mut spec.read }).push(fixture.path("project/sub"));
            match (tier, writes, try_run(&spec)) {
                (Tier::NoUserns, true, ran) => {
                    assert!(ran.unwrap_err().to_string().contains("no-userns cannot hide"), "{mode:?}");
                }
                (_, _, ran) => assert_eq!(out(&ran.unwrap()), "shown\n", "{mode:?} {tier} {writes}"),
            }
            let written = std::fs::remove_file(fixture.path("project/sub/new")).is_ok();
            assert_eq!(written, writes && tier == Tier::Full, "{mode:?} {tier}");
            assert_eq!(fixture.listing("project/sub"), before, "{mode:?} {tier} {writes}");
        }
    }
    let denied = |path: &str, writes: bool, words: &str| {
        for (tier, mode) in
            TIERS.into_iter().flat_map(|tier| [(tier, Filesystem::Read), (tier, Filesystem::Deny)])
        {
            let mut spec = in_tier(fixture.shell(mode, "true"), tier);
            (if writes { &mut spec.write } else { &mut spec.read }).push(fixture.path(path));
            let ran = try_run(&spec);
            let reported = matches!(&ran, Err(SandboxError::Refused(why)) if why.contains(words));
            assert!(reported, "{path} {tier} {mode:?}: {ran:?}");
        }
    };
    denied("project", true, "--filesystem readwrite");
    for path in ["project/.env", "project/secrets", "project/secrets/a"] {
        denied(path, false, "is masked");
        denied(path, true, "is masked");
    }
}

fn extra_path_that_is_a_symlink_works_by_its_own_name() {
    use std::os::unix::fs::symlink;
    let fixture = TestProject::new();
    fixture.write("outside/L/real/f", "by a link\n");
    fixture.write("outside/L/real/unseen/.env", "");
    symlink("./real", fixture.path("outside/L/cur")).unwrap();
    symlink(fixture.path("outside/L/../L/cur"), fixture.path("outside/abs")).unwrap();
    symlink("outside/L", fixture.path("dir")).unwrap();
    fixture.write("shared/f", "shared\n");
    symlink("../shared", fixture.path("outside/w")).unwrap();
    symlink("../../outside/L/real", fixture.path("project/src/inside")).unwrap();
    fixture.write("home/mytools/bin/tool", "#!/bin/sh\necho tool\n");
    fixture.write("home/tools/volta/f", "volta\n");
    let open = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
    std::fs::set_permissions(fixture.path("home/mytools/bin/tool"), open(0o755)).unwrap();
    std::fs::set_permissions(fixture.path("shared"), open(0o777)).unwrap();
    symlink("mytools/bin", fixture.path("home/lnkbin")).unwrap();
    symlink("tools/volta", fixture.path("home/.volta")).unwrap();
    let before = fixture.listing("");
    let script = format!(
        "cd {}; cat outside/L/cur/f outside/abs/f dir/cur/f outside/w/f && echo x >outside/w/new && rm shared/new",
        fixture.path("").display()
    );
    let of_home = format!("tool && cat {}/.volta/f", fixture.path("home").display());
    for tier in TIERS {
        for mode in [Filesystem::Deny, Filesystem::Read, Filesystem::Write] {
            let mut spec = in_tier(fixture.shell(mode, &script), tier);
            spec.read = ["outside/L/cur", "outside/abs", "dir/cur", "project/src/inside"]
                .map(|path| fixture.path(path))
                .into();
            spec.write = vec![fixture.path("outside/w")];
            let outcome = run(&spec);
            check_out(&outcome, "by a link\nby a link\nby a link\nshared\n");
            assert!(outcome.changes.is_none_or(|changes| changes.list.is_empty()));
        }
        if tier == Tier::Full || !is_root() {
            let mut spec = in_tier(fixture.shell(Filesystem::Read, &of_home), tier);
            spec.path = vec![fixture.path("home/lnkbin")];
            check_out(&run(&spec), "tool\nvolta\n");
        }
        assert_eq!(fixture.listing(""), before, "{tier}");
    }
    // Nothing else of the directory that contains a symlink is visible.
    let spec = fixture.shell(Filesystem::Read, &format!("ls -A {}", fixture.path("outside/L").display()));
    let spec = vambrace_sandbox::Spec { read: vec![fixture.path("outside/L/cur")], ..spec };
    check_out(&run(&spec), "cur\nreal\n");
}

// `/root` with toolchains in it; a workspace `/app` with a further path in it
fn granted_subdirectory_does_not_hide_its_parent() {
    let fixture = TestProject::new();
    let mut spec =
        fixture.shell(Filesystem::Read, "echo mine >$HOME/new && cat $HOME/new && ls /var/lib >$HOME/list");
    spec.home = Some("/var".into());
    spec.read = vec!["/var/lib".into()];
    check_out(&run(&spec), "mine\n");
    let mut spec = fixture.shell(Filesystem::Read, "ls -d /var/log && ls /var/lib >/dev/null");
    spec.read = vec!["/var".into(), "/var/lib".into()];
    check_out(&run(&spec), "/var/log\n");
}

// P4
fn tier_no_userns_denies_what_it_cannot_enforce() {
    let fixture = TestProject::new();
    for mode in [Filesystem::ReadWrite, Filesystem::Speculative] {
        let error = try_run(&in_tier(fixture.shell(mode, "true"), Tier::NoUserns)).unwrap_err();
        assert!(error.to_string().contains("needs an overlay"), "{error}");
    }
    let mut spec = in_tier(fixture.shell(Filesystem::Read, "true"), Tier::NoUserns);
    spec.min_tier = Tier::Full;
    let error = try_run(&spec).unwrap_err();
    assert!(error.to_string().contains("`full` is not available"), "{error}");
}

// T12: Landlock rules belong to inodes, whatever their names
fn hard_link_to_a_secret_does_not_unmask_it() {
    let fixture = TestProject::new();
    std::fs::hard_link(fixture.path("project/.env"), fixture.path("project/visible.txt")).unwrap();
    std::fs::hard_link(fixture.path("project/deep/er/key.pem"), fixture.path("project/other.txt")).unwrap();
    for tier in TIERS {
        let spec = fixture.shell(Filesystem::Read, "cat .env deep/er/key.pem 2>/dev/null; cat plain.txt");
        check_out(&run(&in_tier(spec, tier)), "plain\n");
    }
}

// P4
fn tier_no_userns_hides_network_and_mounts_of_the_host() {
    let fixture = TestProject::new();
    let printed = |name: &str| {
        let spec = fixture.shell(Filesystem::Read, &format!("exec cat /proc/$$/{name}"));
        out(&run(&in_tier(spec, Tier::NoUserns)))
    };
    for name in ["net/tcp", "net/unix", "net/route", "net/arp", "mountinfo", "mounts", "task/$$/net/tcp"] {
        assert_eq!(printed(name), "", "{name}");
    }
    for name in ["status", "stat", "maps", "cmdline", "limits", "cgroup"] {
        assert_ne!(printed(name), "", "{name}");
    }
    let spec = fixture.spec(Filesystem::Read, "ls", &["/proc/self/fd"]);
    assert_ne!(out(&run(&in_tier(spec, Tier::NoUserns))), "");
}

/// A shell reads its script piece by piece.
// P4
fn pinned_script_changed_while_running_keeps_its_content() {
    use sha2::Digest as _;
    for tier in TIERS {
        let fixture = TestProject::new();
        let go = fixture.path("outside/go");
        let wait = format!("#!/bin/sh\necho $1\nwhile [ ! -e {} ]; do sleep 0.01; done\n", go.display());
        let script = format!("{wait}#{}\necho as agreed\n", "x".repeat(100_000));
        fixture.write("project/script", &script);
        let path = fixture.path("project/script");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut spec = in_tier(fixture.spec(Filesystem::Read, "./script", &["begun"]), tier);
        spec.digest = Some(sha2::Sha256::digest(script.as_bytes()).into());
        spec.read = vec![fixture.path("outside")];
        let mut begun = |_, piece: &[u8]| {
            if piece == b"begun\n" {
                use std::os::unix::fs::FileExt as _;
                let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
                let at = script.find("as agreed").unwrap() as u64;
                file.write_all_at(b"otherwise", at).unwrap();
                std::fs::write(&go, "").unwrap();
            }
        };
        let outcome = sandbox().run(&spec, vambrace_sandbox::Input::Nothing, &mut begun).unwrap();
        check_out(&outcome, "begun\nas agreed\n");
    }
}

// S3: a user who starts such a file would become the broker's user
fn no_file_of_the_host_gets_a_set_id_bit() {
    let fixture = TestProject::new();
    let open = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
    std::fs::set_permissions(fixture.path("outside"), open(0o777)).unwrap();
    for (tier, observe) in TIERS.into_iter().flat_map(|tier| [(tier, Observe::Off), (tier, Observe::Writes)])
    {
        let made = fixture.path(&format!("outside/{tier}-{observe:?}"));
        let path = made.display();
        let script = format!("cp /usr/bin/id {path}; chmod 6755 {path} 2>/dev/null || echo denied");
        let mut spec = in_tier(fixture.shell(Filesystem::Read, &script), tier);
        (spec.write, spec.observe) = (vec![fixture.path("outside")], observe);
        check_out(&run(&spec), "denied\n");
        assert_eq!(mode(&made) & 0o7000, 0, "{tier}");
    }
    let script = "cp /usr/bin/id target/; chmod u+s target/id 2>/dev/null || ls -l target/id";
    let mut spec = fixture.shell(Filesystem::Read, script);
    (spec.scratch, spec.observe) = (vec!["target".to_owned()], Observe::Off);
    assert!(out(&run(&spec)).starts_with("-rwxr-xr-x "));
}

// T12: in either tier, whatever parent directory is granted
fn granted_parent_directory_does_not_open_the_workspace() {
    let fixture = TestProject::new();
    let script = "cat .env 2>/dev/null; echo x 2>/dev/null >>plain.txt; true";
    for (mode, writes) in [(Filesystem::Read, true), (Filesystem::Write, true), (Filesystem::Write, false)] {
        for tier in TIERS {
            let script = script.replace(".env", &fixture.path("project/.env").display().to_string());
            let mut spec = in_tier(fixture.shell(mode, &script), tier);
            (if writes { &mut spec.write } else { &mut spec.read }).push(fixture.path(""));
            match (tier, try_run(&spec)) {
                (Tier::NoUserns, ran) => assert!(matches!(ran, Err(SandboxError::Refused(_))), "{ran:?}"),
                (_, ran) => assert_eq!(out(&ran.unwrap()), "", "{tier}"),
            }
            assert_eq!(fixture.read("project/plain.txt").as_deref(), Some("plain\n"), "{tier}");
        }
    }
}

fn setgid_workspace_can_be_changed() {
    let fixture = TestProject::new();
    let bit = || std::os::unix::fs::PermissionsExt::from_mode(0o2775);
    for dir in ["project", "project/deep", "project/src"] {
        std::fs::set_permissions(fixture.path(dir), bit()).unwrap();
    }
    let script = "mkdir src/new && echo x >src/new/file && echo y >>plain.txt && echo done";
    let outcome = run(&fixture.shell(Filesystem::Speculative, script));
    check_out(&outcome, "done\n");
    assert_eq!(outcome.changes.unwrap().list.len(), 3);
}

// T12: what policy does not let a program read, in every tier
fn paths_outside_the_fence_cannot_be_read() {
    let fixture = TestProject::new();
    fixture.write("project/docs/private/plan", "denied-plan\n");
    fixture.write("project/docs/open", "open\n");
    let globs =
        |list: &[&str], purpose| Arc::new(PathGlobs::new(list, purpose, &GlobRoots::plain()).unwrap());
    let mut excluding = PathFence::default();
    excluding.exclude(&globs(&["docs/private/**"], GlobPurpose::Narrow));
    let listing = PathFence::only(globs(&["docs/open", "plain.txt"], GlobPurpose::Permit));
    for tier in TIERS {
        for (read, expected) in [(&excluding, "fn main() {}\nopen\n"), (&listing, "open\n")] {
            let script = "cat src/main.rs docs/open docs/private/plan 2>/dev/null; grep -r denied . ; :";
            let mut spec = in_tier(fixture.shell(Filesystem::Read, script), tier);
            spec.fence.read = read.clone();
            let outcome = run(&spec);
            assert_eq!(out(&outcome), expected, "{tier}");
        }
    }
}
