use proptest::prelude::*;

use super::*;

type Lines = Vec<Vec<u8>>;

/// The lines of each small recording, and the lines of all recordings.
static LINES: std::sync::LazyLock<(Vec<Lines>, Lines)> = std::sync::LazyLock::new(|| {
    let small = |(name, bytes): &(String, Vec<u8>)| name.ends_with(".jsonl") && bytes.len() < 50_000;
    let split =
        |(_, bytes): (String, Vec<u8>)| bytes.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    let all: Vec<Lines> = recordings().into_iter().filter(small).map(split).collect();
    let others = all.iter().flatten().cloned().collect();
    (all, others)
});

/// A mutation of the lines of a recording.
#[derive(Clone, Debug)]
enum Harm {
    Drop(usize),
    Repeat(usize),
    Swap(usize, usize),
    Graft(usize, usize),
    Byte(usize, u8),
}

fn harm() -> impl Strategy<Value = Harm> {
    prop_oneof![
        any::<usize>().prop_map(Harm::Drop),
        any::<usize>().prop_map(Harm::Repeat),
        any::<(usize, usize)>().prop_map(|(a, b)| Harm::Swap(a, b)),
        any::<(usize, usize)>().prop_map(|(a, b)| Harm::Graft(a, b)),
        (any::<usize>(), any::<u8>()).prop_map(|(at, byte)| Harm::Byte(at, byte)),
    ]
}

fn harmed(mut lines: Vec<Vec<u8>>, others: &[Vec<u8>], harms: &[Harm]) -> Vec<u8> {
    for harm in harms {
        let count = lines.len().max(1);
        match *harm {
            _ if lines.is_empty() => {}
            Harm::Drop(at) => drop(lines.remove(at % count)),
            Harm::Repeat(at) => lines.push(lines[at % count].clone()),
            Harm::Swap(a, b) => lines.swap(a % count, b % count),
            Harm::Graft(at, from) => lines.insert(at % count, others[from % others.len()].clone()),
            Harm::Byte(at, byte) => {
                let line = &mut lines[at % count];
                let length = line.len().max(1);
                if let Some(place) = line.get_mut(at / count % length) {
                    *place = byte;
                }
            }
        }
    }
    lines.join(&b'\n')
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn mutated_recordings_give_valid_streams(
        which in any::<usize>(),
        harms in proptest::collection::vec(harm(), 0..12),
        lenient in any::<bool>(),
        subagents in any::<bool>(),
        cut in 1_usize..500,
    ) {
        let (all, others) = &*LINES;
        let bytes = harmed(all[which % all.len()].clone(), others, &harms);
        let read = |cut: usize| {
            let pairs = subagents.then_some("subagents=on");
            let options = Options::parse(pairs, FORMAT.options).unwrap();
            let options = SourceOptions { lenient, options, ..SourceOptions::default() };
            let mut source = GuardedSource::new(&FORMAT, Framing::Lines, &options).unwrap();
            let mut events = Vec::new();
            for chunk in bytes.chunks(cut) {
                let _ = source.push(chunk, &mut |event| events.push(event));
            }
            let _ = source.end(&StreamEnd::Closed, &mut |event| events.push(event));
            events
        };
        let events = read(usize::MAX);
        check(&events);
        prop_assert_eq!(&events, &read(cut));
    }
}
