//! Ten thousand attacks on a ledger, every one found; and every single bit of a small one.

use std::collections::BTreeMap;
use std::path::Path;

use vambrace_ledger::{FindingKind, SigningKey};
use vambrace_store::{StateDir, VerifyOptions, VerifyReport, verify};

use crate::fixtures::at;
use crate::forge::{DirSnapshot, Forge, SampleLedger, SeededRandom, sample_ledger};
use crate::mutations::{MUTATIONS, MutationContext, replace_keys};

/// A day after the records: none still waits for its checkpoint.
pub(crate) fn later() -> VerifyOptions {
    VerifyOptions::new(at(86_400_000))
}

pub(crate) fn verify_with(home: &Path, options: &VerifyOptions) -> VerifyReport {
    verify(&StateDir::existing(home).unwrap(), options, &mut |_| {}).unwrap()
}

fn forged_home() -> (tempfile::TempDir, std::path::PathBuf) {
    let temp = crate::forge::temp_dir();
    let home = temp.path().join("forged");
    (temp, home)
}

/// Applies every mutation `times` times; returns how often each was found.
fn attack(
    ours: &SampleLedger,
    other: &SampleLedger,
    seed: u64,
    times: u64,
) -> BTreeMap<&'static str, (u64, u64)> {
    let (_temp, home) = forged_home();
    let mut random = SeededRandom(seed);
    let mut table = BTreeMap::new();
    for (name, make) in MUTATIONS {
        for round in 0..times {
            let forge = Forge::of(&ours.image, &home);
            make(&mut MutationContext { ours, other, forge: &forge, random: &mut random });
            drop(forge);
            let found = !verify_with(&home, &later()).findings.is_clean();
            assert!(found, "`{name}`, seed {seed}, round {round} was not found");
            let (sum, all) = table.entry(*name).or_insert((0, 0));
            *sum += u64::from(found);
            *all += 1;
        }
    }
    table
}

fn print_table(table: &BTreeMap<&'static str, (u64, u64)>) {
    let mut out = String::new();
    for (name, (found, all)) in table {
        out += &format!("{name:<60} {found:>6} of {all:>6}\n");
    }
    let (found, all) = table.values().fold((0, 0), |sum, row| (sum.0 + row.0, sum.1 + row.1));
    out += &format!("{:<60} {found:>6} of {all:>6}\n", "all");
    std::io::Write::write_all(&mut std::io::stderr(), out.as_bytes()).unwrap();
}

/// Rounds per mutation; with two ledgers and two threads they make 10,000.
fn rounds() -> u64 {
    10_000_u64.div_ceil(2 * MUTATIONS.len() as u64)
}

// B5
#[test]
fn every_attack_of_ten_thousand_is_found() {
    let (small, large) = (sample_ledger(3, 12, 3000), sample_ledger(2, 160, 30_000));
    let tables = std::thread::scope(|scope| {
        let one = scope.spawn(|| attack(&small, &large, 1, rounds() * 3 / 2));
        let two = scope.spawn(|| attack(&large, &small, 2, rounds() - rounds() / 2));
        [one.join().unwrap(), two.join().unwrap()]
    });
    let mut table = BTreeMap::new();
    for (name, (found, all)) in tables.into_iter().flatten() {
        let row = table.entry(name).or_insert((0, 0));
        *row = (row.0 + found, row.1 + all);
    }
    print_table(&table);
    let (found, all) = table.values().fold((0, 0), |sum, row| (sum.0 + row.0, sum.1 + row.1));
    assert!(found == all && all >= 10_000, "{found} of {all}");
}

/// A ledger forged completely with the attacker's own keys is found only by what was kept elsewhere.
// B5
#[test]
fn a_ledger_forged_with_other_keys_is_found_by_a_kept_checkpoint_or_key() {
    let ours = sample_ledger(3, 12, 3000);
    let (temp, home) = forged_home();
    let forge = Forge::of(&ours.image, &home);
    let mut random = SeededRandom(3);
    let wrong = random.below(30);
    replace_keys(&forge, |at, fields| {
        if at == wrong {
            fields["level"] = "WARN".into();
        }
    });
    drop(forge);
    let alone = verify_with(&home, &later());
    assert!(alone.findings.is_clean(), "a perfect forgery was expected: {:#?}", alone.findings);
    for kept in &ours.kept {
        let options = VerifyOptions { checkpoints: vec![("kept".into(), kept.clone())], ..later() };
        assert!(!verify_with(&home, &options).findings.is_clean());
    }
    let options = VerifyOptions { key: Some(ours.key.parse().unwrap()), ..later() };
    assert!(!verify_with(&home, &options).findings.is_clean());
    let anchors = temp.path().join("anchors");
    std::fs::create_dir(&anchors).unwrap();
    let origin = String::from_utf8(ours.kept[0].clone()).unwrap().lines().next().unwrap().to_owned();
    let name = format!("{}.checkpoint", origin.strip_prefix("vambrace/").unwrap());
    std::fs::write(anchors.join(name), &ours.kept[0]).unwrap();
    let options = VerifyOptions { anchors: Some(anchors), ..later() };
    assert!(!verify_with(&home, &options).findings.is_clean());
    // The same checks of the real ledger find nothing.
    ours.image.put(&home);
    let checkpoints = ours.kept.iter().map(|kept| ("kept".to_owned(), kept.clone())).collect();
    let options = VerifyOptions { checkpoints, key: Some(ours.key.parse().unwrap()), ..options };
    let honest = verify_with(&home, &options);
    assert!(honest.findings.is_clean(), "{:#?}", honest.findings);
}

