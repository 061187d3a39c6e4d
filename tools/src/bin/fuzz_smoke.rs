//! Runs the fuzz targets for a short time on the stable toolchain. Used by `scripts/fuzz-smoke`.
//!
//! It runs the kept corpus (`fuzz/corpus`). Then, without coverage feedback, it mutates the fixtures: bytes, words and lines are changed, cut, duplicated and mixed.
//! All inputs follow from a seed. `FUZZ_SECONDS` sets the duration (20), `FUZZ_TARGET` selects one target, `FUZZ_SEED`
//! sets the seed, `FUZZ_EXPORT` writes the seeds of all targets into a folder instead. An input that violates a property is saved in `target/fuzz/`; to run it again, pass its path as an
//! argument and set `FUZZ_TARGET`.

#[path = "../../../fuzz/src/lib.rs"]
#[allow(unreachable_pub, reason = "the module is the library of another crate")]
mod targets;

use std::{
    env, fs,
    hash::{DefaultHasher, Hash, Hasher},
    panic::{self, AssertUnwindSafe},
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use agentwire_core::{
    convert::Converter,
    event::StreamEnd,
    format::{FORMATS, Format, Options, Setup},
    framing::detect,
    source::{GuardedSource, SourceOptions},
};

/// The longest input: long enough for several frames of every format, short enough for many runs.
const LONGEST: usize = 4 * 1024;

/// A small pseudo-random number generator (xorshift64*).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    fn pick<'l, T>(&mut self, list: &'l [T]) -> Option<&'l T> {
        if list.is_empty() { None } else { list.get(self.below(list.len())) }
    }
}

/// The function that runs one input.
type Body = dyn Fn(&[u8]);

struct Target {
    name: String,
    run: Box<Body>,
    seeds: Vec<Vec<u8>>,
    runs: u64,
    failures: u64,
}

impl Target {
    fn try_input(&mut self, input: &[u8]) {
        self.runs += 1;
        if let Err(reason) = panic::catch_unwind(AssertUnwindSafe(|| (self.run)(input))) {
            self.failures += 1;
            if self.failures <= 3 {
                report(&self.name, input, &*reason);
            }
        }
    }
}

/// The kept corpus of a target: one input per line, in hexadecimal digits.
fn corpus(name: &str) -> Vec<Vec<u8>> {
    let file = root().join("fuzz/corpus").join(format!("{}.hex", name.replace('-', "_")));
    fs::read_to_string(file).unwrap_or_default().lines().filter_map(unhex).collect()
}

fn unhex(hex: &str) -> Option<Vec<u8>> {
    (0..hex.len() / 2).map(|at| u8::from_str_radix(hex.get(2 * at..2 * at + 2)?, 16).ok()).collect()
}

