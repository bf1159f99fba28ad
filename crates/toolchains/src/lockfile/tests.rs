//! The readers against lockfiles of real managers, hostile ones, and arbitrary text.

use super::*;
use crate::project_view::tests::MemoryProject;
use proptest::prelude::*;

macro_rules! fixture {
    ($name:literal) => {
        include_str!(concat!("../../tests/fixtures/lock/", $name))
    };
}

type LockReader = fn(&str, &mut HostCollector) -> Result<(), LockfileError>;

fn facts(text: &str, read: LockReader) -> Result<LockfileFacts, LockfileError> {
    let mut collector = HostCollector::default();
    read(text, &mut collector)?;
    Ok(collector.finish())
}

/// Packages, hosts, and problems as `kind subject`.
#[track_caller]
fn check(text: &str, read: LockReader, packages: u64, hosts: &[&str], problems: &[&str]) {
    let facts = facts(text, read).unwrap();
    let found: Vec<String> = facts
        .problems
        .iter()
        .map(|problem| format!("{} {}", problem.kind.as_str(), problem.subject))
        .collect();
    let names: Vec<&str> = facts.hosts.iter().map(|host| host.host.as_str()).collect();
    assert_eq!(found, problems);
    assert_eq!((facts.packages, names.as_slice()), (packages, hosts));
}

const NPM: LockReader = |text, collector| npm::read(text, "package-lock.json", collector);
const PNPM: LockReader = |text, collector| pnpm::read(text, "pnpm-lock.yaml", collector);
const YARN: LockReader = |text, collector| yarn::read(text, "yarn.lock", collector).map(drop);
const POETRY: LockReader = |text, collector| python::read_poetry(text, "poetry.lock", collector);
const UV: LockReader = |text, collector| python::read_uv(text, "uv.lock", collector);
const CARGO: LockReader = |text, collector| cargo::read(text, "Cargo.lock", collector);
const GO: LockReader = |text, collector| go::read_sum(text, "go.sum", collector);
const BUNDLER: LockReader = |text, collector| bundler::read(text, "Gemfile.lock", collector);

// T16
#[test]
fn lockfiles_of_real_managers_are_read() {
    check(fixture!("package-lock.json"), NPM, 2, &[], &[]);
    check(fixture!("pnpm-lock.yaml"), PNPM, 2, &[], &[]);
    check(fixture!("yarn-v1.lock"), YARN, 2, &["registry.yarnpkg.com"], &[]);
    check(fixture!("yarn-berry.lock"), YARN, 2, &[], &[]);
    check(fixture!("uv.lock"), UV, 1, &["files.pythonhosted.org", "pypi.org"], &[]);
    check(fixture!("poetry.lock"), POETRY, 2, &["pypi.example.org"], &["missing_hash private"]);
    check(
        fixture!("Gemfile.lock"),
        BUNDLER,
        2,
        &["github.com", "rubygems.org"],
        &["outside_service PATH", "missing_hash CHECKSUMS"],
    );
    let project = include_str!("../../../../Cargo.lock");
    let facts = facts(project, CARGO).unwrap();
    assert!(facts.packages > 100 && facts.hosts.is_empty() && facts.problems.is_empty(), "{facts:?}");
}

// T16
#[test]
fn hostile_npm_lockfiles_are_reported() {
    let lock = r#"{"lockfileVersion":3,"packages":{"":{},
        "node_modules/a":{"resolved":"https://user:s3cret@evil.example/a.tgz","integrity":"sha512-x"},
        "node_modules/b":{"resolved":"http://169.254.169.254/b.tgz","integrity":"sha512-x"},
        "node_modules/c":{"resolved":"git+ssh://git@github.com/c/c.git#0123"},
        "node_modules/d":{"resolved":"../../outside","link":true},
        "node_modules/e":{"version":"1.0.0"},
        "packages/own":{"name":"own"}}}"#;
    check(
        lock,
        NPM,
        5,
        &["169.254.169.254", "evil.example", "github.com"],
        &[
            "credentials a",
            "address b",
            "not_https b",
            "not_https c",
            "missing_hash c",
            "outside_service d",
            "missing_hash e",
        ],
    );
    assert!(!format!("{:?}", facts(lock, NPM)).contains("s3cret"));
    let old = r#"{"lockfileVersion":1,"dependencies":{"a":{"version":"1.0.0","resolved":"https://registry.npmjs.org/a.tgz","integrity":"sha1-x",
        "dependencies":{"b":{"version":"git+https://github.com/b/b.git#0123"}}}}}"#;
    check(old, NPM, 2, &["github.com", "registry.npmjs.org"], &["missing_hash b"]);
    assert!(facts("{}", NPM).is_err() && facts("[", NPM).is_err());
}