// B5
#[test]
fn a_wrong_record_signed_by_the_key_holder_is_found_by_a_thorough_verification() {
    let ours = sample_ledger(1, 12, 1 << 20);
    let (_temp, home) = forged_home();
    let forge = Forge::of(&ours.image, &home);
    let key = std::fs::read_to_string(home.join("keys/ledger.key")).unwrap();
    let key = SigningKey::from_secret_text(&key).unwrap();
    let mut lines = forge.lines();
    lines[7] = lines[7].replacen("\"level\":\"INFO\"", "\"level\":\"WARN\"", 1);
    forge.set_lines(&lines);
    forge.fix_segments();
    forge.fix_tree();
    forge.fix_checkpoints(&|fields, _| fields.sign(&key).unwrap().to_string());
    drop(forge);
    assert!(verify_with(&home, &later()).findings.is_clean());
    let thorough = verify_with(&home, &VerifyOptions { thorough: true, ..later() });
    let kinds: Vec<FindingKind> = thorough.findings.faults().iter().map(|fault| fault.kind).collect();
    assert_eq!(kinds, [FindingKind::WrongHash]);
}

// B5
#[test]
fn a_directory_rolled_back_as_a_whole_is_found_by_a_kept_checkpoint() {
    let ours = sample_ledger(4, 9, 3000);
    let (_temp, home) = forged_home();
    for (before, image) in ours.before.iter().enumerate() {
        image.put(&home);
        assert!(verify_with(&home, &later()).findings.is_clean());
        for (number, kept) in ours.kept.iter().enumerate() {
            let options = VerifyOptions { checkpoints: vec![("kept".into(), kept.clone())], ..later() };
            assert_eq!(
                verify_with(&home, &options).findings.is_clean(),
                number <= before,
                "{number} {before}"
            );
        }
    }
}

/// Flips every bit of a value in the database file, in place: SQLite has no checksum of its own.
fn flips(home: &Path, file: &str, places: &[std::ops::Range<usize>]) -> (u64, u64) {
    use std::os::unix::fs::FileExt as _;
    let path = home.join(file);
    let honest = std::fs::read(&path).unwrap();
    let disk = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    let (mut found, mut all) = (0, 0);
    for at in places.iter().cloned().flatten() {
        for bit in 0..8 {
            disk.write_all_at(&[honest[at] ^ 1 << bit], at as u64).unwrap();
            all += 1;
            let clean = verify_with(home, &later()).findings.is_clean();
            assert!(!clean, "{file}: byte {at} bit {bit} was not found");
            found += u64::from(!clean);
        }
        disk.write_all_at(&honest[at..=at], at as u64).unwrap();
    }
    (found, all)
}

/// The ranges of the stored values in the database file.
fn places(image: &DirSnapshot, home: &Path) -> Vec<std::ops::Range<usize>> {
    let forge = Forge::of(image, home);
    let mut values: Vec<Vec<u8>> = forge.lines().into_iter().map(String::into_bytes).collect();
    values.extend(forge.notes().into_iter().map(|(_, note)| note.into_bytes()));
    for sql in [
        "SELECT CAST(edge AS BLOB) FROM tree",
        "SELECT CAST(hash AS BLOB) FROM tree",
        "SELECT CAST(key AS BLOB) FROM ledger_keys",
        "SELECT CAST(name AS BLOB) FROM writer",
    ] {
        values.push(forge.db.query_row(sql, (), |row| row.get(0)).unwrap());
    }
    drop(forge);
    image.put(home);
    let file = std::fs::read(home.join("vambrace.db")).unwrap();
    let place = |value: &Vec<u8>| {
        // A short value may also occur inside a line.
        let all: Vec<usize> =
            (0..file.len() - value.len()).filter(|at| file[*at..].starts_with(value)).collect();
        assert!(!all.is_empty(), "{:?}", String::from_utf8_lossy(value));
        all.into_iter().map(|at| at..at + value.len()).collect::<Vec<_>>()
    };
    let mut found: Vec<_> = values.iter().flat_map(place).collect();
    found.sort_by_key(|range| (range.start, std::cmp::Reverse(range.end)));
    found.dedup_by(|next, last| next.end <= last.end);
    found
}

// B5
#[test]
fn every_flipped_bit_of_a_small_ledger_is_found() {
    let ours = sample_ledger(1, 1, 9000);
    let (_temp, home) = forged_home();
    let (_other, second) = forged_home();
    let places = places(&ours.image, &home);
    ours.image.put(&second);
    let names: Vec<String> = std::fs::read_dir(second.join("ledger"))
        .unwrap()
        .map(|entry| format!("ledger/{}", entry.unwrap().file_name().to_str().unwrap()))
        .collect();
    let rows = std::thread::scope(|scope| {
        let rows = scope.spawn(|| flips(&home, "vambrace.db", &places));
        let files: Vec<_> = names
            .iter()
            .map(|name| {
                let size = std::fs::metadata(second.join(name)).unwrap().len();
                (name, flips(&second, name, std::slice::from_ref(&(0..usize::try_from(size).unwrap()))))
            })
            .collect();
        let mut all = vec![("vambrace.db".to_owned(), rows.join().unwrap())];
        all.extend(files.into_iter().map(|(name, sums)| (name.clone(), sums)));
        all
    });
    let table = rows.iter().map(|(name, sums)| (&*name.clone().leak(), *sums)).collect();
    print_table(&table);
}
