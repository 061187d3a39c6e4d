//! Command-line arguments and their help texts.

use std::{net::SocketAddr, path::PathBuf};

use agentwire_core::format::{FORMATS, Format};
use agentwire_store::Durability;
use clap::{
    ArgGroup, Args, Parser, Subcommand, ValueEnum,
    builder::{PossibleValue, StringValueParser, TypedValueParser},
};

use crate::config::{self, LogFormat};

/// One wire between any AI agent and any user interface.
#[derive(Debug, Parser)]
#[command(name = "agentwire", version, about, long_about = None, max_term_width = 100, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXAMPLES: &str = "\
Examples:
  agentwire serve
  agentwire serve --langgraph http://127.0.0.1:2024 --graph agent
  agentwire config check agentwire.toml
  agentwire formats
  agentwire convert --from ag-ui --to ag-ui@0 events.sse
  curl -sN localhost:8000/agent -d @input.json | agentwire convert --from ag-ui --to ag-ui --lines
  agentwire check events.sse
  agentwire check http://127.0.0.1:8000/agent
  agentwire view events.sse
  agentwire run http://127.0.0.1:7117/ -m Hello

Data goes to stdout, everything else to stderr. NO_COLOR is obeyed.

Exit codes:
  0  done
  1  check: the stream breaks the protocol; diff: the recordings differ; run: the run failed
  2  the command was used wrongly
  3  the input is malformed
  4  a file or pipe could not be read or written
  5  a server could not be reached or refused the request";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Translate a stream from one format into another
    Convert(Convert),
    /// List every violation of the protocol in a stream
    Check(Check),
    /// Talk to an agent in the terminal
    Run(Box<RunArguments>),
    /// Record a run of an agent
    Record(Record),
    /// Compare two recordings by meaning
    Diff(Diff),
    /// Replace personal data and secrets in a recording
    Redact(Redact),
    /// List the formats, their profiles and options
    Formats,
    /// Open a recording, or two side by side, in a browser
    View(View),
    /// Put a gateway in front of agents
    Serve(Box<Serve>),
    /// Ask a running gateway whether it is ready
    Health(Health),
    /// Check agentwire.toml, or print its JSON Schema
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Inspect, shrink or back up a store
    #[command(subcommand)]
    Store(StoreCommand),
    /// Make, list, revoke and rotate API keys
    #[command(subcommand)]
    Keys(KeysCommand),
    /// Export and verify the audit log
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the man pages into a folder
    Man {
        /// The folder
        #[arg(value_name = "FOLDER")]
        folder: PathBuf,
    },
}

#[derive(Args, Debug)]
#[command(after_help = CONVERT_HELP)]
pub(crate) struct Convert {
    /// The input's format, detected if absent; `agentwire formats` lists them
    #[arg(long, visible_alias = "format", value_name = "FORMAT", value_parser = FormatNames::Readers, hide_possible_values = true)]
    pub(crate) from: Option<String>,

    /// The output's format, as FORMAT or FORMAT@PROFILE
    #[arg(long, value_name = "FORMAT", value_parser = FormatNames::Writers, hide_possible_values = true)]
    pub(crate) to: String,

    /// The input file; `-` is stdin. SSE, JSON lines, a JSON array and gzip are detected
    #[arg(value_name = "IN", default_value = "-")]
    pub(crate) input: PathBuf,

    /// The output file; `-` is stdout
    #[arg(short, long, value_name = "OUT", default_value = "-")]
    pub(crate) output: PathBuf,

    /// Write one JSON event per line instead of the format's own bytes
    #[arg(long)]
    pub(crate) lines: bool,

    /// Report on stderr which events were exact, approximated, dropped or repaired
    #[arg(long, value_name = "HOW", num_args = 0..=1, require_equals = true, default_missing_value = "text")]
    pub(crate) report: Option<ReportStyle>,

    /// The thread id, for inputs that name none
    #[arg(long, value_name = "ID", default_value = "thread")]
    pub(crate) thread: String,

