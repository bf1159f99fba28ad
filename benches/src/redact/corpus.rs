//! The corpus of the redactor bench: source of installed packages, planted secrets, known values, hard negatives.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use vambrace_redact::{KnownValue, SecretBytes};

/// The public test vectors, gzipped.
const VECTORS: &[u8] = include_bytes!("../../../crates/redact/tests/data/secrets-dev.jsonl.gz");
/// Maximum amount of source that is read, in bytes.
const MAX_SOURCE_BYTES: usize = 400 << 20;
const ALNUM: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
const HEX: &str = "0123456789abcdef";

/// A small seeded random generator (xorshift).
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, most: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(most.max(1)).unwrap()).unwrap()
    }

    pub(crate) fn letters(&mut self, alphabet: &str, count: usize) -> String {
        let letters = alphabet.as_bytes();
        (0..count).map(|_| char::from(letters[self.below(letters.len())])).collect()
    }
}

/// Text files of the packages that cargo and the test tools have installed, without those of secret scanners.
pub(crate) fn source() -> Vec<(PathBuf, Vec<u8>)> {
    let cargo = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo")));
    let mut dirs: Vec<PathBuf> = cargo.map(|home| home.join("registry/src")).into_iter().collect();
    dirs.extend(["npm/node_modules", "mcp-1/lib"].map(|name| Path::new(".tools").join(name)));
    below(dirs)
}

/// Source files of the system; their hits were reviewed too, later.
pub(crate) fn system() -> Vec<(PathBuf, Vec<u8>)> {
    below(["/usr/lib/python3", "/usr/include", "/usr/share/doc"].map(PathBuf::from).to_vec())
}

/// Packages whose hits were reviewed only after the rules were complete.
pub(crate) fn held_out() -> Vec<(PathBuf, Vec<u8>)> {
    let dir = std::env::var_os("VAMBRACE_BENCH_HELD_OUT")
        .expect("VAMBRACE_BENCH_HELD_OUT: `cargo xtask bench` sets it");
    below(vec![PathBuf::from(dir).join("lib")])
}

