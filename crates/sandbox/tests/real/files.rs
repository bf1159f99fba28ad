//! What a program sees of the workspace and of what is around it.

use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::os::unix::fs::PermissionsExt as _;

use libtest_mimic::Trial;
use vambrace_sandbox::{Exit, Filesystem, Observe, SandboxFault, Tier, Why};

use super::kit::{
    Room, TIERS, changes, check_out, err, in_tier, is_root, mode, out, promote, run, sandbox, start, test,
    try_run, withheld,
};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test("files::no_file_of_the_host_gets_a_set_id_bit", no_set_id),
        test("files::a_path_around_the_workspace_does_not_open_it", around_the_workspace),
        test("files::a_workspace_with_a_set_group_id_bit_can_be_worked_in", set_group_id_workspace),
        test("files::masked_names_do_not_exist_in_any_mode", masked_names_do_not_exist_in_any_mode),
        test("files::a_folder_that_cannot_be_looked_into_shows_no_secret", closed_folders),
        test("files::a_secret_made_while_a_program_runs_is_not_shown", secrets_made_meanwhile),
        test("files::deny_shows_nothing", deny_shows_nothing),
        test("files::read_shows_and_changes_nothing", read_shows_and_changes_nothing),
        test("files::write_sees_an_empty_folder_and_only_new_names_are_taken", write_sees_an_empty_folder),
        test("files::speculative_changes_nothing", speculative_changes_nothing),
        test("files::scratch_folders_outlive_a_run_and_are_never_promoted", scratch_folders),
        test("files::no_run_is_shown_the_state_folder", state_folder),
        test("files::what_lies_in_a_folder_of_the_root_does_not_cover_it", folders_of_the_root),
        test("files::extra_paths_are_readable_or_writable", extra_paths),
        test("files::a_further_path_that_is_a_link_is_found_by_its_name", further_links),
        test("files::a_further_path_in_the_workspace_shows_no_secret", further_paths_inside),
        test("files::a_pinned_script_that_is_changed_while_it_runs_stays_as_it_was", pinned_script),
        test("files::a_secret_with_another_name_is_not_shown_under_its_own", another_name),
        test("files::tier_no_userns_shows_no_network_and_no_mounts_of_the_machine", own_proc_files),
        test("files::tier_no_userns_refuses_what_it_cannot_do", no_userns_refuses),
    ]
}

// T12
fn masked_names_do_not_exist_in_any_mode() {
    let room = Room::new();
    let script = "cat .env deep/er/key.pem secrets/a; ls -A . deep/er; mv deep moved 2>/dev/null; \
                  find . -name '*.pem' -o -name .env -o -name secrets";
    for mode in [Filesystem::Read, Filesystem::ReadWrite, Filesystem::Speculative] {
        let outcome = run(&room.shell(mode, script));
        let said = out(&outcome) + &err(&outcome);
        assert!(!said.contains("in-the-"), "{mode:?}: {said}");
        assert_eq!(out(&outcome), ".:\n.git\ndeep\nplain.txt\nsrc\n\ndeep/er:\n", "{mode:?}");
    }
    let outcome = run(&in_tier(
        room.shell(Filesystem::Read, "cat .env deep/er/key.pem secrets/a; cat plain.txt"),
        Tier::NoUserns,
    ));
    let said = out(&outcome) + &err(&outcome);
    assert!(!said.contains("in-the-") && said.contains("plain\n"), "{said}");
}