    /// The run id, for inputs that name none
    #[arg(long, value_name = "ID", default_value = "run")]
    pub(crate) run: String,

    /// An option of either format, `from.KEY` or `to.KEY` for one of them; may be repeated
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
The output is always a valid stream: violations in the input are repaired and counted (see \
--report), and a malformed frame ends the run with RUN_ERROR, an error that names the position, and \
exit code 3. So does an input that is not a stream at all: an HTML page, a line of text, nothing, or \
a stream of another format than --from. The code is BAD_INPUT; that of an input that cannot be read \
to its end is INPUT_UNREADABLE, with exit code 4.

Examples:
  agentwire convert --from ag-ui --to ag-ui --lines events.sse
  agentwire convert --from ag-ui --to ag-ui-proto events.jsonl.gz -o events.bin
  agentwire convert --from ag-ui-proto --to ag-ui@chunks events.bin --report";

/// Output format of `--report`.
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
    /// The format to check against, detected if absent
    #[arg(
        long,
        visible_alias = "format",
        value_name = "FORMAT",
        value_parser = FormatNames::Readers,
        hide_possible_values = true
    )]
    pub(crate) from: Option<String>,

    /// A file, `-` for stdin, or the http:// or https:// address of a running AG-UI or HAI server
    #[arg(value_name = "IN|URL", default_value = "-")]
    pub(crate) input: String,

    /// URL: the user message of the run that is started
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
Each violation is one line on stdout: position, rule, expected, found. Rules marked (spec) are in \
the specification, but the official client 1.0.0 does not enforce them yet. Exit code 1 if there is \
any violation, 3 if the input is no stream of the format.

Examples:
  agentwire check events.sse
  agentwire check --from ag-ui-proto events.bin
  agentwire check --from hai http://127.0.0.1:8000/awp
  agentwire check http://127.0.0.1:8000/agent -m 'What is the weather?'";

#[derive(Args, Debug)]
#[command(after_help = HEALTH_HELP)]
pub(crate) struct Health {
    /// The http:// or https:// address of the gateway; by default that of the configuration on this machine
    #[arg(value_name = "URL", value_parser = config::url)]
    pub(crate) url: Option<String>,

    /// The configuration of the gateway; ./agentwire.toml if it exists
    #[arg(short, long, value_name = "FILE", conflicts_with = "url")]
    pub(crate) config: Option<PathBuf>,

    /// Ask whether the process is alive (/livez) instead of whether it takes new runs (/readyz)
    #[arg(long)]
    pub(crate) live: bool,

    /// Give up after this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    pub(crate) timeout: u64,
}

const HEALTH_HELP: &str = "\
For the health check of a container, whose image has no other program. The address is `admin_listen` of the \
configuration, otherwise `listen`. Exit code 0 if the gateway is ready, 5 if it is not or does not respond.

Examples:
  agentwire health
  agentwire health --live --config /etc/agentwire/agentwire.toml
  agentwire health http://127.0.0.1:7118";

#[derive(Args, Debug)]
#[command(after_help = VIEW_HELP)]
pub(crate) struct View {
    /// A recording in any readable format; `-` is stdin. A second one is shown beside it
    #[arg(value_name = "FILE", required = true, num_args = 1..=2)]
    pub(crate) files: Vec<PathBuf>,

    /// The format of the recordings, detected if absent
    #[arg(
        long,
        visible_alias = "format",
        value_name = "FORMAT",
        value_parser = FormatNames::Readers,
        hide_possible_values = true
    )]
    pub(crate) from: Option<String>,

    /// Where to listen
    #[arg(short, long, value_name = "ADDRESS", default_value = "127.0.0.1:0", value_parser = config::address)]
    pub(crate) listen: SocketAddr,

    /// Open the page in a browser
    #[arg(long)]
    pub(crate) open: bool,

    /// The largest frame that is read
    #[arg(long, value_name = "SIZE", default_value = "10MiB", value_parser = size)]
    pub(crate) max_frame: usize,
}

