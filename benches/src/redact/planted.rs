//! Lines with a planted password or token: uniformly random values of every alphabet and length, in the places where people and programs
//! write them. Nothing here is made to please the rules: a value may be letters alone, may begin with a sign, may spell a word by chance.

use super::corpus::Chance;

const SMALL: &str = "abcdefghijklmnopqrstuvwxyz";
const LETTERS: &str = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
const SMALL_DIGITS: &str = "abcdefghijklmnopqrstuvwxyz0123456789";
const ALNUM: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
const SOME_SIGNS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789!@#$%^*-_=+.?~";
const ALL_SIGNS: &str =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";

/// What values are made of.
pub(crate) const ALPHABETS: &[(&str, &str)] = &[
    ("small letters", SMALL),
    ("letters", LETTERS),
    ("small letters and digits", SMALL_DIGITS),
    ("letters and digits", ALNUM),
    ("letters, digits, some signs", SOME_SIGNS),
    ("letters, digits, every sign", ALL_SIGNS),
];

/// A planted line.
pub(crate) struct Planted {
    /// Where it stands.
    pub(crate) place: &'static str,
    /// What the value is made of.
    pub(crate) alphabet: &'static str,
    pub(crate) text: String,
    /// The value as the text spells it.
    pub(crate) secret: String,
}

/// How a place spells a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spelled {
    /// As it is; a value with a blank or a quote in it would be spelled otherwise, so signs are few.
    Bare,
    /// In double quotes, `\` before `"` and `\`.
    Double,
    /// In single quotes: values that hold one are left out.
    Single,
    /// In a text of JSON inside a text of JSON.
    Twice,
    /// Percent-encoded.
    Percent,
    /// Markup.
    Markup,
    /// base64 of the value.
    Packed,
    /// base64 of `user:value`.
    Pair,
}

/// A place: its family, the text with `@` where the value stands and `~` where the name stands, and how it is spelled.
type Place = (&'static str, &'static str, Spelled);