// T12: what cannot be listed cannot be walked either
fn closed_folders() {
    let room = Room::new();
    let secrets = ["a/d/.env", "a/d/secrets/k", "a/d/x.pem"];
    for name in secrets.into_iter().chain(["a/d/plain"]) {
        room.write(&format!("project/{name}"), "in-a-secret\n");
    }
    let set = |mode| {
        std::fs::set_permissions(room.path("project/a/d"), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    set(0o755);
    let before = room.listing("project");
    for closed in [0o311, 0o600, 0o400, 0] {
        set(closed);
        let look = format!("chmod 755 a/d; cat {}; ls a/d; cat plain.txt", secrets.join(" "));
        for tier in TIERS {
            let said = out(&run(&in_tier(room.shell(Filesystem::Read, &look), tier)));
            assert!(!said.contains("in-a-secret") && said.ends_with("plain\n"), "{closed:o} {tier}: {said}");
        }
        for then in ["rm -rf a", "rm -rf a/d; mkdir -p a/d; echo x >a/d/plain; echo x >a/d/.env", "mv a b"] {
            let outcome = run(&room.shell(Filesystem::ReadWrite, &format!("{look}; {then}")));
            assert!(!out(&outcome).contains("in-a-secret"), "{closed:o}: {}", out(&outcome));
            if is_root() {
                // To root no folder is closed: only the secrets are hidden.
                continue;
            }
            assert!(
                !changes(&outcome).iter().any(|change| change.contains(" a/d")),
                "{:?}",
                changes(&outcome)
            );
            promote(&outcome).unwrap();
            assert_eq!(mode(&room.path("project/a/d")) & 0o777, closed);
        }
        set(0o755);
        let _ = std::fs::remove_dir(room.path("project/b"));
        assert_eq!(room.listing("project"), before, "{closed:o}");
    }
    // The workspace itself: there is nothing to run in, and the message says where.
    std::fs::set_permissions(room.project(), std::fs::Permissions::from_mode(0o311)).unwrap();
    let ran = try_run(&room.shell(Filesystem::Read, "true"));
    std::fs::set_permissions(room.project(), std::fs::Permissions::from_mode(0o755)).unwrap();
    if !is_root() {
        assert!(ran.unwrap_err().to_string().contains(room.project().to_str().unwrap()));
    }
}

// P4
// T12: fixed names of the workspace's own folder
fn secrets_made_meanwhile() {
    for (filesystem, shown) in
        [(Filesystem::Read, false), (Filesystem::ReadWrite, false), (Filesystem::Read, true)]
    {
        let room = Room::new();
        std::fs::remove_file(room.path("project/.env")).unwrap();
        std::fs::remove_dir_all(room.path("project/secrets")).unwrap();
        let script = "echo up; read line; cat .env secrets/a later.txt 2>/dev/null; ls -A | grep -c -e env -e later -e secrets; \
                      cat plain.txt";
        let mut spec = room.shell(filesystem, script);
        spec.masked.push("later.txt".to_owned());
        if shown {
            // Who does not want a name masked sees it.
            spec.masked = vec!["later.txt".to_owned()];
        }
        let (reader, mut writer) = std::io::pipe().unwrap();
        let outcome = sandbox().run(&spec, vambrace_sandbox::Input::From(reader.as_fd()), &mut |_, piece| {
            if piece == b"up\n" {
                for name in [".env", "secrets/a", "later.txt"] {
                    room.write(&format!("project/{name}"), &format!("secret {name}\n"));
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

fn deny_shows_nothing() {
    let room = Room::new();
    for tier in TIERS {
        let script = format!("cat {0}/plain.txt {0}/src/main.rs; ls {0}/src", room.project().display());
        let outcome = run(&in_tier(room.shell(Filesystem::Deny, &script), tier));
        assert_eq!(out(&outcome), "", "{tier}");
        assert_ne!(outcome.exit, Exit::Code(0));
    }
}

// P4
fn read_shows_and_changes_nothing() {
    let room = Room::new();
    let before = room.listing("project");
    for tier in TIERS {
        let script = "cat plain.txt; echo x >plain.txt; echo x >new; rm plain.txt; mkdir d; mv src s; \
                      chmod 777 plain.txt; ln -s a b; ln plain.txt c; touch plain.txt; mkfifo f";
        let outcome = run(&in_tier(room.shell(Filesystem::Read, script), tier));
        assert_eq!(out(&outcome), "plain\n", "{}", err(&outcome));
        assert_eq!(room.listing("project"), before, "{tier}");
    }
}

// P4
fn write_sees_an_empty_folder() {
    for tier in TIERS {
        write_in(tier);
    }
}

fn write_in(tier: Tier) {
    let room = Room::new();
    let script = "ls -A; echo new >new.txt; echo mine >plain.txt; mkdir -p src/sub; echo x >src/sub/x; \
                  echo y >src/main.rs; echo own >>new.txt; echo s >.env";
    let outcome = run(&in_tier(room.shell(Filesystem::Write, script), tier));
    check_out(&outcome, "");
    assert_eq!(changes(&outcome), ["created new.txt", "created src/sub", "created src/sub/x"]);
    assert_eq!(
        withheld(&outcome),
        [
            (".env".to_owned(), Why::Masked),
            ("plain.txt".to_owned(), Why::Exists),
            ("src/main.rs".to_owned(), Why::Exists)
        ]
    );
    assert_eq!(promote(&outcome).unwrap(), 3);
    assert_eq!(room.read("project/new.txt").as_deref(), Some("new\nown\n"));
    assert_eq!(room.read("project/plain.txt").as_deref(), Some("plain\n"));
    assert_eq!(room.read("project/src/main.rs").as_deref(), Some("fn main() {}\n"));
    assert_eq!(room.read("project/src/sub/x").as_deref(), Some("x\n"));
    assert_eq!(room.read("project/.env").as_deref(), Some("TOKEN=in-the-env-file\n"));
}

fn speculative_changes_nothing() {
    let room = Room::new();
    let before = room.listing("project");
    let outcome =
        run(&room.shell(Filesystem::Speculative, "echo x >plain.txt; rm -r src; mkdir n; cat plain.txt"));
    check_out(&outcome, "x\n");
    assert_eq!(changes(&outcome), ["created n", "modified plain.txt", "deleted src", "deleted src/main.rs"]);
    assert_eq!(room.listing("project"), before);
    promote(&outcome).unwrap();
    assert_eq!(room.read("project/plain.txt").as_deref(), Some("x\n"));
}

fn scratch_folders() {
    let room = Room::new();
    let mut spec = room
        .shell(Filesystem::ReadWrite, "mkdir -p target; cat target/built; echo 1 >>target/built; echo x >y");
    spec.scratch = vec!["target".to_owned()];
    let first = run(&spec);
    assert_eq!(out(&first), "");
    assert_eq!(changes(&first), ["created y"]);
    let second = run(&spec);
    assert_eq!(out(&second), "1\n");
    assert!(!room.path("project/target").exists());
    // Read-only runs have it as well.
    let mut read = room.shell(Filesystem::Read, "cat target/built; echo 3 >target/three; echo x >y");
    read.scratch = spec.scratch.clone();
    assert_eq!(out(&run(&read)), "1\n1\n");
    // Dependencies that are installed are seen, and what is added to them is dropped, which is told.
    room.write("project/node_modules/dep/index.js", "dep\n");
    let mut node =
        room.shell(Filesystem::ReadWrite, "cat node_modules/dep/index.js; echo x >node_modules/new");
    node.scratch = vec!["node_modules".to_owned()];
    let outcome = run(&node);
    assert_eq!(out(&outcome), "dep\n");
    assert_eq!(changes(&outcome), [""; 0]);
    let withheld = outcome.changes.unwrap().withheld;
    assert_eq!(withheld.len(), 1, "{withheld:?}");
    assert_eq!((withheld[0].path.to_str(), withheld[0].why), (Some("node_modules"), Why::BuildFolder));
    assert_eq!(first.changes.unwrap().withheld.len(), 0);
    for (name, tier) in
        ["out/build", "../x", ".", ""].into_iter().flat_map(|name| TIERS.map(|tier| (name, tier)))
    {
        let mut deep = in_tier(room.shell(Filesystem::Read, "true"), tier);
        deep.scratch = vec![name.to_owned()];
        let ran = try_run(&deep);
        assert!(
            matches!(&ran, Err(SandboxFault::Refused(why)) if why.contains("one name")),
            "{name}: {ran:?}"
        );
    }
    // Where the project has a link of that name, it is followed nowhere.
    std::os::unix::fs::symlink("../outside", room.path("project/target")).unwrap();
    run(&spec);
    assert_eq!(room.listing("outside").len(), 1);
}

// Whoever runs a program makes this wall: no caller has to think of it.
fn state_folder() {
    let room = Room::new();
    for name in ["home/.cargo/state/keys", "outside/state/keys", "project/state/keys"] {
        room.write(&format!("{name}/ledger.key"), "the-key");
        let state = room.path(name).parent().unwrap().to_owned();
        std::os::unix::fs::symlink(&state, room.path(&format!("{name}-link"))).unwrap();
        let sandbox = start(&room.path(&format!("{name}-link")));
        let script = format!("cat {}/keys/ledger.key", state.display());
        for tier in TIERS {
            let mut spec = in_tier(room.shell(Filesystem::Read, &script), tier);
            spec.read = [room.path("outside")].into_iter().filter(|outer| state.starts_with(outer)).collect();
            let fault = sandbox.run(&spec, vambrace_sandbox::Input::Nothing, &mut |_, _| {}).unwrap_err();
            assert!(matches!(fault, SandboxFault::ShowsState { .. }), "{name} {tier}: {fault}");
            spec.write = std::mem::take(&mut spec.read);
            let refused = sandbox.run(&spec, vambrace_sandbox::Input::Nothing, &mut |_, _| {});
            assert!(matches!(refused, Err(SandboxFault::ShowsState { .. })), "{name} {tier}: {refused:?}");
        }
    }
    // What is lent is shown alone.
    room.write("state/keys/ledger.key", "the-key");
    room.write("state/certificates/one.pem", "for all");
    let sandbox = start(&room.path("state"));
    let script = format!("cd {}; cat certificates/* keys/*", room.path("state").display());
    let mut spec = in_tier(room.shell(Filesystem::Read, &script), Tier::Full);
    spec.read = vec![room.path("state/certificates/one.pem")];
    let outcome = sandbox.run(&spec, vambrace_sandbox::Input::Nothing, &mut |_, _| {}).unwrap();
    assert_eq!(out(&outcome), "for all");
    spec.read = vec![room.path("state/certificates")];
    assert!(sandbox.run(&spec, vambrace_sandbox::Input::Nothing, &mut |_, _| {}).is_err());
}

fn extra_paths() {
    let room = Room::new();
    std::fs::create_dir(room.path("shared")).unwrap();
    let script = format!(
        "cat {0}/outside/file; echo x >{0}/outside/new; echo y >{0}/shared/new; cat {0}/shared/new",
        room.path("").display()
    );
    let mut spec = room.shell(Filesystem::Deny, &script);
    spec.read = vec![room.path("outside")];
    spec.write = vec![room.path("shared")];
    let outcome = run(&spec);
    assert_eq!(out(&outcome), "in-the-outside-file\ny\n", "{}", err(&outcome));
    assert_eq!(room.read("shared/new").as_deref(), Some("y\n"));
    assert!(!room.path("outside/new").exists());
    for path in ["/", "/proc", "/sys/kernel", "/dev"] {
        spec.read = vec![path.into()];
        assert!(try_run(&spec).is_err(), "{path}");
    }
}

// T12: what is granted in the workspace lies over its masks
fn further_paths_inside() {
    let room = Room::new();
    for name in ["sub/.env", "sub/secrets/k", "sub/deep/x.pem"] {
        room.write(&format!("project/{name}"), "in-a-secret\n");
    }
    std::os::unix::fs::symlink("../plain.txt", room.path("project/sub/link.pem")).unwrap();
    room.write("project/sub/plain", "shown\n");
    let before = room.listing("project/sub");
    let script = format!(
        "cd {}; cat .env secrets/k deep/x.pem; cat plain; rm -rf .env secrets; echo x >.env; echo x >new",
        room.path("project/sub").display()
    );
    for mode in [Filesystem::Deny, Filesystem::Read, Filesystem::Write, Filesystem::ReadWrite] {
        let tiers = TIERS.into_iter().filter(|tier| *tier == Tier::Full || mode != Filesystem::ReadWrite);
        for (tier, writes) in tiers.flat_map(|tier| [(tier, false), (tier, true)]) {
            let mut spec = in_tier(room.shell(mode, &script), tier);
            (if writes { &mut spec.write } else { &mut spec.read }).push(room.path("project/sub"));
            match (tier, writes, try_run(&spec)) {
                (Tier::NoUserns, true, ran) => {
                    assert!(ran.unwrap_err().to_string().contains("cannot keep apart"), "{mode:?}");
                }
                (_, _, ran) => assert_eq!(out(&ran.unwrap()), "shown\n", "{mode:?} {tier} {writes}"),
            }
            let written = std::fs::remove_file(room.path("project/sub/new")).is_ok();
            assert_eq!(written, writes && tier == Tier::Full, "{mode:?} {tier}");
            assert_eq!(room.listing("project/sub"), before, "{mode:?} {tier} {writes}");
        }
    }
    let refused = |path: &str, writes: bool, words: &str| {
        for (tier, mode) in
            TIERS.into_iter().flat_map(|tier| [(tier, Filesystem::Read), (tier, Filesystem::Deny)])
        {
            let mut spec = in_tier(room.shell(mode, "true"), tier);
            (if writes { &mut spec.write } else { &mut spec.read }).push(room.path(path));
            let ran = try_run(&spec);
            let told = matches!(&ran, Err(SandboxFault::Refused(why)) if why.contains(words));
            assert!(told, "{path} {tier} {mode:?}: {ran:?}");
        }
    };
    refused("project", true, "--filesystem readwrite");
    for path in ["project/.env", "project/secrets", "project/secrets/a"] {
        refused(path, false, "is masked");
        refused(path, true, "is masked");
    }
}

fn further_links() {
    use std::os::unix::fs::symlink;
    let room = Room::new();
    room.write("outside/L/real/f", "by a link\n");
    room.write("outside/L/real/unseen/.env", "");
    symlink("./real", room.path("outside/L/cur")).unwrap();
    symlink(room.path("outside/L/../L/cur"), room.path("outside/abs")).unwrap();
    symlink("outside/L", room.path("dir")).unwrap();
    room.write("shared/f", "shared\n");
    symlink("../shared", room.path("outside/w")).unwrap();
    symlink("../../outside/L/real", room.path("project/src/inside")).unwrap();
    room.write("home/mytools/bin/tool", "#!/bin/sh\necho tool\n");
    room.write("home/tools/volta/f", "volta\n");
    let open = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
    std::fs::set_permissions(room.path("home/mytools/bin/tool"), open(0o755)).unwrap();
    std::fs::set_permissions(room.path("shared"), open(0o777)).unwrap();
    symlink("mytools/bin", room.path("home/lnkbin")).unwrap();
    symlink("tools/volta", room.path("home/.volta")).unwrap();
    let before = room.listing("");
    let script = format!(
        "cd {}; cat outside/L/cur/f outside/abs/f dir/cur/f outside/w/f && echo x >outside/w/new && rm shared/new",
        room.path("").display()
    );
    let of_home = format!("tool && cat {}/.volta/f", room.path("home").display());
    for tier in TIERS {
        for mode in [Filesystem::Deny, Filesystem::Read, Filesystem::Write] {
            let mut spec = in_tier(room.shell(mode, &script), tier);
            spec.read = ["outside/L/cur", "outside/abs", "dir/cur", "project/src/inside"]
                .map(|path| room.path(path))
                .into();
            spec.write = vec![room.path("outside/w")];
            let outcome = run(&spec);
            check_out(&outcome, "by a link\nby a link\nby a link\nshared\n");
            assert!(outcome.changes.is_none_or(|changes| changes.list.is_empty()));
        }
        if tier == Tier::Full || !is_root() {
            let mut spec = in_tier(room.shell(Filesystem::Read, &of_home), tier);
            spec.path = vec![room.path("home/lnkbin")];
            check_out(&run(&spec), "tool\nvolta\n");
        }
        assert_eq!(room.listing(""), before, "{tier}");
    }
    // Nothing else of the folder that a link lies in.
    let spec = room.shell(Filesystem::Read, &format!("ls -A {}", room.path("outside/L").display()));
    let spec = vambrace_sandbox::Spec { read: vec![room.path("outside/L/cur")], ..spec };
    check_out(&run(&spec), "cur\nreal\n");
}

// `/root` with toolchains in it; a workspace `/app` with a further path in it
fn folders_of_the_root() {
    let room = Room::new();
    let mut spec =
        room.shell(Filesystem::Read, "echo mine >$HOME/new && cat $HOME/new && ls /var/lib >$HOME/list");
    spec.home = Some("/var".into());
    spec.read = vec!["/var/lib".into()];
    check_out(&run(&spec), "mine\n");
    let mut spec = room.shell(Filesystem::Read, "ls -d /var/log && ls /var/lib >/dev/null");
    spec.read = vec!["/var".into(), "/var/lib".into()];
    check_out(&run(&spec), "/var/log\n");
}

fn no_userns_refuses() {
    let room = Room::new();
    for mode in [Filesystem::ReadWrite, Filesystem::Speculative] {
        let fault = try_run(&in_tier(room.shell(mode, "true"), Tier::NoUserns)).unwrap_err();
        assert!(fault.to_string().contains("needs an overlay"), "{fault}");
    }
    let mut spec = in_tier(room.shell(Filesystem::Read, "true"), Tier::NoUserns);
    spec.least = Tier::Full;
    let fault = try_run(&spec).unwrap_err();
    assert!(fault.to_string().contains("`full` is not available"), "{fault}");
}

// T12: Landlock's rules belong to files, whatever they are called
fn another_name() {
    let room = Room::new();
    std::fs::hard_link(room.path("project/.env"), room.path("project/visible.txt")).unwrap();
    std::fs::hard_link(room.path("project/deep/er/key.pem"), room.path("project/other.txt")).unwrap();
    for tier in TIERS {
        let spec = room.shell(Filesystem::Read, "cat .env deep/er/key.pem 2>/dev/null; cat plain.txt");
        check_out(&run(&in_tier(spec, tier)), "plain\n");
    }
}

fn own_proc_files() {
    let room = Room::new();
    let said = |name: &str| {
        let spec = room.shell(Filesystem::Read, &format!("exec cat /proc/$$/{name}"));
        out(&run(&in_tier(spec, Tier::NoUserns)))
    };
    for name in ["net/tcp", "net/unix", "net/route", "net/arp", "mountinfo", "mounts", "task/$$/net/tcp"] {
        assert_eq!(said(name), "", "{name}");
    }
    for name in ["status", "stat", "maps", "cmdline", "limits", "cgroup"] {
        assert_ne!(said(name), "", "{name}");
    }
    let spec = room.spec(Filesystem::Read, "ls", &["/proc/self/fd"]);
    assert_ne!(out(&run(&in_tier(spec, Tier::NoUserns))), "");
}

/// A shell reads its script piece by piece.
fn pinned_script() {
    use sha2::Digest as _;
    for tier in TIERS {
        let room = Room::new();
        let go = room.path("outside/go");
        let wait = format!("#!/bin/sh\necho $1\nwhile [ ! -e {} ]; do sleep 0.01; done\n", go.display());
        let script = format!("{wait}#{}\necho as agreed\n", "x".repeat(100_000));
        room.write("project/script", &script);
        let path = room.path("project/script");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut spec = in_tier(room.spec(Filesystem::Read, "./script", &["begun"]), tier);
        spec.digest = Some(sha2::Sha256::digest(script.as_bytes()).into());
        spec.read = vec![room.path("outside")];
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

// S3: whoever starts such a file becomes the broker's user
fn no_set_id() {
    let room = Room::new();
    let open = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
    std::fs::set_permissions(room.path("outside"), open(0o777)).unwrap();
    for (tier, observe) in TIERS.into_iter().flat_map(|tier| [(tier, Observe::Off), (tier, Observe::Writes)])
    {
        let made = room.path(&format!("outside/{tier}-{observe:?}"));
        let path = made.display();
        let script = format!("cp /usr/bin/id {path}; chmod 6755 {path} 2>/dev/null || echo refused");
        let mut spec = in_tier(room.shell(Filesystem::Read, &script), tier);
        (spec.write, spec.observe) = (vec![room.path("outside")], observe);
        check_out(&run(&spec), "refused\n");
        assert_eq!(mode(&made) & 0o7000, 0, "{tier}");
    }
    let script = "cp /usr/bin/id target/; chmod u+s target/id 2>/dev/null || ls -l target/id";
    let mut spec = room.shell(Filesystem::Read, script);
    (spec.scratch, spec.observe) = (vec!["target".to_owned()], Observe::Off);
    assert!(out(&run(&spec)).starts_with("-rwxr-xr-x "));
}

// T12: in either tier, whatever is granted around it
fn around_the_workspace() {
    let room = Room::new();
    let script = "cat .env 2>/dev/null; echo x 2>/dev/null >>plain.txt; true";
    for (mode, writes) in [(Filesystem::Read, true), (Filesystem::Write, true), (Filesystem::Write, false)] {
        for tier in TIERS {
            let script = script.replace(".env", &room.path("project/.env").display().to_string());
            let mut spec = in_tier(room.shell(mode, &script), tier);
            (if writes { &mut spec.write } else { &mut spec.read }).push(room.path(""));
            match (tier, try_run(&spec)) {
                (Tier::NoUserns, ran) => assert!(matches!(ran, Err(SandboxFault::Refused(_))), "{ran:?}"),
                (_, ran) => assert_eq!(out(&ran.unwrap()), "", "{tier}"),
            }
            assert_eq!(room.read("project/plain.txt").as_deref(), Some("plain\n"), "{tier}");
        }
    }
}

fn set_group_id_workspace() {
    let room = Room::new();
    let bit = || std::os::unix::fs::PermissionsExt::from_mode(0o2775);
    for folder in ["project", "project/deep", "project/src"] {
        std::fs::set_permissions(room.path(folder), bit()).unwrap();
    }
    let script = "mkdir src/new && echo x >src/new/file && echo y >>plain.txt && echo done";
    let outcome = run(&room.shell(Filesystem::Speculative, script));
    check_out(&outcome, "done\n");
    assert_eq!(outcome.changes.unwrap().list.len(), 3);
}