const VIEW_HELP: &str = "\
The first line of stdout is the address of the page. Violations, as `agentwire check` finds them, are \
marked at their events; of two recordings, the differences are marked. Ctrl-C ends the command.

Examples:
  agentwire view events.sse
  agentwire view --open before.jsonl after.jsonl
  curl -s localhost:7117/threads/t1/export | agentwire view -";

#[derive(Args, Debug)]
#[command(after_help = RUN_HELP)]
pub(crate) struct RunArguments {
    /// The http:// or https:// address of an AG-UI, HAI or AI SDK server
    #[arg(value_name = "URL")]
    pub(crate) url: String,

    /// One message instead of a conversation; `-` is stdin
    #[arg(short, long, value_name = "TEXT")]
    pub(crate) message: Option<String>,

    #[command(flatten)]
    pub(crate) connection: Connection,

    /// The thread; a new one if absent
    #[arg(long, value_name = "ID")]
    pub(crate) thread: Option<String>,

    /// The id of the first run; a new one if absent
    #[arg(long, value_name = "ID")]
    pub(crate) run: Option<String>,

    /// A tool that you run by hand: {name, description, parameters}, or a list; may be repeated
    #[arg(long, value_name = "FILE.json")]
    pub(crate) tool: Vec<PathBuf>,

    /// Further information for the agent; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) context: Vec<String>,

    /// The shared state at the start
    #[arg(long, value_name = "FILE")]
    pub(crate) state: Option<PathBuf>,

    /// `forwardedProps` of the request
    #[arg(long, value_name = "JSON")]
    pub(crate) forwarded: Option<String>,

    /// A file of the first message; may be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) attach: Vec<PathBuf>,

    /// Read the conversation of --thread before the first message
    #[arg(long = "continue", requires = "thread")]
    pub(crate) should_continue: bool,

    /// Follow the active run of --thread
    #[arg(long, requires = "thread")]
    pub(crate) reconnect: bool,

    /// Print one JSON document at the end: messages, state, pending items, usage
    #[arg(long, conflicts_with_all = ["lines", "quiet"])]
    pub(crate) json: bool,

    /// Print the events as lines of a format
    #[arg(long, value_name = "FORMAT", value_parser = FormatNames::Writers, hide_possible_values = true, conflicts_with = "quiet")]
    pub(crate) lines: Option<String>,

    /// Print the text of the answer only
    #[arg(short, long)]
    pub(crate) quiet: bool,

    /// Write the received stream to a file, for `check`, `convert` and `serve --replay`
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,

    /// Name every violation of the protocol on stderr
    #[arg(long)]
    pub(crate) check: bool,

    /// Without colours; NO_COLOR does the same
    #[arg(long)]
    pub(crate) no_color: bool,

    /// Without any output, for `record`.
    #[arg(skip)]
    pub(crate) is_silent: bool,
}

impl RunArguments {
    /// The defaults for a URL.
    pub(crate) fn for_url(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            message: None,
            connection: Connection::default(),
            thread: None,
            run: None,
            tool: Vec::new(),
            context: Vec::new(),
            state: None,
            forwarded: None,
            attach: Vec::new(),
            should_continue: false,
            reconnect: false,
            json: false,
            lines: None,
            quiet: false,
            record: None,
            check: false,
            no_color: false,
            is_silent: false,
        }
    }
}

/// The connection to a server.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Connection {
    /// The protocol; `auto` derives it from the path: /awp and /chat are hai, /api/chat is ai-sdk
    #[arg(long, value_name = "PROTOCOL", default_value = "auto",
        value_parser = ["auto", "ag-ui", "hai", "ai-sdk", "ai-sdk@4", "ai-sdk@5", "ai-sdk@6", "ai-sdk@7"])]
    pub(crate) protocol: String,

    /// A request header; may be repeated
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    pub(crate) headers: Vec<String>,

    /// Ask for the binary encoding of AG-UI or HAI
    #[arg(long)]
    pub(crate) binary: bool,

    /// Give up after this many seconds without a byte
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    pub(crate) timeout: u64,
}