// T16
#[test]
fn hostile_pnpm_and_yarn_lockfiles_are_reported() {
    let pnpm = "lockfileVersion: '9.0'\npackages:\n  a@1:\n    resolution: {integrity: sha512-x, tarball: https://evil.example:8443/a.tgz}\n  b@1:\n    resolution: {commit: abc, repo: git@gitlab.com:b/b.git, type: git}\n  c@1:\n    resolution: {directory: ../../c, type: directory}\n  d@1:\n    resolution: {tarball: file:d.tgz}\n";
    check(
        pnpm,
        PNPM,
        4,
        &["evil.example", "gitlab.com"],
        &["port a@1", "not_https b@1", "outside_service c@1", "missing_hash d@1"],
    );
    assert!(facts("a: b\n", PNPM).is_err());

    let classic = "# yarn lockfile v1\n\n\"a@^1\", a@1.0:\n  version \"1.0\"\n  resolved \"http://localhost:4873/a.tgz\"\n";
    check(
        classic,
        YARN,
        1,
        &["localhost"],
        &["local_name a@^1", "not_https a@^1", "port a@^1", "missing_hash a@^1"],
    );
    assert!(facts("<<<<<<< HEAD\n", YARN).is_err());

    let berry = "__metadata:\n  version: 8\n\"a@npm:1\":\n  resolution: \"a@npm:1::__archiveUrl=http%3A%2F%2Fevil.example%2Fa.tgz\"\n  checksum: x\n\"@s/b@https://github.com/b/b.git\":\n  resolution: \"@s/b@https://github.com/b/b.git#commit=abc\"\n\"c@exec:./gen.js\":\n  resolution: \"c@exec:./gen.js\"\n  checksum: y\n\"d@portal:../../d\":\n  resolution: \"d@portal:../../d\"\n";
    check(
        berry,
        YARN,
        4,
        &["evil.example", "github.com"],
        &[
            "not_https a@npm:1",
            "missing_hash @s/b@https://github.com/b/b.git",
            "runs_code c@exec:./gen.js",
            "outside_service d@portal:../../d",
        ],
    );
}

// T16
#[test]
fn hostile_settings_are_reported() {
    let read: LockReader = |text, collector| {
        node_settings::read_npmrc(text, collector);
        Ok(())
    };
    let npmrc = "registry=http://10.0.0.1/\n@s:registry=https://npm.example.org/\n//npm.example.org/:_authToken=s3cret\n//x/:_authToken=${TOKEN}\nstrict-ssl=false\ngit=./evil\n; git=x\n";
    check(
        npmrc,
        read,
        0,
        &["10.0.0.1", "npm.example.org"],
        &[
            "address registry",
            "not_https registry",
            "credentials _authToken",
            "weakened_checks strict-ssl",
            "runs_code git",
        ],
    );
    assert!(!format!("{:?}", facts(npmrc, read)).contains("s3cret"));

    let read: LockReader = |text, collector| {
        node_settings::read_yarnrc_yml(text, collector);
        Ok(())
    };
    let yarnrc = "yarnPath: .yarn/releases/yarn.cjs\nplugins:\n  - path: p.cjs\nnpmScopes:\n  s:\n    npmRegistryServer: http://npm.example.org\n    npmAuthToken: abc\nenableStrictSsl: false\n";
    check(
        yarnrc,
        read,
        0,
        &["npm.example.org"],
        &[
            "runs_code yarnPath",
            "runs_code plugins",
            "weakened_checks enableStrictSsl",
            "not_https npmRegistryServer",
            "credentials npmAuthToken",
        ],
    );

    let read: LockReader = |text, collector| {
        cargo::read_config(text, ".cargo/config.toml", collector);
        Ok(())
    };
    let config = "[source.crates-io]\nreplace-with = 'm'\n[source.m]\nregistry = 'sparse+https://mirror.example.org/'\n[build]\nrustc-wrapper = './evil'\n[registries.r]\nindex = 'https://i.example.org'\ntoken = 'x'\n[registry]\nglobal-credential-providers = ['./evil']\n";
    check(
        config,
        read,
        0,
        &["i.example.org", "mirror.example.org"],
        &["runs_code global-credential-providers", "credentials r", "runs_code build.rustc-wrapper"],
    );
}

// T16
#[test]
fn hostile_cargo_go_and_python_lockfiles_are_reported() {
    let lock = "version = 4\n[[package]]\nname = 'own'\nversion = '1'\n[[package]]\nname = 'a'\nversion = '1'\nsource = 'registry+https://github.com/rust-lang/crates.io-index'\n[[package]]\nname = 'b'\nversion = '1'\nsource = 'git+ssh://git@github.com/b/b?rev=1#0123'\n[[package]]\nname = 'c'\nversion = '1'\nsource = 'sparse+http://crates.example.org/index/'\nchecksum = 'x'\n";
    check(
        lock,
        CARGO,
        3,
        &["crates.example.org", "github.com"],
        &["missing_hash a", "not_https b", "not_https c"],
    );
    check("a v1 h1:x=\na v1/go.mod h1:y=\nb v1 md5:z\n", GO, 1, &[], &["missing_hash b"]);
    assert!(facts("one two\n", GO).is_err());
    let uv = "[[package]]\nname = 'a'\nsource = { git = 'https://github.com/a/a?rev=1#0' }\n[[package]]\nname = 'b'\nsource = { editable = '../b' }\n[[package]]\nname = 'c'\nsource = { registry = 'https://tok:s3cret@pypi.example.org/simple' }\nwheels = [{ url = 'https://cdn.example.org/c.whl' }]\n";
    check(
        uv,
        UV,
        2,
        &["cdn.example.org", "github.com", "pypi.example.org"],
        &["outside_service b", "credentials c", "missing_hash c"],
    );
}

