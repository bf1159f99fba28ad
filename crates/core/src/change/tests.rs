//! Table and property tests of ChangeSets.

use proptest::prelude::*;

use super::*;
use crate::path::AskedPath;
use crate::timestamp::Timestamp;

fn path(text: &str) -> ScopedPath {
    AskedPath::new(text).parse().unwrap()
}

fn facts(content: &[u8]) -> BaseFile {
    BaseFile { hash: Digest::of(content), size: content.len() as u64, mode: 0o644 }
}

fn modify(at: &str, to: &str, old: &[u8], new: &[u8]) -> FileChange {
    let target = TargetFile {
        path: path(to),
        hash: Digest::of(new),
        size: new.len() as u64,
        mode: None,
        splices: Splice::between(old, new),
    };
    FileChange::modify(path(at), facts(old), target).unwrap()
}

fn create(at: &str) -> FileChange {
    FileChange::create(path(at), b"x\n".to_vec(), None).unwrap()
}

// B2
#[test]
fn summaries_name_the_change_and_the_file() {
    let mode = TargetFile {
        path: path("m"),
        hash: Digest::of(b""),
        size: 0,
        mode: Some(0o755),
        splices: Vec::new(),
    };
    for (change, expected) in [
        (create("a/b"), "CREATE FILE a/b"),
        (modify("a", "a", b"1", b"2"), "MODIFY a"),
        (FileChange::delete(path("a"), facts(b"")).unwrap(), "DELETE a"),
        (modify("a", "b", b"1", b"1"), "RENAME a TO b"),
        (FileChange::modify(path("m"), facts(b""), mode).unwrap(), "MODE m 0644 TO 0755"),
    ] {
        assert_eq!(change.to_string(), expected);
        assert_eq!(ChangeSet::new(vec![change]).unwrap().summary(), expected);
    }
    let many = ChangeSet::new(["d", "c", "b", "a", "e"].map(create).to_vec()).unwrap();
    assert_eq!(many.summary(), "CREATE FILE a, CREATE FILE b, CREATE FILE c, and 2 more");
    assert_eq!(ChangeSet::default().summary(), "NOTHING");
}

// B7
#[test]
fn changing_a_path_twice_is_rejected() {
    for files in [
        vec![create("a"), create("a")],
        vec![create("b"), modify("a", "b", b"1", b"1")],
        vec![modify("a", "b", b"", b""), modify("c", "b", b"", b"")],
        vec![modify("a", "b", b"", b""), modify("b", "a", b"", b"")],
    ] {
        assert!(matches!(ChangeSet::new(files), Err(BadChange::DuplicatePath(_))));
    }
}

#[test]
fn limits_are_enforced() {
    let many: Vec<_> = (0..=MAX_FILES).map(|n| create(&format!("f{n}"))).collect();
    let error = CallError::from(ChangeSet::new(many).unwrap_err());
    assert_eq!(error.code, ErrorCode::TooLarge);
    let root = FileChange::create(ScopedPath::root(crate::path::Zone::Service), Vec::new(), None);
    assert!(matches!(root, Err(BadChange::NotAFile(_))));
}

#[test]
fn rename_has_the_effects_delete_and_create() {
    let effects = ChangeSet::new(vec![modify("a", "b", b"1", b"1")]).unwrap().effects();
    let effects: Vec<String> = effects.iter().map(Effect::canonical).collect();
    assert_eq!(effects.len(), 2);
    assert!(effects[0].contains("delete") && effects[1].contains("create"), "{effects:?}");
}

#[test]
fn splices_that_do_not_fit_are_rejected() {
    let splice = |at, remove, insert: &str| Splice { at, remove, insert: insert.into() };
    for (splices, old, new) in [
        (vec![splice(0, 4, "")], 3, 0),
        (vec![splice(0, 1, "x")], 3, 4),
        (vec![splice(2, 1, "x"), splice(0, 1, "x")], 3, 3),
        (vec![splice(0, 2, "x"), splice(1, 1, "x")], 3, 2),
        (vec![splice(1, 0, "x"), splice(1, 0, "y")], 3, 5),
        (vec![splice(0, 0, "")], 3, 3),
        (vec![splice(u64::MAX, 1, "")], 3, 3),
        (vec![splice(1, u64::MAX, "")], 3, 3),
    ] {
        assert_eq!(check_splices(&splices, old, new), Err(BadSplice), "{splices:?}");
    }
    assert_eq!(spliced(b"ab", &[splice(5, 0, "x")]), Err(BadSplice));
    assert_eq!(spliced(b"ab", &[splice(1, 9, "x")]), Err(BadSplice));
}