const RUN_HELP: &str = "\
Without -m the lines you type are the conversation, and /help lists the commands. Ctrl-C stops the \
run, a second one leaves. A broken connection is replaced without loss.

Exit codes of run:
  0    the run finished
  1    the run ended with RUN_ERROR
  2    the command was used wrongly, or a file of it cannot be used
  3    --check found a violation
  4    the run waits for an answer, and there is no terminal to ask
  5    the server could not be reached or refused the request
  130  interrupted

Examples:
  agentwire run http://127.0.0.1:7117/
  agentwire run http://127.0.0.1:7117/awp -m 'approve'
  agentwire run http://127.0.0.1:7117/api/chat -m hello --quiet
  agentwire run http://127.0.0.1:7117/ -m tools --lines ag-ui | jq .type";

#[derive(Args, Debug)]
#[command(after_help = RECORD_HELP)]
pub(crate) struct Record {
    /// The http:// or https:// address of an AG-UI, HAI or AI SDK server
    #[arg(value_name = "URL")]
    pub(crate) url: String,

    /// The file to write
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,

    /// The message of the run
    #[arg(short, long, value_name = "TEXT", default_value = "Hello")]
    pub(crate) message: String,

    #[command(flatten)]
    pub(crate) connection: Connection,
}

const RECORD_HELP: &str = "\
The file has the frames as the server sent them, each once even if the connection broke. \
`agentwire redact` removes personal data from it. The exit codes are those of run.

Example:
  agentwire record http://127.0.0.1:7117/ -o run.sse -m 'tools think'
  agentwire serve --replay run.sse";

#[derive(Args, Debug)]
#[command(after_help = DIFF_HELP)]
pub(crate) struct Diff {
    /// A recording in any format; `-` is stdin
    #[arg(value_name = "A")]
    pub(crate) a: PathBuf,

    /// Another recording, in the same or another format
    #[arg(value_name = "B")]
    pub(crate) b: PathBuf,

    /// The format of A, detected if absent
    #[arg(long, value_name = "FORMAT", value_parser = FormatNames::Readers, hide_possible_values = true)]
    pub(crate) from: Option<String>,

    /// The format of B, detected if absent
    #[arg(long, value_name = "FORMAT", value_parser = FormatNames::Readers, hide_possible_values = true)]
    pub(crate) to: Option<String>,
}

const DIFF_HELP: &str = "\
Compared are the messages with their text, the tool calls with their arguments and results, the \
state, the way each run ended, and the order of all of these. Ids, timestamps, the pieces that text \
is streamed in and the spelling of JSON do not count. Exit code 0 if the recordings have the same \
meaning, 1 if they differ, 3 if one is malformed.

Example:
  agentwire diff before.sse after.jsonl";

#[derive(Args, Debug)]
#[command(after_help = REDACT_HELP)]
pub(crate) struct Redact {
    /// A recording in any format; `-` is stdin
    #[arg(value_name = "IN", default_value = "-")]
    pub(crate) input: PathBuf,

    /// The output file; `-` is stdout
    #[arg(short, long, value_name = "OUT", default_value = "-")]
    pub(crate) output: PathBuf,

    /// The format, detected if absent
    #[arg(long, visible_alias = "format", value_name = "FORMAT", value_parser = FormatNames::Readers, hide_possible_values = true)]
    pub(crate) from: Option<String>,

    /// The shapes to replace; all if absent
    #[arg(long, value_name = "SHAPE", value_delimiter = ',', value_parser = ["email", "card", "token", "key"])]
    pub(crate) preset: Vec<String>,

    /// Also apply the `rules` of an agent of this agentwire.toml
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// The agent whose rules apply; needed if the file has several
    #[arg(long, value_name = "NAME", requires = "config")]
    pub(crate) agent: Option<String>,

    /// Also replace this text wherever it occurs; may be repeated
    #[arg(long, value_name = "TEXT")]
    pub(crate) text: Vec<String>,

