//! What a name says about its value: nothing, a password, a token.

/// The kind of value that a name indicates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameHint {
    /// A value that a person may have made up.
    Password,
    /// A machine-made value.
    Token,
    /// A key of some sort: only a value that looks like a key counts.
    Key,
    /// Some other key: only a clearly random value counts.
    AnyKey,
    /// A key of a service that is known by name.
    Service,
}

/// The anchors: a name that contains one is examined.
#[rustfmt::skip]
pub(crate) const NAME_ANCHORS: &[&str] = &[
    "passw", "passphrase", "passcode", "_pass", "-pass", "pass=", "pass:", "pass\"", "pass'", "pass ", "pwd=",
    "pwd:", "_pwd", "pwd\"", "pwd'", "pwd ", "pwd\\", "pass\\", "pwd\n", "pass\n", "requirepass", "masterauth", "storepass", "keypass", "psk=", "userpass", "dbpass", "secret", "token", "apikey", "api_key",
    "api-key", "api key", "api.key", "accesskey", "access_key", "access-key", "access key", "authkey", "auth_key",
    "auth-key", "_auth", "auth\"", "auth'", "authorization", "credential", "privatekey", "private_key",
    "private-key", "encryptionkey", "encryption_key", "encryption-key", "signingkey", "signing_key", "signing-key",
    "masterkey", "master_key", "master-key", "accountkey", "account_key", "account-key", "licensekey",
    "license_key", "license-key", "sharedkey", "shared_key", "shared-key", "clientkey", "client_key", "client-key",
    "consumerkey", "consumer_key", "consumer-key", "appkey", "app_key", "app-key", "application_key", "servicekey",
    "service_key", "service-key", "storagekey", "storage_key", "deploykey", "deploy_key", "deploy-key",
    "developerkey", "developer_key", "writekey", "write_key", "insertkey", "querykey", "subscription-key",
    "subscriptionkey", "presharedkey", "unseal key", "sessionkey", "session_key", "hmac_key", "hmackey",
    "cipher_key", "crypto_key", "aes_key", "_pat", "jwt_", "_jwt", "securestring", "private key", "_key", "-key",
    "key=", "key:", "key\"", "key'", "key ", "networkcredential", "auth:", "auth=", "auth =", "--auth", "bindpw", "rootpw",
    "wpa-psk", "kennwort", "wachtwoord", "contrasena", "senha", "mot_de_passe", "motdepasse",
];

#[rustfmt::skip]
const PASSWORD_ENDINGS: &[&str] = &[
    "password", "passwd", "passwort", "passphrase", "passcode", "pwd", "passw", "kennwort", "wachtwoord", "contrasena", "senha",
    "motdepasse",
];
/// Likewise, as whole words.
#[rustfmt::skip]
const PASSWORD_WORDS: &[&str] = &[
    "pass", "userpass", "dbpass", "pw", "requirepass", "masterauth", "storepass", "keypass", "psk", "sshpass", "ftppass", "smtppass",
    "mailpass", "adminpass", "rootpass", "bindpw", "rootpw", "userpw",
];
const TOKEN_ENDINGS: &[&str] = &["secret", "token", "apikey", "securestring"];
/// Words that make the `key` after them a secret.
#[rustfmt::skip]
const KEY_PREFIXES: &[&str] = &[
    "api", "access", "secret", "private", "auth", "encryption", "encrypt", "signing", "master", "account",
    "license", "shared", "consumer", "app", "application", "service", "storage", "deploy", "developer", "write",
    "insert", "query", "subscription", "preshared", "unseal", "session", "hmac", "cipher", "crypto", "aes",
    "client", "admin", "root", "stream", "io", "security", "functions",
];
/// Words that may follow the keyword without changing its meaning. In an upper-case name, unknown words may follow too.
#[rustfmt::skip]
const NEUTRAL_SUFFIXES: &[&str] = &[
    "value", "string", "str", "text", "raw", "data", "plain", "plaintext", "cleartext", "prod", "production", "dev",
    "development", "staging", "stage", "test", "live", "new", "old", "current", "base", "base64", "b64", "hex",
    "header", "bytes", "access", "key", "keys", "env", "v1", "v2", "v3", "1", "2", "3", "0", "a", "b", "default",
    "primary", "secondary", "main", "local", "root", "admin", "user", "id",
];
/// Words after the keyword which mean that the value is something else.
#[rustfmt::skip]
const OTHER_MEANINGS: &[&str] = &[
    "type", "types", "url", "uri", "urls", "file", "filename", "path", "dir", "name", "names", "field", "fields",
    "length", "len", "size", "count", "limit", "ttl", "expiry", "expires", "expire", "expiration", "timeout",
    "policy", "hashers", "hasher", "validator", "validators", "prompt", "hint", "label", "placeholder", "regex",
    "pattern", "format", "enabled", "disabled", "required", "encoding", "encoder", "store", "manager", "provider",
    "endpoint", "index", "kind", "class", "method", "mode", "status", "state", "error", "errors", "message", "msg",
    "title", "description", "spec", "symbols", "chars", "characters", "alphabet", "charset", "requests", "desc", "input", "form", "view", "page", "icon", "visible", "toggle", "confirm",
    "confirmation", "strength", "min", "max", "rounds", "algorithm", "alg", "usage", "var", "variable", "parameter",
    "param", "ref", "arn", "version", "scope", "scopes", "issuer", "audience", "callback", "handler", "generator",
    "factory", "service", "less", "helper", "env", "location", "source", "from", "prefix", "suffix", "separator",
    "cache", "info", "metadata", "schema", "rotation", "checker", "tags", "ids", "help", "text", "attribute",
    "attr", "column", "property", "option", "options", "config", "map", "list", "set", "get", "fn", "func", "uuid",
];
/// Words before a `token` or `key` that make it public.
#[rustfmt::skip]
const PUBLIC_PREFIXES: &[&str] = &[
    "csrf", "xsrf", "next", "page", "continuation", "cancel", "cancellation", "public", "publishable", "foreign",
    "primary", "cache", "sort", "partition", "max", "min", "num", "total", "count", "eos", "bos", "pad", "unk",
    "mask", "sep", "cls", "end", "start", "stop", "special", "lock", "site", "host", "map", "object", "storage",
    "row", "hot", "short", "translate", "message", "ssh", "pub", "event", "data", "index", "lookup", "registry",
    "group", "query", "item", "entry", "dict", "hash", "feature", "track", "state", "local", "proxy", "react",
    "idempotency", "dedupe", "socket", "websocket", "i18n", "translation", "sync", "pagination", "cursor", "design", "color",
];