// B3
#[test]
fn proposal_checks_run_in_order_with_their_own_codes() {
    let paths = ["a", "b", "c"].map(str::to_owned);
    let at = Timestamp::from_millis;
    let proposal = |used| StoredProposal { paths: &paths, expires_at: at(100), used };
    let check =
        |found: Option<&StoredProposal<'_>>, asked: Option<&str>, now, expected: Option<ErrorCode>| {
            let asked = asked.map(AskedPath::new);
            let got = check_proposal(found, asked.as_ref(), at(now)).err().map(|error| error.code);
            assert_eq!(got, expected, "{asked:?}");
        };
    check(None, Some("x"), 200, Some(ErrorCode::ProposalNotFound));
    check(Some(&proposal(Some("it was approved already"))), Some("x"), 200, Some(ErrorCode::ProposalUsed));
    check(Some(&proposal(None)), Some("x"), 200, Some(ErrorCode::PathMismatch));
    check(Some(&proposal(None)), Some("../a"), 50, Some(ErrorCode::PathMismatch));
    check(Some(&proposal(None)), Some("a"), 100, Some(ErrorCode::ProposalExpired));
    for own in [None, Some("a"), Some("./a"), Some("b"), Some("c")] {
        check(Some(&proposal(None)), own, 99, None);
    }
}

fn any_content() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(prop_oneof![Just(b'a'), Just(b'\n'), any::<u8>()], 0..40)
}

/// A base with random splices at sorted offsets.
fn any_splices(base: Vec<u8>) -> impl Strategy<Value = (Vec<u8>, Vec<Splice>)> {
    let cuts = proptest::collection::vec((0..=base.len(), 0..4_usize, any_content()), 0..5);
    cuts.prop_map(move |mut cuts| {
        cuts.sort_by_key(|cut| cut.0);
        let mut splices = Vec::new();
        let mut free = 0;
        for (at, remove, insert) in cuts {
            let at = at.max(free);
            if at > base.len() {
                break;
            }
            let remove = remove.min(base.len() - at);
            free = at + remove + 1;
            splices.push(Splice { at: at as u64, remove: remove as u64, insert });
        }
        (base.clone(), Splice::merged(splices))
    })
}

// B7: every file that may be deleted can be restored
#[test]
fn rollback_may_hold_more_than_a_proposal() {
    let size = usize::try_from(MAX_NEW_BYTES).unwrap() + 1;
    let whole = FileChange::create(path("f"), vec![b'x'; size], None).unwrap();
    assert!(matches!(ChangeSet::new(vec![whole.clone()]), Err(BadChange::OverLimit(_))));
    let back = ChangeSet::rollback(vec![whole]).unwrap();
    assert!(ChangeSet::from_bytes(&back.to_bytes()).unwrap() == back);
}

proptest! {
    #[test]
    fn changes_decode_to_themselves_and_the_reverse_restores_the_base(
        (base, splices) in any_content().prop_flat_map(any_splices), mode in proptest::option::of(0..0o7777_u32),
    ) {
        let new = spliced(&base, &splices).unwrap();
        let target = TargetFile { path: path("f"), hash: Digest::of(&new), size: new.len() as u64, mode, splices };
        let change = FileChange::modify(path("f"), facts(&base), target).unwrap();
        let back = change.reverse(&base, 0, 0o644).unwrap();
        let restored = spliced(&new, &back.after().unwrap().splices).unwrap();
        prop_assert_eq!(&restored, &base);
        let forth = back.reverse(&new, 0, 0o644).unwrap();
        prop_assert_eq!(forth.after(), change.after());
        let set = ChangeSet::new(vec![change, create("e")]).unwrap();
        let bytes = set.to_bytes();
        prop_assert_eq!(ChangeSet::from_bytes(&bytes), Ok(set));
        for cut in 0..bytes.len() {
            prop_assert!(ChangeSet::from_bytes(&bytes[..cut]).is_err());
        }
    }

    #[test]
    fn damaged_encodings_never_panic_and_never_keep_the_digest(at in 0..400_usize, bit in 0..8_u8) {
        let set = ChangeSet::new(vec![create("e"), modify("a", "b", b"one\ntwo\n", b"one\n2\n")]).unwrap();
        let mut bytes = set.to_bytes();
        let at = at % bytes.len();
        bytes[at] ^= 1 << bit;
        if let Ok(read) = ChangeSet::from_bytes(&bytes) {
            prop_assert_ne!(read.digest(), set.digest());
        }
    }

    #[test]
    fn splice_between_two_contents_produces_the_second(old in any_content(), new in any_content()) {
        prop_assert_eq!(spliced(&old, &Splice::between(&old, &new)).unwrap(), new);
    }
}
