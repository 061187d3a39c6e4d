//! Parsers of texts, shared by the configuration file and the command line.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use agentwire_core::format::{FORMATS, Format};
use agentwire_gateway::settings::Rate;
use ipnet::IpNet;
use reqwest::Url;

use super::{ValueError, did_you_mean};
use crate::config::mask;

/// Upper bound of durations, because adding longer ones to a clock could overflow it.
const MAX_DAYS: u64 = 36_500;

/// Parses a rate such as `120/1m`.
pub(super) fn rate(text: &str) -> Result<Rate, ValueError> {
    let example = "write it like `120/1m`";
    let Some((count, period)) = text.split_once('/') else {
        return Err(ValueError::new("it is no rate").hint(example));
    };
    let Some(count) = count.parse::<u32>().ok().filter(|count| *count > 0) else {
        return Err(ValueError::new("it does not begin with a whole number above zero").hint(example));
    };
    match duration(period)? {
        Duration::ZERO => Err(ValueError::new("its period must be more than nothing").hint(example)),
        period => Ok(Rate::new(count, period)),
    }
}

/// Parses a name that the gateway answers to.
pub(super) fn host(text: &str) -> Result<String, ValueError> {
    let name = text.strip_prefix("*.").unwrap_or(text);
    let (name, port) = match name.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) if address.parse::<std::net::Ipv6Addr>().is_ok() => {
            ("v6", port.strip_prefix(':'))
        }
        Some(_) => ("", None),
        None => name.split_once(':').map_or((name, None), |(name, port)| (name, Some(port))),
    };
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || "-._".contains(letter);
    let is_valid = !name.is_empty() && name.chars().all(is_name);
    let has_port = port.is_none_or(|port| port.parse::<u16>().is_ok());
    if text == "*" || (is_valid && has_port) {
        return Ok(text.to_ascii_lowercase());
    }
    Err(ValueError::new("it is no host name")
        .hint("write the name alone, as in `agents.example.com`, without a scheme"))
}

/// Parses a duration such as `200ms`, `30s`, `5m`, `24h` or `90d`.
pub(crate) fn duration(text: &str) -> Result<Duration, ValueError> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = (&text[..digits], text[digits..].trim_start());
    let units = "units: ms, s, m, h, d";
    if number.is_empty() {
        return Err(
            ValueError::new("it does not begin with a whole number").hint("write it like `30s` or `200ms`")
        );
    }
    let millis: u64 = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60 * 1000,
        "h" => 3600 * 1000,
        "d" => 24 * 3600 * 1000,
        "" => {
            return Err(
                ValueError::new("the unit is missing").hint(format!("did you mean `{number}s`? ({units})"))
            );
        }
        unit if unit.starts_with('.') => {
            return Err(ValueError::new("it is not a whole number")
                .hint("use a smaller unit, as in `1500ms` for 1.5 s"));
        }
        unit => {
            let suggested = match unit.to_ascii_lowercase().as_str() {
                "milli" | "millis" | "millisecond" | "milliseconds" | "msec" | "msecs" => Some("ms"),
                "sec" | "secs" | "second" | "seconds" => Some("s"),
                "min" | "mins" | "minute" | "minutes" => Some("m"),
                "hr" | "hrs" | "hour" | "hours" => Some("h"),
                "day" | "days" => Some("d"),
                lower => ["ms", "s", "m", "h", "d"].into_iter().find(|unit| *unit == lower),
            };
            return Err(ValueError::new(format!("unknown unit `{unit}`")).hint(match suggested {
                Some(suggested) => format!("did you mean `{number}{suggested}`? ({units})"),
                None => units.to_owned(),
            }));
        }
    };
    let whole = number.parse::<u64>().ok().and_then(|number| number.checked_mul(millis));
    match whole {
        Some(whole) if whole <= MAX_DAYS * 24 * 3600 * 1000 => Ok(Duration::from_millis(whole)),
        _ => Err(ValueError::new(format!("it is longer than {MAX_DAYS} days"))),
    }
}