    /// The largest frame that is read
    #[arg(long, value_name = "SIZE", default_value = "10MiB", value_parser = size)]
    pub(crate) max_frame: usize,
}

const REDACT_HELP: &str = "\
Each value gets a pseudonym, the same one wherever it occurs: `email-1@redacted.invalid`, `card-1`, \
`token-1`, `key-1`. A value that is spread over several deltas is found too. The output is a valid \
recording of the same format; formats without a writer become ag-ui. The counts go to stderr.

Example:
  agentwire redact run.sse -o shared.sse
  agentwire redact --config agentwire.toml --text 'Jane Doe' run.sse";

#[derive(Args, Clone, Debug)]
#[command(after_help = SERVE_HELP)]
#[command(group = ArgGroup::new("agent").multiple(false))]
#[command(group = ArgGroup::new("server").multiple(true))]
#[command(group = ArgGroup::new("formatted").multiple(true))]
#[command(group = ArgGroup::new("read").multiple(true))]
pub(crate) struct Serve {
    /// The configuration; ./agentwire.toml if it exists, otherwise the demo agent
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Where to listen [default: 127.0.0.1:7117]
    #[arg(short, long, value_name = "ADDRESS", value_parser = config::address)]
    pub(crate) listen: Option<SocketAddr>,

    /// Where threads and runs are kept: sqlite:PATH, postgres://…, env:NAME (a variable with the address) or memory:
    /// [default: sqlite:agentwire.db]
    #[arg(short, long, value_name = "ADDRESS", value_parser = config::store)]
    pub(crate) store: Option<String>,

    /// An origin whose pages may read the responses (CORS), or `*`; may be repeated
    #[arg(long, value_name = "ORIGIN", value_parser = config::origin)]
    pub(crate) cors: Vec<String>,

    /// Allow an address beyond loopback without authentication, hosts and TLS
    #[arg(long)]
    pub(crate) insecure: bool,

    /// Durability of an event before a client sees it: memory, os or fsync [default: os]
    #[arg(long, value_name = "LEVEL", value_parser = durability)]
    pub(crate) durability: Option<Durability>,

    /// Log level: off, error, warn, info, debug, trace [default: info]
    #[arg(long, value_name = "LEVEL", value_parser = config::level)]
    pub(crate) log: Option<String>,

    /// Log format: text or json [default: text]
    #[arg(long, value_name = "FORMAT", value_parser = log_format)]
    pub(crate) log_format: Option<LogFormat>,

    /// The agent is a LangGraph server
    #[arg(long, value_name = "URL", groups = ["agent", "server", "read"], help_heading = "Agent", value_parser = config::url)]
    pub(crate) langgraph: Option<String>,

    /// The graph of --langgraph [default: agent]
    #[arg(long, value_name = "NAME", requires = "langgraph", help_heading = "Agent")]
    pub(crate) graph: Option<String>,

    /// The agent is a Google ADK server
    #[arg(long, value_name = "URL", groups = ["agent", "server", "read"], requires = "app", help_heading = "Agent", value_parser = config::url)]
    pub(crate) adk: Option<String>,

    /// The application of --adk
    #[arg(long, value_name = "NAME", requires = "adk", help_heading = "Agent")]
    pub(crate) app: Option<String>,

    /// The agent is a server that speaks AG-UI
    #[arg(long, value_name = "URL", groups = ["agent", "server"], help_heading = "Agent", value_parser = config::url)]
    pub(crate) ag_ui: Option<String>,

    /// The agent is a server that speaks HAI
    #[arg(long, value_name = "URL", groups = ["agent", "server"], help_heading = "Agent", value_parser = config::url)]
    pub(crate) hai: Option<String>,

    /// The agent is any server that responds with a stream in a readable format
    #[arg(long, value_name = "URL", groups = ["agent", "server", "read", "formatted"], help_heading = "Agent", value_parser = config::url)]
    pub(crate) events: Option<String>,