/// The words of a name in lower case: split at punctuation and before upper case.
fn words(name: &[u8]) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut word = String::new();
    let mut last = b' ';
    for (n, &byte) in name.iter().enumerate() {
        let follows_small = last.is_ascii_lowercase() || last.is_ascii_digit();
        let ends_capitals = last.is_ascii_uppercase() && name.get(n + 1).is_some_and(u8::is_ascii_lowercase);
        let begins = byte.is_ascii_uppercase() && (follows_small || ends_capitals);
        if (begins || !byte.is_ascii_alphanumeric()) && !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        if byte.is_ascii_alphanumeric() {
            word.push(char::from(byte.to_ascii_lowercase()));
        }
        last = byte;
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

/// Whether the keyword is the last word of a name: `setPassword`, not `password.encode`.
pub(crate) fn ends_with_keyword(name: &[u8]) -> bool {
    let words = words(name);
    words.len().checked_sub(1).is_some_and(|last| word_hint(&words, last).is_some())
}

/// Whether a name means an idempotency token: `clientRequestToken`, `ChangeToken`.
pub(crate) fn is_request_token(name: &[u8]) -> bool {
    #[rustfmt::skip]
    const REQUEST: &[&str] = &[
        "request", "change", "action", "client", "lifecycle", "idempotency", "idempotent", "creator", "caller",
        "correlation", "retry", "transaction",
    ];
    words(name).iter().any(|word| REQUEST.contains(&word.as_str()))
}

/// Whether the keyword of a name is not English.
pub(crate) fn is_foreign(name: &[u8]) -> bool {
    let name = name.to_ascii_lowercase();
    [b"kennwort".as_slice(), b"wachtwoord", b"contrasena", b"senha", b"passe"]
        .iter()
        .any(|word| name.ends_with(word))
}

/// The kind of value that a name indicates.
pub(crate) fn name_hint(name: &[u8]) -> Option<NameHint> {
    // Most names contain no keyword at all.
    const KEYWORDS: &[&str] = &[
        "pass",
        "pw",
        "psk",
        "masterauth",
        "secret",
        "token",
        "key",
        "auth",
        "credential",
        "jwt",
        "pat",
        "securestring",
        "kennwort",
        "wachtwoord",
        "senha",
    ];
    if !KEYWORDS.iter().any(|word| crate::bytes::contains_ignoring_case(name, word.as_bytes())) {
        return None;
    }
    let words = words(name);
    let capitals = name.iter().all(|byte| !byte.is_ascii_lowercase());
    let hinted = (0..words.len()).rev().find_map(|n| word_hint(&words, n).map(|hint| (n, hint)));
    let (place, hint) = hinted?;
    // A public key, and anything derived from one.
    if words.get(..place).unwrap_or_default().iter().any(|word| word == "public" || word == "publickey") {
        return None;
    }
    let after = words.get(place + 1..).unwrap_or_default();
    if after.iter().any(|word| OTHER_MEANINGS.contains(&word.as_str())) {
        return None;
    }
    let known = after.iter().all(|word| NEUTRAL_SUFFIXES.contains(&word.as_str()) || word.len() <= 1);
    // `PASS` has other meanings: `CAM_PASS_ERR_RECOVER`.
    let short = words.get(place).is_some_and(|word| word == "pass" || word == "pw");
    (known || (!short && (capitals || after.len() <= 1))).then_some(hint)
}

fn word_hint(words: &[String], n: usize) -> Option<NameHint> {
    let word = words.get(n)?.as_str();
    let previous = n.checked_sub(1).and_then(|n| words.get(n)).map_or("", String::as_str);
    // `data.password` and the like are texts of a dialogue; `ssh_pass` is a password.
    let kept = matches!(previous, "ssh" | "host" | "proxy" | "registry" | "primary" | "storage" | "socket");
    // A CSRF token is public; the secret that it is made with is not.
    let secret = word == "secret" && !matches!(previous, "public" | "publishable");
    if secret {
        return Some(NameHint::Token);
    }
    if PUBLIC_PREFIXES.contains(&previous) && !kept {
        return None;
    }
    let passe = word == "passe" && previous == "de";
    if passe || PASSWORD_ENDINGS.iter().any(|end| word.ends_with(end)) || PASSWORD_WORDS.contains(&word) {
        return Some(NameHint::Password);
    }
    if kept {
        return None;
    }
    if TOKEN_ENDINGS.iter().any(|end| word.ends_with(end))
        && !PUBLIC_PREFIXES.iter().any(|start| word.starts_with(start))
    {
        return Some(NameHint::Token);
    }
    let pat = word == "pat"
        && (n == 0
            || matches!(
                previous,
                "github"
                    | "gitlab"
                    | "azure"
                    | "ado"
                    | "airtable"
                    | "figma"
                    | "access"
                    | "jira"
                    | "gh"
                    | "gl"
                    | "devops"
                    | "circleci"
                    | "user"
                    | "ci"
                    | "bot"
                    | "git"
            ));
    if pat
        || matches!(
            word,
            "credential" | "credentials" | "authorization" | "jwt" | "auth" | "networkcredential"
        )
    {
        return Some(NameHint::Token);
    }
    let compound = word.strip_suffix("key").filter(|start| KEY_PREFIXES.contains(start));
    if compound.is_some()
        || (word == "key" && (KEY_PREFIXES.contains(&previous) || previous.ends_with("api")))
    {
        let start = compound.unwrap_or(previous);
        let strong = start.ends_with("api")
            || matches!(
                start,
                "access"
                    | "secret"
                    | "private"
                    | "auth"
                    | "master"
                    | "encryption"
                    | "signing"
                    | "preshared"
                    | "unseal"
            );
        return Some(if strong { NameHint::Token } else { NameHint::Key });
    }
    let public =
        matches!(word, "vkey" | "pkey" | "pubkey" | "turkey" | "monkey" | "hockey" | "jockey" | "whiskey");
    (word.ends_with("key") && !public && !PUBLIC_PREFIXES.iter().any(|start| word.starts_with(start)))
        .then_some(NameHint::AnyKey)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_indicate_the_kind_of_value() {
        for (name, expected) in [
            ("password", Some(NameHint::Password)),
            ("DB_PASSWORD", Some(NameHint::Password)),
            ("dbPassword", Some(NameHint::Password)),
            ("POSTGRES_PASSWORD_PROD", Some(NameHint::Password)),
            ("client-secret", Some(NameHint::Token)),
            ("SECRET_KEY_BASE", Some(NameHint::Token)),
            ("X-Api-Key", Some(NameHint::Token)),
            ("apiKey", Some(NameHint::Token)),
            ("OPENAIAPIKey", Some(NameHint::Token)),
            ("aws_secret_access_key", Some(NameHint::Token)),
            ("accountKey", Some(NameHint::Key)),
            ("token_type", None),
            ("max_tokens", None),
            ("csrfToken", None),
            ("passwordField", None),
            ("password_hashers", None),
            ("cacheKey", None),
            ("public_key", None),
            ("tokenizer", None),
            ("secretary", None),
            ("authorization_endpoint", None),
            ("commitSha", None),
            ("publicKeyToken", None),
            ("CAM_PASS_ERR_RECOVER", None),
            ("DB_PASS_PROD", Some(NameHint::Password)),
        ] {
            assert_eq!(name_hint(name.as_bytes()), expected, "{name}");
        }
    }
}
