//! What a name says about its value: nothing, a password, a token.

/// What a name promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Promise {
    /// Something that a person may have thought up.
    Password,
    /// Something that a machine has made.
    Token,
    /// A key of some sort: only what looks like one counts.
    Key,
    /// Some key or other: only what is clearly random counts.
    AnyKey,
    /// What a service with a telling name gives out.
    Service,
}

/// Words that scanning looks for; a name that holds one is looked at.
#[rustfmt::skip]
pub(crate) const WORDS: &[&str] = &[
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
const PASSWORD: &[&str] = &[
    "password", "passwd", "passwort", "passphrase", "passcode", "pwd", "passw", "kennwort", "wachtwoord", "contrasena", "senha",
    "motdepasse",
];
/// The same, as words of their own.
#[rustfmt::skip]
const WHOLE: &[&str] = &[
    "pass", "userpass", "dbpass", "pw", "requirepass", "masterauth", "storepass", "keypass", "psk", "sshpass", "ftppass", "smtppass",
    "mailpass", "adminpass", "rootpass", "bindpw", "rootpw", "userpw",
];
const TOKEN: &[&str] = &["secret", "token", "apikey", "securestring"];
/// Words that make a secret of the `key` after them.
#[rustfmt::skip]
const KEYS: &[&str] = &[
    "api", "access", "secret", "private", "auth", "encryption", "encrypt", "signing", "master", "account",
    "license", "shared", "consumer", "app", "application", "service", "storage", "deploy", "developer", "write",
    "insert", "query", "subscription", "preshared", "unseal", "session", "hmac", "cipher", "crypto", "aes",
    "client", "admin", "root", "stream", "io", "security", "functions",
];
/// What may follow the telling word without taking its meaning away, beside words of which nothing is known in a name
/// of capitals.
#[rustfmt::skip]
const AFTER: &[&str] = &[
    "value", "string", "str", "text", "raw", "data", "plain", "plaintext", "cleartext", "prod", "production", "dev",
    "development", "staging", "stage", "test", "live", "new", "old", "current", "base", "base64", "b64", "hex",
    "header", "bytes", "access", "key", "keys", "env", "v1", "v2", "v3", "1", "2", "3", "0", "a", "b", "default",
    "primary", "secondary", "main", "local", "root", "admin", "user", "id",
];
/// What follows the telling word and says that the value is something else.
#[rustfmt::skip]
const OTHER: &[&str] = &[
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
/// Words before a `token` or `key` that make something public of it.
#[rustfmt::skip]
const PUBLIC: &[&str] = &[
    "csrf", "xsrf", "next", "page", "continuation", "cancel", "cancellation", "public", "publishable", "foreign",
    "primary", "cache", "sort", "partition", "max", "min", "num", "total", "count", "eos", "bos", "pad", "unk",
    "mask", "sep", "cls", "end", "start", "stop", "special", "lock", "site", "host", "map", "object", "storage",
    "row", "hot", "short", "translate", "message", "ssh", "pub", "event", "data", "index", "lookup", "registry",
    "group", "query", "item", "entry", "dict", "hash", "feature", "track", "state", "local", "proxy", "react",
    "idempotency", "dedupe", "socket", "websocket", "i18n", "translation", "sync", "pagination", "cursor", "design", "color",
];

/// The words of a name in small letters: split at signs and where capitals begin.
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

/// Whether the telling word is the last of a name: `setPassword`, not `password.encode`.
pub(crate) fn ends_telling(name: &[u8]) -> bool {
    let words = words(name);
    words.len().checked_sub(1).is_some_and(|last| telling(&words, last).is_some())
}

/// Whether a name speaks of what makes a request unique: `clientRequestToken`, `ChangeToken`.
pub(crate) fn says_request(name: &[u8]) -> bool {
    #[rustfmt::skip]
    const REQUEST: &[&str] = &[
        "request", "change", "action", "client", "lifecycle", "idempotency", "idempotent", "creator", "caller",
        "correlation", "retry", "transaction",
    ];
    words(name).iter().any(|word| REQUEST.contains(&word.as_str()))
}

/// Whether a name says it in another language than code does.
pub(crate) fn is_foreign(name: &[u8]) -> bool {
    let name = name.to_ascii_lowercase();
    [b"kennwort".as_slice(), b"wachtwoord", b"contrasena", b"senha", b"passe"]
        .iter()
        .any(|word| name.ends_with(word))
}

/// What a name promises about its value.
pub(crate) fn promise(name: &[u8]) -> Option<Promise> {
    // Most names hold no telling word at all.
    const TELLING: &[&str] = &[
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
    if !TELLING.iter().any(|word| crate::bytes::contains(name, word.as_bytes())) {
        return None;
    }
    let words = words(name);
    let capitals = name.iter().all(|byte| !byte.is_ascii_lowercase());
    let told = (0..words.len()).rev().find_map(|n| telling(&words, n).map(|promise| (n, promise)));
    let (place, promise) = told?;
    // A public key, and whatever is made of one.
    if words.get(..place).unwrap_or_default().iter().any(|word| word == "public" || word == "publickey") {
        return None;
    }
    let after = words.get(place + 1..).unwrap_or_default();
    if after.iter().any(|word| OTHER.contains(&word.as_str())) {
        return None;
    }
    let known = after.iter().all(|word| AFTER.contains(&word.as_str()) || word.len() <= 1);
    // `PASS` also means something else: `CAM_PASS_ERR_RECOVER`.
    let short = words.get(place).is_some_and(|word| word == "pass" || word == "pw");
    (known || (!short && (capitals || after.len() <= 1))).then_some(promise)
}

fn telling(words: &[String], n: usize) -> Option<Promise> {
    let word = words.get(n)?.as_str();
    let previous = n.checked_sub(1).and_then(|n| words.get(n)).map_or("", String::as_str);
    // `data.password` and its kin are texts of a dialogue; `ssh_pass` is a password.
    let kept = matches!(previous, "ssh" | "host" | "proxy" | "registry" | "primary" | "storage" | "socket");
    // A token against forgery is public, what it is made with is not.
    let secret = word == "secret" && !matches!(previous, "public" | "publishable");
    if secret {
        return Some(Promise::Token);
    }
    if PUBLIC.contains(&previous) && !kept {
        return None;
    }
    let passe = word == "passe" && previous == "de";
    if passe || PASSWORD.iter().any(|end| word.ends_with(end)) || WHOLE.contains(&word) {
        return Some(Promise::Password);
    }
    if kept {
        return None;
    }
    if TOKEN.iter().any(|end| word.ends_with(end)) && !PUBLIC.iter().any(|start| word.starts_with(start)) {
        return Some(Promise::Token);
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
        return Some(Promise::Token);
    }
    let compound = word.strip_suffix("key").filter(|start| KEYS.contains(start));
    if compound.is_some() || (word == "key" && (KEYS.contains(&previous) || previous.ends_with("api"))) {
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
        return Some(if strong { Promise::Token } else { Promise::Key });
    }
    let public =
        matches!(word, "vkey" | "pkey" | "pubkey" | "turkey" | "monkey" | "hockey" | "jockey" | "whiskey");
    (word.ends_with("key") && !public && !PUBLIC.iter().any(|start| word.starts_with(start)))
        .then_some(Promise::AnyKey)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_apart() {
        for (name, expected) in [
            ("password", Some(Promise::Password)),
            ("DB_PASSWORD", Some(Promise::Password)),
            ("dbPassword", Some(Promise::Password)),
            ("POSTGRES_PASSWORD_PROD", Some(Promise::Password)),
            ("client-secret", Some(Promise::Token)),
            ("SECRET_KEY_BASE", Some(Promise::Token)),
            ("X-Api-Key", Some(Promise::Token)),
            ("apiKey", Some(Promise::Token)),
            ("OPENAIAPIKey", Some(Promise::Token)),
            ("aws_secret_access_key", Some(Promise::Token)),
            ("accountKey", Some(Promise::Key)),
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
            ("DB_PASS_PROD", Some(Promise::Password)),
        ] {
            assert_eq!(promise(name.as_bytes()), expected, "{name}");
        }
    }
}