fn below(mut dirs: Vec<PathBuf>) -> Vec<(PathBuf, Vec<u8>)> {
    let (mut files, mut bytes) = (Vec::new(), 0);
    while let Some(dir) = dirs.pop() {
        let mut entries: Vec<PathBuf> =
            std::fs::read_dir(&dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        entries.sort();
        for path in entries {
            let Ok(facts) = std::fs::symlink_metadata(&path) else { continue };
            let scanner = ["redact", "kingfisher", "secret", "leaks"]
                .iter()
                .any(|word| path.file_name().is_some_and(|name| name.to_string_lossy().contains(word)));
            if scanner {
                continue;
            } else if facts.is_dir() {
                dirs.push(path);
            } else if facts.is_file() && facts.len() < 8 << 20 && bytes < MAX_SOURCE_BYTES {
                let Ok(text) = std::fs::read(&path) else { continue };
                if !text.iter().take(8000).any(|byte| *byte == 0) {
                    bytes += text.len();
                    files.push((path, text));
                }
            }
        }
    }
    assert!(bytes > 8 << 20, "only {bytes} bytes of source found");
    files
}

/// Lines with a token that has a known prefix, and the token.
pub(crate) fn prefixed(rng: &mut Rng, count: usize) -> Vec<(String, String)> {
    let kinds: &[(&str, &str, usize, &str)] = &[
        ("ghp_", ALNUM, 36, ""),
        ("github_pat_", ALNUM, 82, ""),
        ("glpat-", ALNUM, 20, ""),
        ("AKIA", "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 16, ""),
        ("xoxb-123456789012-123456789012-", ALNUM, 24, ""),
        ("sk_live_", ALNUM, 24, ""),
        ("SG.abcdefghijklmnop123456.", ALNUM, 43, ""),
        ("npm_", ALNUM, 36, ""),
        ("pypi-AgEIcHlwaS5vcmc", ALNUM, 80, ""),
        ("dop_v1_", HEX, 64, ""),
        ("AIza", ALNUM, 35, ""),
        ("sk-ant-api03-", ALNUM, 93, "AA"),
        ("hf_", "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", 34, ""),
        ("dckr_pat_", ALNUM, 27, ""),
        ("shpat_", HEX, 32, ""),
        ("hvs.", ALNUM, 95, ""),
        ("glsa_abcdefghijklmnopqrstuvwxyz012345_", HEX, 8, ""),
        ("rubygems_", HEX, 48, ""),
        ("lin_api_", ALNUM, 40, ""),
        ("PMAK-0123456789abcdef01234567-", HEX, 34, ""),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIx", ALNUM, 40, ".c2lnbmF0dXJl0123456789"),
        ("key-", HEX, 32, ""),
        ("SK", HEX, 32, ""),
        ("sq0atp-", ALNUM, 22, ""),
    ];
    (0..count)
        .map(|n| {
            let (mark, alphabet, length, end) = kinds[n % kinds.len()];
            let token = format!("{mark}{}{end}", rng.letters(alphabet, length));
            let lines = [
                format!("value = \"{token}\""),
                format!("curl -H 'X: {token}'"),
                format!("see {token}, please"),
                format!("K={token}\n"),
                format!("{{\"a\":\"{token}\"}}"),
            ];
            (lines[rng.below(lines.len())].clone(), token)
        })
        .collect()
}

/// A text, and what must not be in it after redaction.
type Planted = (Vec<u8>, Vec<u8>);

/// Known values, and texts that contain one of them in some encoding.
pub(crate) fn known(rng: &mut Rng) -> (Vec<KnownValue>, Vec<Planted>) {
    let (mut values, mut texts) = (Vec::new(), Vec::new());
    for n in 0..40 {
        let length = 12 + rng.below(30);
        let value = match n % 3 {
            0 => rng.letters(ALNUM, length),
            1 => rng.letters("abcXYZ019!$%&/()=?+*'\"\\<> ", length).replace(' ', "_") + "Q7x",
            _ => format!("{}\n{}", rng.letters(ALNUM, 20), rng.letters(ALNUM, 20)),
        };
        let bytes = value.as_bytes();
        let each = |write: &dyn Fn(u8) -> String| bytes.iter().map(|byte| write(*byte)).collect::<String>();
        let base64 = |text: &[u8]| pack(text);
        let mut forms = vec![
            value.clone(),
            serde_json::to_string(&value).unwrap().trim_matches('"').to_owned(),
            each(&|byte| format!("{byte:02x}")),
            each(&|byte| format!("{byte:02X}")),
            each(&|byte| format!("%{byte:02X}")),
            each(&|byte| format!("\\x{byte:02x}")),
            value
                .replace('&', "&amp;")
                .replace('<', "&lt;")
                .replace('>', "&gt;")
                .replace('"', "&quot;")
                .replace('\'', "&#39;"),
            value.replace('\'', "'\\''"),
            value.replace('\n', ""),
        ];
        forms.extend(value.lines().filter(|line| line.len() >= 8).map(str::to_owned));
        for before in ["", "a", "ab"] {
            forms.push(base64(format!("{before}{value}xyz").as_bytes()));
        }
        for form in forms {
            let around = rng.letters("abcdefgh \n", 300);
            let (head, tail) = around.split_at(150);
            texts.push((format!("{head}{form}{tail}").into_bytes(), form.clone().into_bytes()));
        }
        values.push(KnownValue { kind: "env".to_owned(), value: SecretBytes::from(value) });
    }
    (values, texts)
}

/// Base64 with the standard alphabet.
pub(crate) fn pack(bytes: &[u8]) -> String {
    let alphabet: Vec<char> =
        format!("{}{}{}+/", &ALNUM[..26], &ALNUM[26..52], &ALNUM[52..]).chars().collect();
    let mut out = String::new();
    for three in bytes.chunks(3) {
        let all =
            three.iter().fold(0_u32, |all, byte| all << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for n in 0..4 {
            out.push(if n <= three.len() { alphabet[(all >> (18 - 6 * n) & 63) as usize] } else { '=' });
        }
    }
    out
}

/// Lines that look random but are not secret.
pub(crate) fn negatives(rng: &mut Rng, count: usize) -> Vec<u8> {
    let mut text = String::new();
    for n in 0..count {
        let hex = rng.letters(HEX, 64);
        let (h32, h40) = (&hex[..32], &hex[..40]);
        text += &match n % 11 {
            0 => format!("checksum = \"{hex}\"\n"),
            1 => format!("\"integrity\": \"sha512-{}==\",\n", rng.letters(ALNUM, 86)),
            2 => format!("golang.org/x/net v0.{n}.0 h1:{}=\n", rng.letters(ALNUM, 43)),
            3 => format!("commit {h40}\n"),
            4 => format!(
                "request_id={}-{}-{}-{}-{}\n",
                &hex[..8],
                &hex[8..12],
                &hex[12..16],
                &hex[16..20],
                &hex[20..32]
            ),
            5 => format!("{{\"cacheKey\": \"{h32}\", \"commitSha\": \"{h40}\", \"etag\": \"{h32}\"}}\n"),
            6 => format!("url(data:font/woff2;base64,{}) format('woff2')\n", rng.letters(ALNUM, 200)),
            7 => format!("ssh-rsa AAAAB3NzaC1yc2E{} ada@host\n", rng.letters(ALNUM, 200)),
            8 => format!(
                "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
                rng.letters(ALNUM, 64)
            ),
            9 => format!("    --hash=sha256:{hex} \\\n"),
            _ => format!("password=${{DB_PASSWORD}} token=<your-token> key=AKIAIOSFODNN7EXAMPLE {h32}\n"),
        };
    }
    text.into_bytes()
}

/// A ledger record without a secret.
pub(crate) const RECORD: &str = r#"{"v":1,"call":"c-7f3a9c11","tool":"read_file","args":{"path":"crates/redact/src/lib.rs"},"effects":[{"read":"crates/redact/src/lib.rs"}],"verdict":"allow","rule":"default","took_us":412,"bytes":4096,"base_hash":"sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"}"#;

/// The public examples that contain a secret: source and text.
pub(crate) fn vectors() -> Vec<(String, String)> {
    let mut text = String::new();
    flate2::read::GzDecoder::new(VECTORS).read_to_string(&mut text).expect("gzipped vectors");
    text.lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("a line of JSON"))
        .filter(|vector| vector["expect"] == "hit")
        .map(|vector| {
            (
                vector["source"].as_str().unwrap().split(':').next().unwrap().to_owned(),
                vector["text"].as_str().unwrap().to_owned(),
            )
        })
        .collect()
}