    /// The agent is a server that speaks OpenAI's chat completions
    #[arg(long, value_name = "URL", groups = ["agent", "server", "model_api"], requires = "model", help_heading = "Agent", value_parser = config::url)]
    pub(crate) openai: Option<String>,

    /// The agent is a server that speaks OpenAI's Responses
    #[arg(long, value_name = "URL", groups = ["agent", "server", "model_api"], requires = "model", help_heading = "Agent", value_parser = config::url)]
    pub(crate) openai_responses: Option<String>,

    /// The agent is a server that speaks Anthropic's Messages
    #[arg(long, value_name = "URL", groups = ["agent", "server", "model_api"], requires = "model", help_heading = "Agent", value_parser = config::url)]
    pub(crate) anthropic: Option<String>,

    /// The model of --openai, --openai-responses or --anthropic
    #[arg(long, value_name = "NAME", requires = "model_api", help_heading = "Agent")]
    pub(crate) model: Option<String>,

    /// The environment variable that holds the key for --openai, --openai-responses or --anthropic
    #[arg(long, value_name = "NAME", requires = "model_api", help_heading = "Agent")]
    pub(crate) api_key_env: Option<String>,

    /// The agent is a program that `sh` starts for each run; it writes a stream to its stdout
    #[arg(long, value_name = "COMMAND", groups = ["agent", "read", "formatted"], help_heading = "Agent", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) exec: Option<String>,

    /// The agent is a recording, the same for every run
    #[arg(long, value_name = "FILE", groups = ["agent", "read", "formatted"], help_heading = "Agent")]
    pub(crate) replay: Option<PathBuf>,

    /// The format of --events, --exec or --replay, detected if absent; `agentwire formats` lists them
    #[arg(long, visible_alias = "from", value_name = "FORMAT", requires = "formatted", help_heading = "Agent", value_parser = config::format)]
    pub(crate) format: Option<&'static Format>,

    /// An option of the input format; may be repeated
    #[arg(short = 'O', value_name = "KEY=VALUE", requires = "read", help_heading = "Agent")]
    pub(crate) options: Vec<String>,

    /// A header of every request to the agent's server; may be repeated
    #[arg(
        short = 'H',
        long = "header",
        value_name = "NAME: VALUE",
        requires = "server",
        help_heading = "Agent"
    )]
    pub(crate) headers: Vec<String>,
}

const SERVE_HELP: &str = "\
Without a file and without flags the demo agent runs, and all data is stored in ./agentwire.db. \
Flags override the file; an agent given by flags replaces those in the file.

SIGTERM and SIGINT shut it down gracefully: no new runs, active ones get drain.grace to finish. A \
second signal ends it at once.

Examples:
  agentwire serve
  agentwire serve --store memory: --listen 127.0.0.1:0
  agentwire serve --langgraph http://127.0.0.1:2024 --graph agent
  agentwire serve --adk http://127.0.0.1:8000 --app shop
  agentwire serve --exec 'python3 -u agent.py' --format langgraph
  agentwire serve --config agentwire.toml --log debug";

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print a summary of a file, or everything that is wrong with it
    #[command(after_help = "\
Every mistake is shown with its file, line and column, and the likely intention. Exit code 2 if there is any.

Examples:
  agentwire config check
  agentwire config check deploy/agentwire.toml")]
    Check {
        /// The file
        #[arg(value_name = "FILE", default_value = config::FILE)]
        file: PathBuf,
    },
    /// Print the JSON Schema of the file, for editors
    #[command(after_help = "\
Editors with TOML support complete and check the file with it:
  agentwire config schema > agentwire.schema.json
and, as the first line of agentwire.toml,
  #:schema ./agentwire.schema.json")]
    Schema,
}

#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Print the size of a store and its contents
    #[command(after_help = "\
Examples:
  agentwire store stats
  agentwire store stats --store sqlite:/var/lib/agentwire.db --json
  agentwire store stats --store env:DATABASE_URL")]
    Stats {
        #[command(flatten)]
        args: StoreArgs,
    },
    /// Create or migrate the tables of a PostgreSQL store; gateways of this and the previous version can keep running
    #[command(after_help = "\