#[rustfmt::skip]
const PASSWORDS: &[Place] = &[
    ("environment", "~=@\n", Spelled::Bare),
    ("environment", "export ~=@\n", Spelled::Bare),
    ("environment", "~=\"@\"\nNEXT=1\n", Spelled::Double),
    ("environment", "export ~='@'\n", Spelled::Single),
    ("environment", "ENV ~=@\n", Spelled::Bare),
    ("environment", "      - ~=@\n", Spelled::Bare),
    ("environment", "PGPASSWORD=@ psql -h db.internal -U app\n", Spelled::Bare),
    ("environment", "MYSQL_PWD=@ mysqldump orders\n", Spelled::Bare),
    ("json", "{\"user\": \"ada\", \"~\": \"@\"}\n", Spelled::Double),
    ("json", "  \"~\": \"@\",\n  \"port\": 5432\n", Spelled::Double),
    ("json", "{\"~\":\"@\",\"x\":1}", Spelled::Double),
    ("json", "\"body\": \"{\\\"~\\\":\\\"@\\\"}\"\n", Spelled::Twice),
    ("yaml", "db:\n  user: app\n  ~: @\n", Spelled::Bare),
    ("yaml", "~: \"@\"\n", Spelled::Double),
    ("yaml", "  ~: '@'\n  port: 1\n", Spelled::Single),
    ("yaml", "- name: ~\n  value: \"@\"\n", Spelled::Double),
    ("yaml", "~: >-\n  @\nnext: 1\n", Spelled::Bare),
    ("settings", "[db]\n~ = @\nport = 1\n", Spelled::Bare),
    ("settings", "~=@\nport=1\n", Spelled::Bare),
    ("settings", "spring.datasource.password=@\n", Spelled::Bare),
    ("settings", "~ = \"@\"\n", Spelled::Double),
    ("settings", "  ~ = \"@\"\n  port     = 5432\n", Spelled::Double),
    ("settings", "[pypi]\nusername = ada\npassword = @\n", Spelled::Bare),
    ("source", "const dbPassword = '@';\n", Spelled::Single),
    ("source", "    password = \"@\"\n", Spelled::Double),
    ("source", "connect(user=\"app\", password=\"@\", port=1)\n", Spelled::Double),
    ("source", "config['~'] = '@'\n", Spelled::Single),
    ("source", "var Password string = \"@\"\n", Spelled::Double),
    ("command", "tool --password @ --verbose\n", Spelled::Bare),
    ("command", "tool --password=@ --verbose\n", Spelled::Bare),
    ("command", "tool --db-password '@' x\n", Spelled::Single),
    ("command", "mysql -u root -p@ orders\n", Spelled::Bare),
    ("command", "mysqldump -uroot -p'@' orders\n", Spelled::Single),
    ("command", "curl -u ada:@ https://files.internal/x\n", Spelled::Bare),
    ("command", "curl --user 'ada:@' https://files.internal/x\n", Spelled::Single),
    ("command", "sshpass -p '@' ssh ada@host\n", Spelled::Single),
    ("command", "docker login -u ada -p @ registry.internal\n", Spelled::Bare),
    ("command", "redis-cli -h cache -a @ ping\n", Spelled::Bare),
    ("address", "postgres://app:@@db.internal:5432/orders\n", Spelled::Percent),
    ("address", "DATABASE_URL=mysql://app:@@db/orders\n", Spelled::Percent),
    ("address", "mongodb+srv://svc:@@cluster0.abcde.mongodb.net/x?w=1\n", Spelled::Percent),
    ("address", "redis://:@@cache:6379/0\n", Spelled::Percent),
    ("address", "amqp://svc:@@queue:5672/%2f\n", Spelled::Percent),
    ("address", "git clone https://ada:@@git.internal/x.git\n", Spelled::Percent),
    ("address", "jdbc:postgresql://db/orders?user=app&password=@&ssl=true\n", Spelled::Percent),
    ("address", "\"url\": \"https://ada:@@files.internal/\",\n", Spelled::Percent),
    ("connection", "Server=db;Database=x;User Id=app;Password=@;Timeout=5\n", Spelled::Bare),
    ("connection", "Data Source=db;Initial Catalog=x;uid=sa;pwd=@;\n", Spelled::Bare),
    ("connection", "\"Default\": \"Server=db;User Id=app;Password=@\"\n", Spelled::Bare),
    ("connection", "host=db user=app password=@ dbname=orders\n", Spelled::Bare),
    ("files", "db.internal:5432:orders:app:@\n", Spelled::Bare),
    ("files", "machine files.internal login ada password @\n", Spelled::Bare),
    ("files", "machine files.internal\n  login ada\n  password @\n", Spelled::Bare),
    ("files", "ALTER USER app WITH PASSWORD '@';\n", Spelled::Single),
    ("files", "CREATE USER 'app'@@'%' IDENTIFIED BY '@';\n", Spelled::Single),
    ("files", "requirepass @\n", Spelled::Bare),
    ("files", "apiVersion: v1\nkind: Secret\nstringData:\n  ~: @\n", Spelled::Bare),
    ("files", "apiVersion: v1\nkind: Secret\ndata:\n  ~: @\n", Spelled::Packed),
    ("files", "{\"auths\": {\"registry.internal\": {\"auth\": \"@\"}}}\n", Spelled::Pair),
    ("markup", "<password>@</password>\n", Spelled::Markup),
    ("markup", "<add key=\"DbPassword\" value=\"@\"/>\n", Spelled::Markup),
    ("markup", "<property name=\"password\" value=\"@\"/>\n", Spelled::Markup),
    ("basic", "Authorization: Basic @\n", Spelled::Pair),
    ("basic", "curl -H \"Authorization: Basic @\" https://h/\n", Spelled::Pair),
];

#[rustfmt::skip]
const TOKENS: &[Place] = &[
    ("bearer", "Authorization: Bearer @\n", Spelled::Bare),
    ("bearer", "curl -H \"Authorization: Bearer @\" https://h/\n", Spelled::Bare),
    ("bearer", "{\"authorization\": \"Bearer @\"}\n", Spelled::Bare),
    ("headers", "X-Api-Key: @\n", Spelled::Bare),
    ("headers", "curl -H 'X-Auth-Token: @' https://h/\n", Spelled::Bare),
    ("headers", "Authorization: token @\n", Spelled::Bare),
    ("headers", "Cookie: theme=dark; session=@; lang=en\n", Spelled::Bare),
    ("headers", "Set-Cookie: sessionid=@; Path=/; HttpOnly\n", Spelled::Bare),
    ("tokens", "API_KEY=@\n", Spelled::Bare),
    ("tokens", "export AUTH_TOKEN=\"@\"\n", Spelled::Bare),
    ("tokens", "\"api_key\": \"@\",\n", Spelled::Bare),
    ("tokens", "client_secret: @\n", Spelled::Bare),
    ("tokens", "  \"clientSecret\": \"@\",\n", Spelled::Bare),
    ("tokens", "secret_key = \"@\"\n", Spelled::Bare),
    ("tokens", "tool --token=@ run\n", Spelled::Bare),
    ("tokens", "tool --token @ run\n", Spelled::Bare),
    ("tokens", "//registry.internal/:_authToken=@\n", Spelled::Bare),
    ("tokens", "users:\n- name: ada\n  user:\n    token: @\n", Spelled::Bare),
    ("tokens", "https://h/hook?access_token=@&x=1\n", Spelled::Bare),
    ("tokens", "aws_secret_access_key = @\n", Spelled::Bare),
    ("tokens", "const apiKey = \"@\";\n", Spelled::Bare),
    ("tokens", "client-key-data: @\n", Spelled::Packed),
];

