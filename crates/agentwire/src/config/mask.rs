//! Hides secrets in the text of errors, and in the lines of a configuration file that they show.

/// Keys whose values, also those of their tables, are secrets.
const SECRET: &[&str] = &["headers", "api_key", "command", "env"];

/// The most lines of a list that are looked at.
const MAX_LIST: usize = 1000;

/// Parts of names that announce a secret.
const SECRET_PARTS: &[&str] = &["password", "passwd", "secret", "token", "authorization", "pepper"];

/// Keys of a reference to a secret: `{ env = "NAME" }`, `{ file = "…" }`.
const REFERENCES: &[&str] = &["env", "file", "header"];

/// The name of the table that a line belongs to: the last `[…]` before it.
fn section(before: &str) -> &str {
    let header = before.lines().rev().map(str::trim).find(|line| line.starts_with('['));
    header.map_or("", |line| line.trim_start_matches('[').split(']').next().unwrap_or_default())
}

/// The start of a line: the names around its values.
pub(super) struct Place<'t> {
    section: &'t str,
    /// The key of a list that began on an earlier line.
    key: String,
    /// True in a text of several lines.
    is_in_text: bool,
}

impl<'t> Place<'t> {
    /// The place behind `before`.
    pub(super) fn behind(before: &'t str) -> Self {
        let quotes = before.matches("\"\"\"").count().max(before.matches("'''").count());
        Self { section: section(before), key: open_list(before), is_in_text: quotes % 2 == 1 }
    }
}

/// The key of the last list that is not closed; empty if there is none.
fn open_list(before: &str) -> String {
    let mut closed = 0_usize;
    for line in before.lines().rev().take(MAX_LIST) {
        for letter in line.chars().rev() {
            match letter {
                ']' => closed += 1,
                '[' if closed == 0 => {
                    let key = line.split('[').next().unwrap_or_default().trim().trim_end_matches('=').trim();
                    return key.rsplit(['{', ',']).next().unwrap_or_default().trim().to_owned();
                }
                '[' => closed -= 1,
                _ => {}
            }
        }
    }
    String::new()
}

fn is_secret(names: &[String]) -> bool {
    let parts: Vec<&str> = names.iter().flat_map(|name| name.split('.')).map(str::trim).collect();
    let Some((own, tables)) = parts.split_last() else { return false };
    let says_so = |part: &str| SECRET_PARTS.iter().any(|word| part.to_lowercase().contains(word));
    if REFERENCES.contains(own) && tables.last().is_none_or(|table| *table != "headers") {
        return false;
    }
    tables.iter().any(|part| SECRET.contains(part) || says_so(part))
        || (*own != "env" && SECRET.contains(own))
        // The key of a certificate is a file.
        || (*own == "key" && !tables.contains(&"tls"))
        || says_so(own)
}

/// True for a text with members, one of them a password, such as `host=a password=b` of PostgreSQL.
fn has_password(text: &str) -> bool {
    let text = text.to_lowercase();
    !text.contains("://") && text.contains("password") && text.contains('=')
}

/// A line of the file in which each character of a secret is a star; columns stay the same.
pub(super) fn line(line: &str, place: &Place<'_>) -> Vec<char> {
    let letters: Vec<char> = line.chars().collect();
    if place.is_in_text {
        return vec!['*'; letters.len()];
    }
    let section = place.section;
    let mut shown = letters.clone();
    let mut tables: Vec<String> = if section.is_empty() { Vec::new() } else { vec![section.to_owned()] };
    let (mut key, mut word, mut at) = (place.key.clone(), String::new(), 0);
    while at < letters.len() {
        match letters[at] {
            quote @ ('"' | '\'') => {
                let start = at + 1;
                let mut end = start;
                while end < letters.len() && letters[end] != quote {
                    end += if letters[end] == '\\' && quote == '"' { 2 } else { 1 };
                }
                let end = end.min(letters.len());
                let text: String = letters[start.min(end)..end].iter().collect();
                let is_key = letters.iter().skip(end + 1).find(|letter| **letter != ' ') == Some(&'=');
                if is_key {
                    word.clone_from(&text);
                } else {
                    let names: Vec<String> = tables.iter().cloned().chain([key.clone()]).collect();
                    let is_hidden = is_secret(&names) || has_password(&text);
                    let masked: String = match is_hidden {
                        true => "*".repeat(text.chars().count()),
                        false if key.to_lowercase().ends_with("url") => bare(&urls(&text)),
                        false => urls(&text),
                    };
                    for (place, letter) in shown[start.min(end)..end].iter_mut().zip(masked.chars()) {
                        *place = letter;
                    }
                }
                // Behind a text without its end, keys and values cannot be told apart.
                let is_odd = |next: &char| !matches!(next, ' ' | '\t' | ',' | ']' | '}' | '=' | '#' | '.');
                if letters.get(end + 1).is_some_and(is_odd) {
                    shown[end + 1..].fill('*');
                    return shown;
                }
                at = end;
            }
            '=' => key = std::mem::take(&mut word),
            '{' => tables.push(key.clone()),
            '}' => _ = tables.pop(),
            '#' => break,
            letter if letter.is_alphanumeric() || "_-.".contains(letter) => word.push(letter),
            ',' => word.clear(),
            _ => {}
        }
        at += 1;
    }
    shown
}

/// The end of a value that an error shows: a quote, the end of its colour, or the end of the line.
fn is_end(letter: &char) -> bool {
    matches!(letter, '"' | '\'' | '`' | '<' | '>' | '\n' | '\x1b')
}

