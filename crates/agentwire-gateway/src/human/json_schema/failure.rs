//! Why a value does not match a schema, and where.

use std::fmt::{self, Display, Formatter};

use serde_json::Value;

/// A mismatch. Written only if it is shown: branches of `anyOf` that are not met make none.
#[derive(Debug)]
pub(in crate::human) struct Failure<'v> {
    /// The way to the value, the last token first.
    path: Vec<Token<'v>>,
    value: &'v Value,
    cause: Cause<'v>,
}

#[derive(Debug)]
pub(super) enum Token<'v> {
    Name(&'v str),
    Place(usize),
}

#[derive(Debug)]
pub(super) enum Cause<'v> {
    TooLong,
    Backtracks,
    Never,
    Type(&'v Value),
    Enum(&'v [Value]),
    Const(&'v Value),
    Below {
        bound: &'v Value,
        is_equal: bool,
    },
    Above {
        bound: &'v Value,
        is_equal: bool,
    },
    MultipleOf(&'v Value),
    TooShort(u64),
    TooLongText(u64),
    TooFewElements(u64),
    TooManyElements(u64),
    TooFewMembers(u64),
    TooManyMembers(u64),
    Duplicates,
    Pattern(&'v str),
    Format(&'v str),
    Content(&'v Value, &'static str),
    Missing(&'v Value),
    Additional(Vec<&'v str>),
    /// Elements after so many.
    AdditionalItems(usize),
    Unevaluated(Vec<&'v str>),
    UnevaluatedItems(Vec<&'v Value>),
    Contains,
    ContainsMore(u64),
    Not(&'v Value),
    /// None of the schemas of a keyword is met.
    NoneOf(&'static str),
    /// More than one schema of `oneOf` is met.
    Several,
    /// The name of a member does not match.
    Name(String),
}

impl<'v> Failure<'v> {
    pub(super) fn new(value: &'v Value, cause: Cause<'v>) -> Result<(), Box<Self>> {
        Err(Box::new(Self { path: Vec::new(), value, cause }))
    }

    pub(super) fn at(mut self: Box<Self>, token: Token<'v>) -> Box<Self> {
        self.path.push(token);
        self
    }

    /// The check gave up, so the value may match.
    pub(super) fn is_unknown(&self) -> bool {
        matches!(self.cause, Cause::TooLong | Cause::Backtracks)
    }

    /// The cause as one of the name that was checked.
    pub(super) fn of_name(self) -> Cause<'static> {
        match self.cause {
            Cause::TooLong => Cause::TooLong,
            Cause::Backtracks => Cause::Backtracks,
            _ => Cause::Name(self.to_string()),
        }
    }

    /// A JSON Pointer to the value.
    pub(in crate::human) fn place(&self) -> String {
        self.path.iter().rev().fold(String::new(), |path, token| match token {
            Token::Name(name) => path + "/" + &name.replace('~', "~0").replace('/', "~1"),
            Token::Place(at) => format!("{path}/{at}"),
        })
    }
}

impl Display for Failure<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let value = self.value;
        let plural = |count: u64| if count == 1 { "" } else { "s" };
        let members = |count: u64| if count == 1 { "property" } else { "properties" };
        match &self.cause {
            Cause::TooLong => f.write_str("its schema takes too long to check"),
            Cause::Backtracks => f.write_str("a pattern takes too long to match"),
            Cause::Never => write!(f, "False schema does not allow {value}"),
            Cause::Type(Value::Array(names)) if names.len() > 1 => {
                let mut names: Vec<&str> = names.iter().filter_map(Value::as_str).collect();
                names.sort_unstable();
                write!(f, "{value} is not of types \"{}\"", names.join("\", \""))
            }
            Cause::Type(Value::Array(names)) => {
                write!(f, "{value} is not of type {}", names.first().unwrap_or(&Value::Null))
            }
            Cause::Type(name) => write!(f, "{value} is not of type {name}"),
            Cause::Enum(options) => write_options(f, value, options),
            Cause::Const(expected) => write!(f, "{expected} was expected"),
            Cause::Below { bound, is_equal } => {
                let or_equal = if *is_equal { " or equal to" } else { "" };
                write!(f, "{value} is less than{or_equal} the minimum of {bound}")
            }
            Cause::Above { bound, is_equal } => {
                let or_equal = if *is_equal { " or equal to" } else { "" };
                write!(f, "{value} is greater than{or_equal} the maximum of {bound}")
            }
            Cause::MultipleOf(of) => write!(f, "{value} is not a multiple of {of}"),
            Cause::TooShort(least) => {
                write!(f, "{value} is shorter than {least} character{}", plural(*least))
            }
            Cause::TooLongText(most) => write!(f, "{value} is longer than {most} character{}", plural(*most)),
            Cause::TooFewElements(least) => write!(f, "{value} has less than {least} item{}", plural(*least)),
            Cause::TooManyElements(most) => write!(f, "{value} has more than {most} item{}", plural(*most)),
            Cause::TooFewMembers(least) => write!(f, "{value} has less than {least} {}", members(*least)),
            Cause::TooManyMembers(most) => write!(f, "{value} has more than {most} {}", members(*most)),
            Cause::Duplicates => write!(f, "{value} has non-unique elements"),
            Cause::Pattern(pattern) => write!(f, "{value} does not match \"{pattern}\""),
            Cause::Format(format) => write!(f, "{value} is not a \"{format}\""),
            Cause::Content(name, of) => write!(f, "{value} is not compliant with {name} {of}"),
            Cause::Missing(name) => write!(f, "{name} is a required property"),
            Cause::Additional(names) => write_unexpected(f, "Additional properties", names),
            Cause::Unevaluated(names) => write_unexpected(f, "Unevaluated properties", names),
            Cause::UnevaluatedItems(elements) => write_unexpected(f, "Unevaluated items", elements),
            Cause::AdditionalItems(first) => {
                let elements = value.as_array().map_or(&[][..], Vec::as_slice);
                let elements: Vec<String> = elements.iter().skip(*first).map(Value::to_string).collect();
                let were = if elements.len() == 1 { "was" } else { "were" };
                write!(f, "Additional items are not allowed ({} {were} unexpected)", elements.join(", "))
            }
            Cause::Contains => write!(f, "None of {value} are valid under the given schema"),
            Cause::ContainsMore(most) => {
                write!(f, "More than {most} of {value} are valid under the given schema")
            }
            Cause::Not(schema) => write!(f, "{schema} is not allowed for {value}"),
            Cause::NoneOf(keyword) => {
                write!(f, "{value} is not valid under any of the schemas listed in the '{keyword}' keyword")
            }
            Cause::Several => {
                write!(f, "{value} is valid under more than one of the schemas listed in the 'oneOf' keyword")
            }
            Cause::Name(message) => f.write_str(message),
        }
    }
}

/// The most options that are all shown.
const MAX_OPTIONS: usize = 3;

fn write_options(f: &mut Formatter<'_>, value: &Value, options: &[Value]) -> fmt::Result {
    write!(f, "{value} is not one of ")?;
    let shown = if options.len() <= MAX_OPTIONS { options.len() } else { MAX_OPTIONS - 1 };
    for (at, option) in options.iter().take(shown).enumerate() {
        let before = match at {
            0 => "",
            _ if at + 1 == options.len() => " or ",
            _ => ", ",
        };
        write!(f, "{before}{option}")?;
    }
    match options.len() - shown {
        0 => Ok(()),
        others => write!(f, " or {others} other candidates"),
    }
}

fn write_unexpected(f: &mut Formatter<'_>, what: &str, names: &[impl Display]) -> fmt::Result {
    let names: Vec<String> = names.iter().map(|name| format!("'{name}'")).collect();
    let were = if names.len() == 1 { "was" } else { "were" };
    write!(f, "{what} are not allowed ({} {were} unexpected)", names.join(", "))
}