/// A duration in the largest unit that divides it.
pub(super) fn show_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    let units = [(24 * 3_600_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s")];
    // `24h` reads better than `1d`, `90d` better than `2160h`.
    let unit = units
        .into_iter()
        .find(|(factor, unit)| millis.is_multiple_of(*factor) && (millis > *factor || *unit != "d"));
    match (millis, unit) {
        (0, _) => "0s".into(),
        (_, Some((factor, unit))) => format!("{}{unit}", millis / factor),
        (millis, None) => format!("{millis}ms"),
    }
}

/// Parses an address to listen on.
pub(crate) fn address(text: &str) -> Result<SocketAddr, ValueError> {
    // The only supported host name; it needs no resolver.
    let resolved = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    let port = text.strip_prefix(':').unwrap_or(text);
    resolved.as_deref().unwrap_or(text).parse().map_err(|_| {
        let fault = ValueError::new("that is no IP address with a port");
        match port.parse::<u16>() {
            Ok(port) => {
                fault.hint(format!("did you mean `127.0.0.1:{port}`? (`0.0.0.0:{port}` for every network)"))
            }
            Err(_) if text.parse::<std::net::IpAddr>().is_ok() => {
                let address = SocketAddr::new(text.parse().unwrap_or([127, 0, 0, 1].into()), 7117);
                fault.hint(format!("did you mean `{address}`?"))
            }
            Err(_) => fault.hint("write it like `127.0.0.1:7117` or `[::1]:7117`"),
        }
    })
}

/// Parses a network in CIDR notation; an address is a network of one.
pub(super) fn network(text: &str) -> Result<IpNet, ValueError> {
    let parsed = text.parse::<IpNet>().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
    match parsed {
        Some(network) if network.network() != network.addr() => {
            Err(ValueError::new("the address has bits beyond the prefix")
                .hint(format!("did you mean `{}`?", network.trunc())))
        }
        Some(network) => Ok(network),
        None => Err(ValueError::new("that is no network in CIDR notation")
            .hint("write it like `10.0.0.0/8` or `fd00::/8`")),
    }
}

/// Checks the address of a store.
pub(crate) fn store(text: &str) -> Result<String, ValueError> {
    let allowed = "allowed: `sqlite:PATH`, `postgres://…`, `env:NAME`, `memory:`";
    match text {
        "memory:" => Ok(text.to_owned()),
        "sqlite:" | "sqlite" => {
            Err(ValueError::new("the path is missing").hint("did you mean `sqlite:agentwire.db`?"))
        }
        _ if text.strip_prefix("sqlite:").is_some_and(|path| !path.contains('\0')) => Ok(text.to_owned()),
        "memory" => Err(ValueError::new("that is no address of a store").hint("did you mean `memory:`?")),
        _ if text.starts_with("postgres://") || text.starts_with("postgresql://") => Ok(text.to_owned()),
        _ if text.starts_with("postgres:") || text.starts_with("postgresql:") => {
            Err(ValueError::new("that is no address of a PostgreSQL server")
                .hint("write it like `postgres://user@host/database`"))
        }
        _ if text
            .strip_prefix("env:")
            .is_some_and(|name| !name.is_empty() && !name.contains(['=', '\0'])) =>
        {
            Ok(text.to_owned())
        }
        _ if !text.contains(':') && !text.is_empty() => Err(ValueError::new("that is no address of a store")
            .hint(format!("did you mean `sqlite:{text}`? ({allowed})"))),
        _ => Err(ValueError::new("that is no address of a store").hint(allowed)),
    }
}

/// Checks an HTTP URL and returns it unchanged: it may contain placeholders.
pub(crate) fn url(text: &str) -> Result<String, ValueError> {
    parse_http_url(text).map(|_| text.to_owned())
}

fn parse_http_url(text: &str) -> Result<Url, ValueError> {
    match Url::parse(text) {
        Ok(url) if matches!(url.scheme(), "http" | "https") => Ok(url),
        // By the standard, `localhost:2024` is a URL with the scheme `localhost`.
        Ok(url) if !text.contains("://") => {
            Err(ValueError::new(format!("`{}` is no scheme that can be spoken", url.scheme()))
                .hint(format!("did you mean `{}`?", mask::urls(&format!("http://{text}")))))
        }
        Ok(url) => Err(ValueError::new(format!("`{}` is no scheme that can be spoken", url.scheme()))
            .hint("allowed: http, https")),
        Err(error) => {
            let fault = ValueError::new(error.to_string());
            let is_missing_scheme =
                Url::parse(&format!("http://{text}")).is_ok() && !text.contains("://") && !text.is_empty();
            match is_missing_scheme {
                true => Err(fault.hint(format!("did you mean `{}`?", mask::urls(&format!("http://{text}"))))),
                false => Err(fault.hint("write it like `http://127.0.0.1:8000`")),
            }
        }
    }
}

pub(super) fn header_name(text: &str) -> Result<String, ValueError> {
    match reqwest::header::HeaderName::from_bytes(text.as_bytes()) {
        Ok(name) => Ok(name.as_str().to_owned()),
        Err(_) => {
            Err(ValueError::new("that is no name of a header")
                .hint("letters, digits and `-`, as in `x-user-id`"))
        }
    }
}

pub(crate) fn origin(text: &str) -> Result<String, ValueError> {
    if text == "*" {
        return Ok(text.to_owned());
    }
    let url = parse_http_url(text)?;
    let origin = url.origin().ascii_serialization();
    if url.path() == "/"
        && url.query().is_none()
        && url.fragment().is_none()
        && url.username().is_empty()
        && !text.ends_with('/')
    {
        return Ok(origin);
    }
    Err(ValueError::new("an origin has no path").hint(format!("did you mean `{origin}`?")))
}

pub(super) fn route(text: &str) -> Result<String, ValueError> {
    let Some(rest) = text.strip_prefix('/') else {
        return Err(ValueError::new("it must begin with `/`").hint(format!("did you mean `/{text}`?")));
    };
    if rest.is_empty() {
        return Ok(text.to_owned());
    }
    let mut parameters = Vec::new();
    for segment in rest.strip_suffix('/').unwrap_or(rest).split('/') {
        let parameter = segment.strip_prefix('{').and_then(|segment| segment.strip_suffix('}'));
        let word =
            |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        match parameter {
            Some(name) if !word(name) => {
                return Err(
                    ValueError::new(format!("`{{{name}}}` is no parameter")).hint("write it like `{user}`")
                );
            }
            Some(name) if parameters.contains(&name) => {
                return Err(ValueError::new(format!("the parameter `{name}` occurs twice")));
            }
            Some(name) => parameters.push(name),
            None if segment.is_empty() => return Err(ValueError::new("it has an empty segment")),
            None if matches!(segment, "." | "..") => {
                return Err(ValueError::new(format!("`{segment}` is no segment of a route")));
            }
            None if segment.contains(['{', '}']) => {
                return Err(ValueError::new(format!("`{segment}` is neither a word nor a parameter"))
                    .hint("a parameter is a whole segment, as in `/users/{user}/chat`"));
            }
            None if !segment
                .bytes()
                .all(|c| c.is_ascii_alphanumeric() || b"-._~!$&'()+,;=:@%".contains(&c)) =>
            {
                return Err(ValueError::new(format!("`{segment}` has characters that a path cannot have")));
            }
            None => {}
        }
    }
    Ok(text.to_owned())
}

/// Finds a format with a reader.
pub(crate) fn format(text: &str) -> Result<&'static Format, ValueError> {
    let (name, profile) = text.split_once('@').unwrap_or((text, ""));
    let readable: Vec<_> =
        FORMATS.iter().filter(|format| format.reader.is_some()).map(|format| format.name).collect();
    match Format::find(name) {
        Some(format) if format.reader.is_none() => {
            Err(ValueError::new("agentwire can write it, but not read it")
                .hint(format!("formats: {}", readable.join(", "))))
        }
        Some(format) if !profile.is_empty() && format.profile(profile).is_none() => {
            let known: Vec<_> = format.profiles.iter().map(|profile| profile.name).collect();
            Err(ValueError::new(format!("unknown profile `{profile}`"))
                .hint(did_you_mean(profile, &known, "profiles")))
        }
        Some(format) => Ok(format),
        None => {
            Err(ValueError::new("there is no such format").hint(did_you_mean(name, &readable, "formats")))
        }
    }
}