/// The text with stars in place of the user and the query of each URL, and of the password of `user:password@host`; of
/// the same length.
pub(crate) fn urls(text: &str) -> String {
    let mut shown: Vec<char> = text.chars().collect();
    let mut from = 0;
    while let Some(at) = (from..shown.len()).find(|at| shown[*at..].starts_with(&[':', '/', '/'])) {
        let start = at + 3;
        // A text that is no URL may have spaces in it.
        let end = shown[start..].iter().position(is_end).map_or(shown.len(), |length| start + length);
        // A password may have `/` and `@` in it, although it should not.
        if let Some(user) = shown[start..end].iter().rposition(|letter| *letter == '@')
            && !shown[start..start + user].ends_with(&[':', '*', '*', '*'])
        {
            shown[start..start + user].fill('*');
        }
        if let Some(query) = shown[start..end].iter().position(|letter| matches!(letter, '?' | '#')) {
            shown[start + query + 1..end].fill('*');
        }
        from = end;
    }
    passwords(&mut shown);
    shown.into_iter().collect()
}

/// The text with stars in place of user and query, whether it is a URL or should be one.
fn bare(text: &str) -> String {
    let stars = |part: &str| "*".repeat(part.chars().count());
    let shown = match text.rsplit_once('@').filter(|_| !text.contains("://")) {
        Some((user, rest)) => format!("{}@{rest}", stars(user)),
        None => text.to_owned(),
    };
    match shown.split_once('?') {
        Some((start, query)) => format!("{start}?{}", stars(query)),
        None => shown,
    }
}

/// Hides the password of each `user:password@host` without a scheme.
fn passwords(shown: &mut [char]) {
    for value in shown.split_mut(is_end) {
        let Some(at) = value.iter().rposition(|letter| *letter == '@') else { continue };
        // Words before the value belong to the message: `error: cannot read a:b@c`.
        let is_password = |place: &usize| {
            value.get(place + 1).is_some_and(|next| *next != ' ')
                && !value[*place..].starts_with(&[':', '/', '/'])
        };
        if let Some(colon) = (0..at).filter(|place| value[*place] == ':').find(is_password) {
            value[colon + 1..at].fill('*');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, section: &str) -> String {
        line(text, &Place::behind(&format!("[{section}]\n"))).into_iter().collect()
    }

    #[test]
    fn secrets_of_broken_lines_and_long_lists_are_stars() {
        for (before, text, expected) in [
            (
                "",
                r#"url = "http://a/x, headers = { "x-a" = "abc" }"#,
                r#"url = "http://a/x, headers = { "**************"#,
            ),
            ("", r#"url = "http//ada:pass@host/x?key=1""#, r#"url = "**************@host/x?*****""#),
            ("command = [\n  \"run\",\n", r#"  "--key=abc" "x","#, r#"  "*********" "*","#),
            ("command = [\"a\"]\nargs = [\n", r#"  "b""#, r#"  "b""#),
            ("x = { command = [\n", r#"  "abc""#, r#"  "***""#),
            ("pepper = \"\"\"\n", "abc", "***"),
            ("a = \"\"\"\nb\n\"\"\"\n", r#"c = "d""#, r#"c = "d""#),
        ] {
            let shown: String = line(text, &Place::behind(before)).into_iter().collect();
            assert_eq!(shown, expected, "{before}");
        }
    }

    #[test]
    fn secrets_are_stars_and_the_rest_stays() {
        for (text, section, expected) in [
            (r#"listen = "127.0.0.1:7117""#, "", r#"listen = "127.0.0.1:7117""#),
            (r#"url = "https://ada:pass@host/x?key=1""#, "", r#"url = "https://********@host/x?*****""#),
            (
                r#"headers = { x-a = "abc", "x-b" = { env = "NAME" } }, kind = "b""#,
                "",
                r#"headers = { x-a = "***", "x-b" = { env = "NAME" } }, kind = "b""#,
            ),
            (r#"x-a = "abc""#, "agents.a.upstream.headers", r#"x-a = "***""#),
            (r#"upstream.headers.x-a = 'abc'"#, "", r#"upstream.headers.x-a = '***'"#),
            (r#"command = ["run", "--key", "abc"]"#, "", r#"command = ["***", "*****", "***"]"#),
            (r#"env = { KEY = "abc" }"#, "", r#"env = { KEY = "***" }"#),
            (r#"pepper = "abc" # old: "x""#, "auth.keys", r#"pepper = "***" # old: "x""#),
            (r#"pepper = { env = "NAME" }"#, "auth.keys", r#"pepper = { env = "NAME" }"#),
            (
                r#"secret = { header = "x-secret", env = "NAME" }"#,
                "auth.proxy",
                r#"secret = { header = "x-secret", env = "NAME" }"#,
            ),
            (r#"store = "postgres:password = a""#, "", r#"store = "*********************""#),
            (r#"headers = { x-a = "abc"#, "", r#"headers = { x-a = "***"#),
            (r#"store = "ada:pass@host/x""#, "", r#"store = "ada:****@host/x""#),
            (r#"store = "postgres:ada:pa:s@s@host""#, "", r#"store = "postgres:**********@host""#),
            (r#"url = "https://ada:***@host/x""#, "", r#"url = "https://ada:***@host/x""#),
        ] {
            assert_eq!(shown(text, section), expected);
        }
    }

    #[test]
    fn the_section_is_the_last_table() {
        assert_eq!(section("a = 1\n[auth.keys]\nb = 2\n"), "auth.keys");
        assert_eq!(section("[[auth.jwt]]\n"), "auth.jwt");
        assert_eq!(section("a = 1\n"), "");
    }

    proptest::proptest! {
        #[test]
        fn lines_keep_their_length(text in ".{0,200}") {
            proptest::prop_assert_eq!(line(&text, &Place::behind("[headers]")).len(), text.chars().count());
            proptest::prop_assert_eq!(urls(&text).chars().count(), text.chars().count());
        }
    }
}
