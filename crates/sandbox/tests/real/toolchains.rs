//! What of the home folder a program is shown, without the credentials in it.

use std::os::unix::fs::PermissionsExt as _;

use libtest_mimic::Trial;
use vambrace_sandbox::{Filesystem, Tier};

use super::kit::{Room, TIERS, err, in_tier, is_root, out, run, start, test};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test("toolchains::toolchains_are_shown_without_credentials_and_nothing_else_of_home", toolchains),
        test("toolchains::credentials_of_toolchains_are_empty_at_any_depth", deep_credentials),
        test("toolchains::a_folder_that_cannot_be_looked_into_is_empty", closed_folders),
    ]
}

fn toolchains() {
    let room = Room::new();
    room.write("home/.cargo/bin/tool", "#!/bin/sh\necho tool\n");
    std::fs::set_permissions(room.path("home/.cargo/bin/tool"), std::fs::Permissions::from_mode(0o700))
        .unwrap();
    std::fs::set_permissions(room.path("home/.cargo"), std::fs::Permissions::from_mode(0o700)).unwrap();
    room.write("home/.cargo/credentials.toml", "in-the-credentials\n");
    room.write("home/.local/share/uv/credentials/credentials.toml", "in-a-folder-of-credentials\n");
    room.write("home/.cargo/config.toml", "[net]\n");
    room.write("home/bin/mine", "#!/bin/sh\necho mine\n");
    std::fs::set_permissions(room.path("home/bin/mine"), std::fs::Permissions::from_mode(0o755)).unwrap();
    room.write("home/.bashrc", "in-the-bashrc\n");
    let script = "tool; mine; cat ~/.local/share/uv/*/* ~/.cargo/credentials.toml ~/.bashrc ~/.ssh/id_ed25519; cat ~/.cargo/config.toml; \
                  echo x >~/.cargo/bin/evil; echo x >~/own && cat ~/own";
    for tier in [Tier::Full, Tier::NoUserns] {
        if tier == Tier::NoUserns && is_root() {
            // Root's own files are not shown to an unprivileged user without mounts.
            continue;
        }
        let mut spec = room.shell(Filesystem::Read, script);
        spec.path = vec![room.path("home/.cargo/bin"), room.path("home/bin")];
        if tier == Tier::NoUserns {
            spec.arguments[1] = script.replace('~', room.path("home").to_str().unwrap()).into();
        }
        let outcome = run(&in_tier(spec, tier));
        let said = out(&outcome);
        let own = if tier == Tier::Full { "x\n" } else { "" };
        assert_eq!(said, format!("tool\nmine\n[net]\n{own}"), "{tier}: {}", err(&outcome));
        assert!(!room.path("home/.cargo/bin/evil").exists());
        assert!(!room.path("home/own").exists());
    }
}

// T12; issue 6, 2
fn deep_credentials() {
    let room = Room::new();
    let hidden = [
        "go/src/p/.env",
        "go/src/p/key.pem",
        ".cargo/config.toml",
        ".cargo/id_rsa",
        ".cargo/sub/credentials.toml",
        ".cargo/token",
        ".nvm/versions/node/v1/etc/npmrc",
        ".nvm/.git/config",
        ".local/share/uv/credentials/one",
        ".local/lib/tool/.netrc",
    ];
    let shown = [
        "go/bin/p",
        "go/pkg/mod/m/cacert.pem",
        ".cargo/bin/token",
        ".cargo/registry/src/c/tests/key.pem",
        ".pyenv/versions/3/lib/python3.11/site-packages/certifi/cacert.pem",
        ".rustup/settings.toml",
        ".pyenv/versions/3/openssl/ssl/cert.pem",
        ".asdf/.git/config",
        ".local/lib/tool/main",
        ".local/share/pipx/venvs/t/bin/t",
        ".local/share/uv/tools/t/bin/t",
    ];
    for name in hidden {
        room.write(&format!("home/{name}"), "url = https://u:in-a-secret@host/\n");
    }
    for name in shown {
        room.write(&format!("home/{name}"), "url = https://host/\n");
    }
    let key = ".pyenv/versions/4/openssl/ssl/cert.pem";
    room.write(&format!("home/{key}"), "-----BEGIN PRIVATE KEY-----\nin-a-secret\n");
    // Named like nothing, and leading to one.
    std::os::unix::fs::symlink("id_rsa", room.path("home/.cargo/link")).unwrap();
    std::fs::create_dir(room.path("home/.cargo/credentials")).unwrap();
    std::os::unix::fs::symlink("/usr", room.path("home/.cargo/secrets")).unwrap();
    let own = start(&room.path("state"));
    let said = |tier: Tier, names: &[&str], files: &dyn Fn(&str) -> String| {
        let list: String = names.iter().map(|name| format!(" {}", files(name))).collect();
        let spec = room.shell(Filesystem::Read, &format!("cat{list}; ls /usr >/dev/null && echo end"));
        let outcome =
            own.run(&in_tier(spec, tier), vambrace_sandbox::Input::Nothing, &mut |_, _| {}).unwrap();
        (out(&outcome), err(&outcome))
    };
    let at = |name: &str| room.path(&format!("home/{name}")).display().to_string();
    for tier in TIERS {
        // Twice: walked, and known.
        for _ in 0..2 {
            let (words, _) = said(tier, &[&hidden[..], &[".cargo/link", key]].concat(), &at);
            assert_eq!(words, "end\n", "{tier}");
            let (words, faults) = said(tier, &shown, &at);
            assert_eq!(words.matches("url").count(), shown.len(), "{tier}: {words}{faults}");
        }
        // What is new since then, and what changed without a trace in its folder.
        room.write("home/.rustup/new/.npmrc", "in-a-secret\n");
        room.write("home/.asdf/.git/config", "url = https://u:in-a-secret@host/\n");
        let (words, _) = said(tier, &[".rustup/new/.npmrc", ".asdf/.git/config"], &at);
        assert_eq!(words, "end\n", "{tier}");
        std::fs::remove_dir_all(room.path("home/.rustup/new")).unwrap();
        room.write("home/.asdf/.git/config", "url = https://host/\n");
    }
}

// T12
fn closed_folders() {
    let room = Room::new();
    room.write("home/.cargo/hid/credentials.toml", "in-a-secret\n");
    room.write("home/.cargo/open", "open\n");
    let (home, folder) = (room.path("home"), room.path("home/.cargo/hid"));
    for closed in [0o311, 0o600, 0] {
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(closed)).unwrap();
        let script =
            format!("cd {}/.cargo; chmod 755 hid; cat hid/credentials.toml; cat open", home.display());
        for tier in TIERS.into_iter().filter(|tier| *tier == Tier::Full || !is_root()) {
            let outcome = run(&in_tier(room.shell(Filesystem::Read, &script), tier));
            assert_eq!(out(&outcome), "open\n", "{closed:o} {tier}: {}", err(&outcome));
        }
    }
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
}