/// Checks a log level, or levels per target.
pub(crate) fn level(text: &str) -> Result<String, ValueError> {
    const LEVELS: &[&str] = &["off", "error", "warn", "info", "debug", "trace"];
    for directive in text.split(',') {
        let (target, level) = directive.rsplit_once('=').unwrap_or(("x", directive));
        if !LEVELS.contains(&level.trim().to_ascii_lowercase().as_str()) || target.trim().is_empty() {
            return Err(
                ValueError::new(format!("`{level}` is no level")).hint(did_you_mean(level, LEVELS, "levels"))
            );
        }
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cli;

    #[test]
    fn durations() {
        let read = |text| duration(text).map_err(|fault| fault.to_string());
        assert_eq!(read("200ms"), Ok(Duration::from_millis(200)));
        assert_eq!(read("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(read("5m"), Ok(Duration::from_secs(300)));
        assert_eq!(read("24h"), Ok(Duration::from_secs(86_400)));
        assert_eq!(read("90d"), Ok(Duration::from_secs(90 * 86_400)));
        assert_eq!(read("0s"), Ok(Duration::ZERO));
        let refused = [
            "",
            "s",
            "30",
            "30x",
            "30sec",
            "5 minutes",
            "1.5s",
            "-3s",
            "+3s",
            "３s",
            "30S",
            "36501d",
            "never",
            "99999999999999999999s",
            "18446744073709551615d",
        ];
        let refused: Vec<_> =
            refused.map(|text| format!("{text}: {}", read(text).expect_err("it is no duration"))).into();
        insta::assert_snapshot!(refused.join("\n"));
    }

    proptest! {
        #[test]
        fn durations_round_trip(millis in 0u64..MAX_DAYS * 86_400_000) {
            let value = Duration::from_millis(millis);
            prop_assert_eq!(duration(&show_duration(value)), Ok(value));
        }

        #[test]
        fn parsers_never_panic(text in ".{0,40}") {
            let _ = (duration(&text), address(&text), store(&text), url(&text), origin(&text));
            let _ = (route(&text), format(&text), level(&text), header_name(&text), cli::size(&text));
        }
    }

    #[test]
    fn suggests_the_likely_address() {
        let read = |text| address(text).map_err(|fault| fault.hint.unwrap_or_default());
        assert_eq!(read("localhost:80"), Ok(([127, 0, 0, 1], 80).into()));
        assert_eq!(
            read(":7117").unwrap_err(),
            "did you mean `127.0.0.1:7117`? (`0.0.0.0:7117` for every network)"
        );
        assert_eq!(read("::1").unwrap_err(), "did you mean `[::1]:7117`?");
        assert_eq!(read("example.org:80").unwrap_err(), "write it like `127.0.0.1:7117` or `[::1]:7117`");
    }
}
