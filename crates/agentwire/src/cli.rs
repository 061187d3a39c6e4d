//! What can be typed.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// One wire between any AI agent and any user interface.
#[derive(Debug, Parser)]
#[command(name = "agentwire", version, about, long_about = None, max_term_width = 100, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXAMPLES: &str = "\
Examples:
  agentwire formats
  agentwire convert --from ag-ui --to ag-ui@0 events.sse
  curl -sN localhost:8000/agent -d @input.json | agentwire convert --from ag-ui --to ag-ui --lines
  agentwire check events.sse
  agentwire check http://127.0.0.1:8000/agent

Data goes to stdout, everything else to stderr. NO_COLOR is obeyed.

Exit codes:
  0  done
  1  check: the stream breaks the protocol
  2  the command was used wrongly
  3  the input is malformed
  4  a file or pipe could not be read or written
  5  a server could not be reached or refused the request";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Translate a stream from one format into another
    Convert(Convert),
    /// Name every place where a stream breaks its protocol
    Check(Check),
    /// List the formats, their profiles and options
    Formats,
    /// Put a gateway in front of agents
    Serve,
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

#[derive(Args, Debug)]
#[command(after_help = CONVERT_HELP)]
pub(crate) struct Convert {
    /// The input's format; `agentwire formats` lists them
    #[arg(long, value_name = "FORMAT")]
    pub(crate) from: String,

    /// The output's format, as FORMAT or FORMAT@PROFILE
    #[arg(long, value_name = "FORMAT")]
    pub(crate) to: String,

    /// The input file; `-` is stdin. SSE, JSON lines, a JSON array and gzip are told apart by themselves
    #[arg(value_name = "IN", default_value = "-")]
    pub(crate) input: PathBuf,

    /// The output file; `-` is stdout
    #[arg(short, long, value_name = "OUT", default_value = "-")]
    pub(crate) output: PathBuf,

    /// Write one JSON event per line instead of the format's own bytes
    #[arg(long)]
    pub(crate) lines: bool,

    /// Say on stderr what was exact, changed, left out and repaired
    #[arg(long, value_name = "HOW", num_args = 0..=1, require_equals = true, default_missing_value = "text")]
    pub(crate) report: Option<ReportStyle>,

    /// The thread id, for inputs that name none
    #[arg(long, value_name = "ID", default_value = "thread")]
    pub(crate) thread: String,

    /// The run id, for inputs that name none
    #[arg(long, value_name = "ID", default_value = "run")]
    pub(crate) run: String,

    /// An option of either format; may be repeated
    #[arg(short = 'O', value_name = "KEY=VALUE")]
    pub(crate) options: Vec<String>,

    /// Skip and count malformed frames instead of ending the run with an error
    #[arg(long)]
    pub(crate) lenient: bool,

    /// The largest frame that is read
    #[arg(long, value_name = "SIZE", default_value = "10MiB", value_parser = size)]
    pub(crate) max_frame: usize,
}

const CONVERT_HELP: &str = "\
The output is always a valid stream: what is wrong in the input is repaired and counted (see --report), and a
malformed frame ends the run with RUN_ERROR, an error that names the place, and exit code 3.

Examples:
  agentwire convert --from ag-ui --to ag-ui --lines events.sse
  agentwire convert --from ag-ui --to ag-ui-proto events.jsonl.gz -o events.bin
  agentwire convert --from ag-ui-proto --to ag-ui@chunks events.bin --report";

/// How `--report` is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportStyle {
    /// For people
    Text,
    /// For programs
    Json,
}

#[derive(Args, Debug)]
#[command(after_help = CHECK_HELP)]
pub(crate) struct Check {
    /// The format to check against
    #[arg(long, value_name = "FORMAT", default_value = "ag-ui")]
    pub(crate) format: String,

    /// A file, `-` for stdin, or the http:// address of a running AG-UI server
    #[arg(value_name = "IN|URL", default_value = "-")]
    pub(crate) input: String,

    /// URL: what the user says in the run that is started
    #[arg(short, long, value_name = "TEXT", default_value = "Hello")]
    pub(crate) message: String,

    /// URL: a request header; may be repeated
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    pub(crate) headers: Vec<String>,

    /// URL: give up after this many seconds without a byte
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub(crate) timeout: u64,

    /// The largest frame that is read
    #[arg(long, value_name = "SIZE", default_value = "10MiB", value_parser = size)]
    pub(crate) max_frame: usize,
}

const CHECK_HELP: &str = "\
Each breach is one line on stdout: where, which rule, what was expected, what was found. Rules marked (spec)
are in the specification, but the official client 1.0.0 does not enforce them yet. Exit code 1 if there is
any breach.

Examples:
  agentwire check events.sse
  agentwire check --format ag-ui-proto events.bin
  agentwire check http://127.0.0.1:8000/agent -m 'What is the weather?'";

/// `10MiB`, `64KiB`, `4096`.
fn size(text: &str) -> Result<usize, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        unit => return Err(format!("unknown unit `{unit}` (allowed: KiB, MiB, GiB)")),
    };
    let number: usize = digits.trim().parse().map_err(|_| format!("`{digits}` is not a whole number"))?;
    match number.checked_mul(factor) {
        Some(size) if size > 0 => Ok(size),
        _ => Err("the size must be between 1 byte and what fits into memory".into()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn sizes() {
        assert_eq!(size("10MiB"), Ok(10 << 20));
        assert_eq!(size("4096"), Ok(4096));
        assert!(size("1.5MiB").is_err());
        assert!(size("3parsecs").is_err());
        assert!(size("0").is_err());
    }
}