/// A sha256 in hexadecimal.
const HASH: &str = "b6a85871a79d2e3b22d2d1b94ac2824226a63c6b741c88f7ae975f18b6778374";

fn requirements(files: &[(&str, &str)]) -> Result<(LockfileFacts, bool), requirements::RequirementsError> {
    let view = MemoryProject::new(files.iter().copied());
    let mut collector = HostCollector::default();
    let own_index = requirements::read(&view, "requirements.txt", &mut collector)?;
    Ok((collector.finish(), own_index))
}

// T16
#[test]
fn only_requirements_with_hashes_are_taken() {
    let (facts, own_index) = requirements(&[("requirements.txt", fixture!("requirements.txt"))]).unwrap();
    assert_eq!((facts.packages, own_index), (1, false));
    let refused = |text: &str, expected: &str| {
        let error = requirements(&[("requirements.txt", text)]).unwrap_err();
        assert_eq!(error.to_string(), expected);
    };
    refused("requests==2.0\n", "1 requirements have no sha256 hash: `requirements.txt:1 requests==2.0`");
    refused(
        "# c\nrequests==2.0 --hash=md5:abc\n",
        "1 requirements have no sha256 hash: `requirements.txt:2 requests==2.0`",
    );
    refused("-e .\n", "1 requirements have no sha256 hash: `requirements.txt:1 .`");
    refused(
        "https://u:s3cret@h.example/x.whl\n",
        "1 requirements have no sha256 hash: `requirements.txt:1 a URL`",
    );
    refused(
        "-r ../other.txt\n",
        "`requirements.txt` includes `../other.txt`, which is not a file of the service",
    );
    refused(
        "-r https://x.example/r.txt\n",
        "`requirements.txt` includes `https://x.example/r.txt`, which is not a file of the service",
    );
    refused(
        &format!("a==1 --hash=sha256:{}\n", HASH.trim_start_matches('b')),
        "1 requirements have no sha256 hash: `requirements.txt:1 a==1`",
    );
}

// T16
#[test]
fn requirements_options_and_includes_are_followed() {
    let root = format!(
        "--index-url https://u:s3cret@pypi.example.org/simple\n--trusted-host pypi.example.org\n--extra-index-url=http://two.example.org\n--no-binary :all:\n-rmore/base.txt\na==1 --hash=sha256:{HASH} # why\nb @ https://files.example.org/b.whl \\\n    --hash=sha256:{HASH}\n"
    );
    let base = format!("-r ../requirements.txt\nc==1 \\\n  --hash sha256:{HASH}\n");
    let (facts, own_index) = requirements(&[("requirements.txt", &root), ("more/base.txt", &base)]).unwrap();
    assert!(own_index && !format!("{facts:?}").contains("s3cret"));
    let hosts: Vec<&str> = facts.hosts.iter().map(|host| host.host.as_str()).collect();
    assert_eq!(hosts, ["files.example.org", "pypi.example.org", "two.example.org"]);
    let kinds: Vec<&str> = facts.problems.iter().map(|problem| problem.kind.as_str()).collect();
    assert_eq!(kinds, ["credentials", "weakened_checks", "not_https", "runs_code"]);
    assert_eq!(facts.packages, 3);
}

proptest! {
    #[test]
    fn readers_never_panic(text in "(\\PC|\n|  |: |\\{|\\}|\\[|\\]|\"|=|resolved|https://|@|#|package|source|sha256:|\\\\\n|-r |remote: ){0,100}") {
        for read in [NPM, PNPM, YARN, POETRY, UV, CARGO, GO, BUNDLER] {
            let _ = facts(&text, read);
        }
        let _ = requirements(&[("requirements.txt", &text)]);
        let mut collector = HostCollector::default();
        node_settings::read_npmrc(&text, &mut collector);
        node_settings::read_yarnrc(&text, &mut collector);
        node_settings::read_yarnrc_yml(&text, &mut collector);
        node_settings::read_pnpm_workspace(&text, &mut collector);
        python::read_pyproject(&text, &mut collector);
        cargo::read_config(&text, "x", &mut collector);
        go::read_mod(&text, "x", &mut collector);
    }

    #[test]
    fn cut_lockfiles_never_panic(cut in 0..1000_usize) {
        let cases: [(&str, LockReader); 6] = [
            (fixture!("package-lock.json"), NPM), (fixture!("pnpm-lock.yaml"), PNPM), (fixture!("yarn-v1.lock"), YARN),
            (fixture!("yarn-berry.lock"), YARN), (fixture!("uv.lock"), UV), (fixture!("poetry.lock"), POETRY),
        ];
        for (text, read) in cases {
            let _ = facts(text.get(..cut.min(text.len())).unwrap_or_default(), read);
        }
    }
}
