//! `vambrace policy replay`: recorded effects against another policy.

use serde_json::json;

use crate::home::Home;

const POLICY: &str = "roles: {default: dev}\nworkspace: {create_in: ['.', 'docs/', 'src/']}\n";

// A5: recorded effects are judged without planning: the file that was read is gone
#[test]
fn replay_reports_the_verdicts_that_another_policy_changes() {
    let home = Home::with(POLICY);
    let other = home.project().join("other.yaml");
    let replay = |home: &Home| home.run(["policy", "replay", "--json", "--against", "other.yaml"]);
    assert_eq!(home.call("read_file", &json!({"path": "docs/guide.md"}).to_string()).1["status"], "success");
    home.call("write_file", &json!({"path": "docs/new.md", "content": "x\n"}).to_string());
    home.call("read_file", &json!({"path": 7}).to_string());
    std::fs::remove_file(home.project().join("docs/guide.md")).unwrap();

    std::fs::write(&other, POLICY).unwrap();
    let same = replay(&home);
    assert_eq!((same.code, &same.json()["changed"]), (0, &json!(0)), "{same:?}");
    assert_eq!(same.json()["judged"], 2, "{same:?}");
    assert_eq!(same.json()["not_judged"], 1, "the call with invalid arguments has no effects: {same:?}");

    let deny = "approvals: {rules: [{id: no-docs, tools: [read_file], paths: ['docs/'], decision: deny}]}\n";
    std::fs::write(&other, format!("{POLICY}{deny}")).unwrap();
    let changed = replay(&home);
    assert_eq!((changed.code, &changed.json()["changed"]), (1, &json!(1)), "{changed:?}");
    let change = &changed.json()["changes"][0];
    assert_eq!((&change["before"], &change["after"]), (&"allow".into(), &"deny".into()), "{change}");
    assert_eq!(change["effects"], json!(["read docs/guide.md"]));
    assert!(change["why"][0].as_str().unwrap().contains("no-docs"), "{change}");

    let future = home.run(["policy", "replay", "--json", "--against", "other.yaml", "--since", "2999-01-01"]);
    assert_eq!((future.code, &future.json()["judged"]), (0, &json!(0)), "{future:?}");
    std::fs::write(&other, "roles: {defalt: dev}\n").unwrap();
    assert!(replay(&home).code > 1, "an invalid file is an error, not a change");
}

// T21: only redacted text is stored with a call
#[test]
fn recorded_effects_contain_no_secret() {
    let home = Home::with(POLICY);
    let token = format!("ghp_{}", "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8");
    home.call("execute_command", &json!({"command": "echo", "args": [token]}).to_string());
    std::fs::write(home.project().join("other.yaml"), "roles: {default: product_owner}\n").unwrap();
    let changed = home.run(["policy", "replay", "--json", "--against", "other.yaml"]);
    assert_eq!((changed.code, changed.out.contains(&token)), (1, false), "{changed:?}");
    assert!(changed.out.contains("execute echo"), "{changed:?}");
}