#[rustfmt::skip]
const NAMES: &[&str] = &[
    "password", "PASSWORD", "Password", "db_password", "DB_PASSWORD", "dbPassword", "db_pass", "DB_PASS", "SMTP_PASS", "passwd", "pwd",
    "MYSQL_ROOT_PASSWORD", "POSTGRES_PASSWORD", "admin_password", "userPassword", "redis-password", "MAIL_PASSWORD", "passphrase",
];

/// Planted passwords: 8 to 40 characters.
pub(crate) fn passwords(chance: &mut Chance, each: usize) -> Vec<Planted> {
    planted(chance, PASSWORDS, ALPHABETS, each, 8, 40)
}

/// Planted tokens: 16 to 64 letters, or letters and digits, with the signs that base64 and its kin have.
pub(crate) fn tokens(chance: &mut Chance, each: usize) -> Vec<Planted> {
    let alphabets = [
        ("token, letters", LETTERS),
        ("token, small letters and digits", SMALL_DIGITS),
        ("token, letters and digits", ALNUM),
        ("token, hex", "0123456789abcdef"),
        ("token, base64", "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"),
    ];
    planted(chance, TOKENS, &alphabets, each, 16, 64)
}

fn planted(
    chance: &mut Chance,
    places: &[Place],
    alphabets: &[(&'static str, &str)],
    each: usize,
    least: usize,
    most: usize,
) -> Vec<Planted> {
    let mut all = Vec::new();
    for &(place, template, spelled) in places {
        for &(alphabet, letters) in alphabets {
            for _ in 0..each {
                let length = least + chance.below(most - least + 1);
                let mut value = chance.letters(letters, length);
                while !fits(&value, spelled) {
                    value =
                        chance.letters(if spelled == Spelled::Bare { SOME_SIGNS } else { letters }, length);
                }
                let secret = spell(&value, spelled);
                let name = NAMES[chance.below(NAMES.len())];
                let text = template.replace("@@", "\u{1}@").replace('~', name).replacen('@', "\u{2}", 1);
                // The first `@` that is none of an address is where the value stands.
                let text = match template.contains("@@") {
                    false => text.replace('\u{2}', &secret),
                    true if template.starts_with("CREATE") => text
                        .replace('\u{1}', "")
                        .replace('\u{2}', "@")
                        .replacen("BY '@'", &format!("BY '{secret}'"), 1),
                    true => text.replace("\u{1}\u{2}", &format!("{secret}@")),
                };
                all.push(Planted { place, alphabet, text, secret });
            }
        }
    }
    all
}

/// Whether a person could have written the value so: nothing that the place itself would take for its end or for something else.
fn fits(value: &str, spelled: Spelled) -> bool {
    match spelled {
        Spelled::Bare => {
            !value.contains(|c: char| "\"'`\\;&|<>(){}[], ".contains(c))
                && !value.starts_with(['#', '!', '@', '%', '*', '-', '?', '$', '~', '=', ':'])
                && !value.contains('$')
        }
        Spelled::Single => !value.contains(['\'', '\\']),
        Spelled::Double | Spelled::Twice => !value.contains('$') || !value.contains('{'),
        _ => true,
    }
}

fn spell(value: &str, spelled: Spelled) -> String {
    let json = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
    match spelled {
        Spelled::Bare | Spelled::Single => value.to_owned(),
        Spelled::Double => json(value),
        Spelled::Twice => json(&json(value)),
        Spelled::Percent => value
            .bytes()
            .map(|byte| match byte {
                byte if byte.is_ascii_alphanumeric() || b"-_.~!*".contains(&byte) => {
                    char::from(byte).to_string()
                }
                byte => format!("%{byte:02X}"),
            })
            .collect(),
        Spelled::Markup => value
            .replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;")
            .replace('"', "&quot;")
            .replace('\'', "&apos;"),
        Spelled::Packed => super::corpus::pack(value.as_bytes()),
        Spelled::Pair => super::corpus::pack(format!("ada:{value}").as_bytes()),
    }
}

/// Whether nothing of the secret that says anything is left: no piece of six characters.
pub(crate) fn is_gone(clean: &str, secret: &str) -> bool {
    let letters: Vec<char> = secret.chars().collect();
    !letters.windows(letters.len().min(6)).any(|piece| clean.contains(&piece.iter().collect::<String>()))
}