fn main() -> ExitCode {
    let only = env::var("FUZZ_TARGET").ok();
    let mut targets: Vec<_> = targets()
        .into_iter()
        .filter(|target| only.as_ref().is_none_or(|only| *only == target.name))
        .collect();
    if let Some(file) = env::args().nth(1) {
        let input = fs::read(&file).expect("the input can be read");
        targets.iter().for_each(|target| (target.run)(&input));
        println!("{file}: nothing broke");
        return ExitCode::SUCCESS;
    }
    if let Some(folder) = env::var_os("FUZZ_EXPORT") {
        targets.iter().for_each(|target| export(Path::new(&folder), target));
        return ExitCode::SUCCESS;
    }
    let seconds = number("FUZZ_SECONDS", 20);
    let mut random = Random(number("FUZZ_SEED", 0x5eed).max(1));
    let end = Instant::now() + Duration::from_secs(seconds);
    // The message of a violated property is printed by `report`; the hook would print it for every run.
    panic::set_hook(Box::new(|_| {}));
    for target in &mut targets {
        for input in corpus(&target.name) {
            target.try_input(&input);
        }
    }
    while Instant::now() < end {
        for target in &mut targets {
            let input = mutate(&target.seeds, &mut random);
            target.try_input(&input);
        }
    }
    for Target { name, runs, failures, seeds, .. } in &targets {
        println!("{name}: {runs} runs from {} seeds, {failures} failures", seeds.len());
    }
    let failed = targets.iter().filter(|target| target.failures > 0).count();
    println!("fuzz-smoke: {} passed, {failed} failed", targets.len() - failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Writes the seeds of a target as files, for `scripts/fuzz`.
fn export(folder: &Path, target: &Target) {
    let folder = folder.join(target.name.replace('-', "_"));
    fs::create_dir_all(&folder).expect("the folder can be made");
    for (number, seed) in target.seeds.iter().enumerate() {
        let seed = &seed[..seed.len().min(LONGEST)];
        fs::write(folder.join(format!("seed-{number:03}")), seed).expect("the seed can be written");
    }
}

fn number(variable: &str, default: u64) -> u64 {
    env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Saves an input that violates a property and prints the reason.
fn report(name: &str, input: &[u8], reason: &(dyn std::any::Any + Send)) {
    let text = reason.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| reason.downcast_ref::<&str>().copied()).unwrap_or("a panic without a message");
    let mut hasher = DefaultHasher::new();
    input.hash(&mut hasher);
    let folder = root().join("target/fuzz");
    let file = folder.join(format!("{name}-{:016x}", hasher.finish()));
    let saved = fs::create_dir_all(&folder).and_then(|()| fs::write(&file, input));
    let shown: String = text.chars().take(2000).collect();
    println!("{name}: {shown}");
    match saved {
        Ok(()) => println!("  input kept in {}", file.display()),
        Err(error) => println!("  the input could not be kept: {error}"),
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Every target with its seeds, which are made from the fixtures.
fn targets() -> Vec<Target> {
    let formats = root().join("crates/agentwire-core/src/format");
    let own = files(&root().join("e2e/fixtures"));
    let mut every: Vec<Vec<u8>> = own.clone();
    let mut list = Vec::new();
    for format in FORMATS.iter().filter(|format| format.reader.is_some()) {
        let folder = format.name.trim_end_matches("-proto").replace('-', "_");
        let mut seeds = files(&formats.join(folder).join("fixtures"));
        if format.name.starts_with("ag-ui") {
            seeds.extend(own.iter().cloned());
        }
        every.extend(seeds.iter().cloned());
        if let Some(text) = format.name.strip_suffix("-proto") {
            // The fixtures of a binary format are those of its text form, written in binary.
            seeds = seeds.iter().filter_map(|seed| converted(text, format, seed)).collect();
            if format.name == "ag-ui-proto" {
                seeds.extend(vectors(&formats.join("ag_ui/fixtures_proto/vectors.jsonl")));
            }
        }
        let name = format.name;
        list.push(Target {
            name: name.into(),
            run: Box::new(move |data| targets::format(name, data)),
            seeds: seeds.into_iter().map(steered).collect(),
            runs: 0,
            failures: 0,
        });
    }
    for (name, run) in targets::TARGETS {
        let seeds = match *name {
            "ag_ui_input" | "hai_input" | "requests" | "patch" => texts(name),
            "session" => files(&formats.join("adk/fixtures")),
            "json" | "detect" => every.clone(),
            "ai_sdk_input" => files(&formats.join("ai_sdk/fixtures/requests")),
            _ => every.iter().cloned().map(steered).collect(),
        };
        list.push(Target { name: (*name).into(), run: Box::new(run), seeds, runs: 0, failures: 0 });
    }
    list
}

/// A seed with the two prefix bytes that parametrize a target.
fn steered(mut seed: Vec<u8>) -> Vec<u8> {
    seed.truncate(LONGEST);
    seed.splice(0..0, [0, 16]);
    seed
}

/// The files of a folder and its subfolders, without expectations and descriptions.
fn files(folder: &Path) -> Vec<Vec<u8>> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    let mut found = Vec::new();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            found.extend(files(&path));
        } else if ![".md", ".events.jsonl", ".input.json"].iter().any(|ending| name.ends_with(ending)) {
            found.extend(fs::read(&path).ok());
        }
    }
    found
}

/// A stream of the text format `from` in the binary format `to`.
fn converted(from: &str, to: &Format, bytes: &[u8]) -> Option<Vec<u8>> {
    let from = Format::find(from)?;
    let source = GuardedSource::new(from, detect(bytes, from.reads)?, &SourceOptions::default())?;
    let options = Options::default();
    let setup = Setup { thread: "thread".into(), run: "run".into(), options: &options };
    let mut converter = Converter::new(source, to, to.profile("")?, None, &setup)?;
    // A fixture may be malformed on purpose; the output up to there is a seed too.
    let _ = converter.push(bytes);
    let _ = converter.end(&StreamEnd::Closed);
    Some(converter.output().take().to_vec())
}

/// The binary vectors, a few in each input, with their lengths in front.
fn vectors(file: &Path) -> Vec<Vec<u8>> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let bytes = |line: &str| -> Option<Vec<u8>> {
        let hex = line.split(r#""hex":""#).nth(1)?.split('"').next()?;
        unhex(hex)
    };
    let frames: Vec<_> = text.lines().filter_map(bytes).collect();
    let framed = |frame: &Vec<u8>| [&(frame.len() as u32).to_be_bytes()[..], frame].concat();
    frames.chunks(7).map(|some| some.iter().flat_map(framed).collect()).collect()
}

/// Inputs for the targets that read neither streams nor frames.
fn texts(name: &str) -> Vec<Vec<u8>> {
    let inputs: &[&str] = match name {
        "patch" => &[
            "{\"a\":[1,2,{\"id\":\"x\"}],\"b\":null}\n{\"a\":[2,{\"id\":\"x\",\"n\":1}],\"c\":{}}\n[{\"op\":\"add\",\"path\":\"/a/-\",\"value\":3},{\"op\":\"move\",\"from\":\"/b\",\"path\":\"/d\"}]",
            "[]\n{}\n[{\"op\":\"replace\",\"path\":\"\",\"value\":[1]},{\"op\":\"copy\",\"from\":\"/0\",\"path\":\"/1\"},{\"op\":\"test\",\"path\":\"/1\",\"value\":1},{\"op\":\"remove\",\"path\":\"/0\"}]",
            "[{\"id\":1},{\"id\":2},{\"id\":3}]\n[{\"id\":3},{\"id\":1,\"x\":\"~/\"}]\n[{\"op\":\"add\",\"path\":\"/0/~0~1\",\"value\":{}}]",
        ],
        _ => &[
            r#"{"threadId":"t","runId":"r","messages":[{"id":"u","role":"user","content":[{"type":"text","text":"hi"},{"type":"image","source":{"type":"data","value":"aGk=","mimeType":"image/png"}}]},{"id":"a","role":"assistant","toolCalls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},{"id":"x","role":"tool","toolCallId":"c","content":"ok","error":"e"}],"tools":[{"name":"f","description":"d","parameters":{"type":"object"}}],"context":[{"description":"d","value":"v"}],"state":{"a":[1,null]},"forwardedProps":{"x":1},"resume":[{"interruptId":"i","status":"resolved","payload":{"ok":true}}]}"#,
            r#"{"threadId":"t","runId":"r","parentRunId":"p","protocolVersion":"0.9","messages":[{"id":"q","role":"reasoning","content":"hm","encryptedValue":"e"},{"id":"v","role":"activity","activityType":"P","content":{}},{"id":"s","role":"system","content":"","metadata":{"m":null}},{"id":"d","role":"developer","content":"x","name":"n","subagentRunId":""}],"state":null,"resume":{"interruptId":"i","payload":1}}"#,
        ],
    };
    inputs.iter().map(|input| input.as_bytes().to_vec()).collect()
}

/// Byte sequences with a meaning to at least one decoder.
const WORDS: &[&[u8]] = &[
    b"\n",
    b"\r",
    b"\r\n\r\n",
    b"\n\n",
    b"data: ",
    b"data:",
    b"event: x\n",
    b"id: 1\n",
    b":",
    b"\0",
    b"\xff",
    b"\xef\xbb\xbf",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b"\"",
    b"\\",
    b"\\ud800",
    b"null",
    b"true",
    b"1e999",
    b"-0",
    b"1e-400",
    b"9007199254740993",
    b"{}",
    b"[]",
    b"\"\"",
    b"[[[[[[[[",
    b"\xff\xff\xff\xff",
    b"\x00\x00\x00\x05",
    b"\x80\x80\x80\x80\x01",
    b"\"subagentRunId\":\"s\",",
    b"\"metadata\":{\"agentwire\":{}},",
    b"\"id\":\"\",",
    b"\"type\":\"RUN_STARTED\"",
    b"{\"type\":\"RUN_ERROR\",\"message\":\"\"}\n",
    b"0:\"text\"\n",
    b"[DONE]",
];

/// A new input: a mutated seed, a mix of two seeds, or random bytes.
fn mutate(seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut input = match random.below(20) {
        0 => (0..random.below(200)).map(|_| random.next() as u8).collect(),
        _ => random.pick(seeds).cloned().unwrap_or_default(),
    };
    for _ in 0..=random.below(6) {
        let at = random.below(input.len() + 1);
        let until = (at + 1 + random.below(40)).min(input.len());
        match random.below(11) {
            0 if at < input.len() => input[at] = random.next() as u8,
            1 if at < input.len() => input[at] ^= 1 << random.below(8),
            2 => drop(input.drain(at.min(until)..until)),
            3 => input
                .splice(at..at, random.pick(WORDS).into_iter().flat_map(|word| word.iter().copied()))
                .for_each(drop),
            4 => {
                let copy = input[at.min(until)..until].to_vec();
                input.splice(at..at, copy).for_each(drop);
            }
            5 => input.truncate(at),
            6 => {
                let other = random.pick(seeds).cloned().unwrap_or_default();
                let from = random.below(other.len() + 1);
                let length = random.below(400).min(other.len() - from);
                input.splice(at..at, other[from..from + length].iter().copied()).for_each(drop);
            }
            7 if input.len() > 1 => input[random.below(2)] = random.next() as u8,
            8..=10 => {
                let mut lines: Vec<&[u8]> = input.split_inclusive(|byte| *byte == b'\n').collect();
                let (a, b) = (random.below(lines.len()), random.below(lines.len()));
                match random.below(3) {
                    _ if lines.is_empty() => {}
                    0 => lines.swap(a, b),
                    1 => drop(lines.remove(a)),
                    _ => lines.insert(a, lines[b]),
                }
                input = lines.concat();
            }
            _ => {}
        }
    }
    input.truncate(LONGEST);
    input
}