`agentwire serve` creates the tables in a database without them, and never changes existing ones. \
With --check: exit code 0 if there is nothing to do and 1 if there is; nothing is changed.

Examples:
  agentwire store migrate --store env:DATABASE_URL
  agentwire store migrate --check --config agentwire.toml")]
    Migrate {
        /// Tell whether there is something to do
        #[arg(long)]
        check: bool,
        #[command(flatten)]
        args: StoreArgs,
    },
    /// Check the integrity of the stored data; a gateway can keep running
    Verify {
        #[command(flatten)]
        args: StoreArgs,
    },
    /// Copy all data to an empty store
    #[command(after_help = "\
Stop the gateways of both stores first. A run that was live in FROM ends in TO as if its gateway had been lost. \
A failed copy leaves an incomplete TO behind: delete it before the next one.

Examples:
  agentwire store copy sqlite:agentwire.db env:DATABASE_URL
  agentwire store copy postgres://gateway@db.internal/agentwire sqlite:agentwire.db")]
    Copy {
        /// The store to read
        #[arg(value_name = "FROM", value_parser = config::store)]
        from: String,
        /// The store to fill; it must be empty
        #[arg(value_name = "TO", value_parser = config::store)]
        to: String,
        /// Print one JSON object, for programs
        #[arg(long)]
        json: bool,
    },
    /// Return free space to the file system; a gateway can keep running
    Vacuum {
        #[command(flatten)]
        args: StoreArgs,
    },
    /// Write a consistent copy to a new file; a gateway can keep running
    #[command(after_help = "\
The copy is a store like any other: `agentwire serve --store sqlite:COPY`.

Examples:
  agentwire store backup agentwire-backup.db
  agentwire store backup --store sqlite:/var/lib/agentwire.db \"/backup/$(date +%F).db\"")]
    Backup {
        /// The file for the copy; it must not exist
        #[arg(value_name = "TO")]
        to: PathBuf,
        #[command(flatten)]
        args: StoreArgs,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// Print the audit log as JSON lines and report lines that were tampered with
    #[command(after_help = "\
Each line contains a hash of the one before it, which reveals changed, removed and inserted lines. \
With `audit.key` in the configuration, it also reveals a rewrite of the whole file. Rotated files \
beside the file (FILE.1, FILE-20261117) are parts of the log. Exit code 1 if there are any.
On PostgreSQL each gateway writes a chain of its own, with its name: `audit.jsonl` names all of \
them in its folder (audit.NAME.jsonl), and a folder all chains in it. Their lines are merged by time.

Examples:
  agentwire audit export audit.jsonl > copy.jsonl
  agentwire audit export --config agentwire.toml collected/
  agentwire audit export --config agentwire.toml | grep '\"stop\"'")]
    Export(AuditArgs),

    /// Report lines of the audit log that were tampered with
    #[command(after_help = "\
As `export`, without the lines. Exit code 1 if a line was changed, removed or inserted.

Examples:
  agentwire audit verify audit.jsonl
  agentwire audit verify --config agentwire.toml --from 52000")]
    Verify(AuditArgs),
}

/// The audit log of `agentwire audit`.
#[derive(Args, Debug)]
pub(crate) struct AuditArgs {
    /// Files, or folders with files [default: `audit` in the configuration]
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// The configuration with the key of the log; ./agentwire.toml if it exists
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// The number (`seq`) of the first line, if older files are kept elsewhere; for one chain
    #[arg(long, value_name = "NUMBER", default_value_t = 0, hide_default_value = true)]
    pub(crate) from: u64,
}

