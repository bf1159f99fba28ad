//! What a program sees of the home directory, without the credentials in it.

use std::os::unix::fs::PermissionsExt as _;

use libtest_mimic::Trial;
use vambrace_sandbox::{Filesystem, Tier};

use super::harness::{TIERS, TestProject, err, in_tier, is_root, out, run, start, test};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test(
            "toolchains::toolchains_are_visible_without_credentials_and_nothing_else_of_home",
            toolchains_are_visible_without_credentials_and_nothing_else_of_home,
        ),
        test(
            "toolchains::credentials_in_toolchains_are_masked_at_any_depth",
            credentials_in_toolchains_are_masked_at_any_depth,
        ),
        test("toolchains::unreadable_directory_is_masked", unreadable_directory_is_masked),
    ]
}

// P5, T12
fn toolchains_are_visible_without_credentials_and_nothing_else_of_home() {
    let fixture = TestProject::new();
    fixture.write("home/.cargo/bin/tool", "#!/bin/sh\necho tool\n");
    std::fs::set_permissions(fixture.path("home/.cargo/bin/tool"), std::fs::Permissions::from_mode(0o700))
        .unwrap();
    std::fs::set_permissions(fixture.path("home/.cargo"), std::fs::Permissions::from_mode(0o700)).unwrap();
    fixture.write("home/.cargo/credentials.toml", "in-the-credentials\n");
    fixture.write("home/.local/share/uv/credentials/credentials.toml", "in-a-directory-of-credentials\n");
    fixture.write("home/.cargo/config.toml", "[net]\n");
    fixture.write("home/bin/mine", "#!/bin/sh\necho mine\n");
    std::fs::set_permissions(fixture.path("home/bin/mine"), std::fs::Permissions::from_mode(0o755)).unwrap();
    fixture.write("home/.bashrc", "in-the-bashrc\n");
    let script = "tool; mine; cat ~/.local/share/uv/*/* ~/.cargo/credentials.toml ~/.bashrc ~/.ssh/id_ed25519; cat ~/.cargo/config.toml; \
                  echo x >~/.cargo/bin/evil; echo x >~/own && cat ~/own";
    for tier in [Tier::Full, Tier::NoUserns] {
        if tier == Tier::NoUserns && is_root() {
            // Without mounts, files of root cannot be mapped to an unprivileged user.
            continue;
        }
        let mut spec = fixture.shell(Filesystem::Read, script);
        spec.path = vec![fixture.path("home/.cargo/bin"), fixture.path("home/bin")];
        if tier == Tier::NoUserns {
            spec.arguments[1] = script.replace('~', fixture.path("home").to_str().unwrap()).into();
        }
        let outcome = run(&in_tier(spec, tier));
        let printed = out(&outcome);
        let own = if tier == Tier::Full { "x\n" } else { "" };
        assert_eq!(printed, format!("tool\nmine\n[net]\n{own}"), "{tier}: {}", err(&outcome));
        assert!(!fixture.path("home/.cargo/bin/evil").exists());
        assert!(!fixture.path("home/own").exists());
    }
}

// T12
fn credentials_in_toolchains_are_masked_at_any_depth() {
    let fixture = TestProject::new();
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
        fixture.write(&format!("home/{name}"), "url = https://u:in-a-secret@host/\n");
    }
    for name in shown {
        fixture.write(&format!("home/{name}"), "url = https://host/\n");
    }
    let key = ".pyenv/versions/4/openssl/ssl/cert.pem";
    fixture.write(&format!("home/{key}"), "-----BEGIN PRIVATE KEY-----\nin-a-secret\n");
    // A harmless name that leads to a secret.
    std::os::unix::fs::symlink("id_rsa", fixture.path("home/.cargo/link")).unwrap();
    std::fs::create_dir(fixture.path("home/.cargo/credentials")).unwrap();
    std::os::unix::fs::symlink("/usr", fixture.path("home/.cargo/secrets")).unwrap();
    let own = start(&fixture.path("state"));
    let printed = |tier: Tier, names: &[&str], files: &dyn Fn(&str) -> String| {
        let list: String = names.iter().map(|name| format!(" {}", files(name))).collect();
        let spec = fixture.shell(Filesystem::Read, &format!("cat{list}; ls /usr >/dev/null && echo end"));
        let outcome =
            own.run(&in_tier(spec, tier), vambrace_sandbox::Input::Nothing, &mut |_, _| {}).unwrap();
        (out(&outcome), err(&outcome))
    };
    let at = |name: &str| fixture.path(&format!("home/{name}")).display().to_string();
    for tier in TIERS {
        // Twice: with a walk, and from the cache.
        for _ in 0..2 {
            let (words, _) = printed(tier, &[&hidden[..], &[".cargo/link", key]].concat(), &at);
            assert_eq!(words, "end\n", "{tier}");
            let (words, errors) = printed(tier, &shown, &at);
            assert_eq!(words.matches("url").count(), shown.len(), "{tier}: {words}{errors}");
        }
        // What is new since then, and a file that changed without changing its directory.
        fixture.write("home/.rustup/new/.npmrc", "in-a-secret\n");
        fixture.write("home/.asdf/.git/config", "url = https://u:in-a-secret@host/\n");
        let (words, _) = printed(tier, &[".rustup/new/.npmrc", ".asdf/.git/config"], &at);
        assert_eq!(words, "end\n", "{tier}");
        std::fs::remove_dir_all(fixture.path("home/.rustup/new")).unwrap();
        fixture.write("home/.asdf/.git/config", "url = https://host/\n");
    }
}

// T12
fn unreadable_directory_is_masked() {
    let fixture = TestProject::new();
    fixture.write("home/.cargo/hid/credentials.toml", "in-a-secret\n");
    fixture.write("home/.cargo/open", "open\n");
    let (home, dir) = (fixture.path("home"), fixture.path("home/.cargo/hid"));
    for closed in [0o311, 0o600, 0] {
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(closed)).unwrap();
        let script =
            format!("cd {}/.cargo; chmod 755 hid; cat hid/credentials.toml; cat open", home.display());
        for tier in TIERS.into_iter().filter(|tier| *tier == Tier::Full || !is_root()) {
            let outcome = run(&in_tier(fixture.shell(Filesystem::Read, &script), tier));
            assert_eq!(out(&outcome), "open\n", "{closed:o} {tier}: {}", err(&outcome));
        }
    }
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o755)).unwrap();
}