/// Subcommands of `agentwire keys`.
#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// Make a key; it is printed once, alone on stdout
    Create {
        /// The tenant that it acts for
        #[arg(long, value_name = "TENANT", default_value = "default")]
        tenant: String,
        /// The user that it acts as
        #[arg(long, value_name = "USER")]
        user: String,
        /// A scope such as `agents:*:run`; may be repeated
        #[arg(long = "scope", value_name = "SCOPE", value_parser = scope)]
        scopes: Vec<String>,
        /// A role of the configuration; may be repeated
        #[arg(long = "role", value_name = "ROLE")]
        roles: Vec<String>,
        /// Its lifetime, or `never`
        #[arg(long, value_name = "DURATION", default_value = "90d", value_parser = lifetime)]
        expires: std::option::Option<std::time::Duration>,
        #[command(flatten)]
        args: KeyArgs,
    },
    /// List the keys
    List {
        /// Print one JSON object per key, for programs
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        args: KeyArgs,
    },
    /// Refuse a key from now on, on all gateways of the store
    Revoke {
        /// The id of the key
        id: String,
        #[command(flatten)]
        args: KeyArgs,
    },
    /// Make a new key like an old one, which ends after a while
    Rotate {
        /// The id of the old key
        id: String,
        /// Time for which the old key is accepted too
        #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = config::duration)]
        overlap: std::time::Duration,
        #[command(flatten)]
        args: KeyArgs,
    },
}

/// The configuration and the store of `agentwire keys`.
#[derive(Args, Debug)]
pub(crate) struct KeyArgs {
    /// The configuration with `[auth.keys]`; ./agentwire.toml if it exists
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// The store [default: the one in the configuration]
    #[arg(short, long, value_name = "ADDRESS", value_parser = config::store)]
    pub(crate) store: Option<String>,
}

fn scope(text: &str) -> Result<String, agentwire_gateway::auth::ScopeError> {
    text.parse::<agentwire_gateway::auth::Scope>().map(|scope| scope.to_string())
}

/// A lifetime; `None` never ends.
fn lifetime(text: &str) -> Result<Option<std::time::Duration>, config::ValueError> {
    if text == "never" { Ok(None) } else { config::duration(text).map(Some) }
}

/// The store to open, and the output format.
#[derive(Args, Debug)]
pub(crate) struct StoreArgs {
    /// The store [default: the one in the configuration, otherwise sqlite:agentwire.db]
    #[arg(short, long, value_name = "ADDRESS", value_parser = config::store)]
    pub(crate) store: Option<String>,

    /// The configuration that names the store; ./agentwire.toml if it exists
    #[arg(short, long, value_name = "FILE", conflicts_with = "store")]
    pub(crate) config: Option<PathBuf>,

    /// Print one JSON object, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

/// Accepts any text, so that errors about formats have their own hints, and offers the names of formats to completion
/// scripts.
#[derive(Clone, Copy)]
enum FormatNames {
    Readers,
    Writers,
}

impl FormatNames {
    fn names(self) -> Vec<String> {
        let mut names = Vec::new();
        for format in FORMATS {
            match self {
                Self::Readers if format.reader.is_some() => names.push(format.name.to_owned()),
                Self::Writers if format.writer.is_some() => {
                    names.push(format.name.to_owned());
                    names.extend(
                        format.profiles.iter().map(|profile| format!("{}@{}", format.name, profile.name)),
                    );
                }
                _ => {}
            }
        }
        names
    }
}

impl TypedValueParser for FormatNames {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.names().into_iter().map(PossibleValue::new)))
    }
}

fn durability(text: &str) -> Result<Durability, config::ValueError> {
    config::choice(config::DURABILITIES, text)
}

fn log_format(text: &str) -> Result<LogFormat, config::ValueError> {
    config::choice(LogFormat::NAMES, text)
}

/// Parses a size such as `10MiB`, `64KiB` or `4096`.
pub(crate) fn size(text: &str) -> Result<usize, String> {
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
    fn parses_sizes() {
        assert_eq!(size("10MiB"), Ok(10 << 20));
        assert_eq!(size("4096"), Ok(4096));
        assert!(size("1.5MiB").is_err());
        assert!(size("3parsecs").is_err());
        assert!(size("0").is_err());
    }
}
