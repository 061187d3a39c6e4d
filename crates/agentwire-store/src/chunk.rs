//! Encoding of the events of one append as one row: each event after its length, a little-endian `u32`.

use bytes::Bytes;

use crate::error::StoreError;

const LENGTH: usize = size_of::<u32>();

/// Packs events into one body.
pub(crate) fn pack(events: &[Bytes]) -> Result<Vec<u8>, StoreError> {
    let mut body = Vec::with_capacity(events.iter().map(|event| event.len() + LENGTH).sum());
    for event in events {
        let too_large =
            |_| StoreError::TooLarge { what: "an event", size: event.len(), limit: u32::MAX as usize };
        body.extend_from_slice(&u32::try_from(event.len()).map_err(too_large)?.to_le_bytes());
        body.extend_from_slice(event);
    }
    Ok(body)
}

/// Unpacks a body; the events share its memory.
pub(crate) fn unpack(body: Bytes) -> impl Iterator<Item = Result<Bytes, StoreError>> {
    let mut rest = body;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let length = rest.split_to_checked(LENGTH).and_then(|bytes| <[u8; LENGTH]>::try_from(&*bytes).ok());
        let event = length.and_then(|length| {
            usize::try_from(u32::from_le_bytes(length)).ok().and_then(|length| rest.split_to_checked(length))
        });
        if event.is_none() {
            rest.clear();
        }
        Some(event.ok_or_else(|| StoreError::Corrupt("a log row ends within an event".into())))
    })
}

/// True if a body has this number of events and nothing else.
pub(crate) fn has_events(body: &[u8], events: u64) -> bool {
    let (mut rest, mut found) = (body, 0);
    while let Some((length, after)) = rest.split_first_chunk::<LENGTH>() {
        let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
        let Some(after) = after.get(length..) else { return false };
        (rest, found) = (after, found + 1);
    }
    rest.is_empty() && found == events
}

trait SplitChecked: Sized {
    fn split_to_checked(&mut self, at: usize) -> Option<Self>;
}

impl SplitChecked for Bytes {
    fn split_to_checked(&mut self, at: usize) -> Option<Self> {
        (at <= self.len()).then(|| self.split_to(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_events_round_trip() {
        let events: Vec<Bytes> = vec!["a".into(), "".into(), "\0\u{fe}\n".into(), vec![7; 70_000].into()];
        let body = Bytes::from(pack(&events).unwrap());
        assert_eq!(unpack(body).collect::<Result<Vec<_>, _>>().unwrap(), events);
    }

    #[test]
    fn a_truncated_body_yields_a_prefix_and_one_error() {
        let events: Vec<Bytes> = vec!["one".into(), "two".into(), "".into()];
        let whole = Bytes::from(pack(&events).unwrap());
        for cut in 0..whole.len() {
            let got: Vec<_> = unpack(whole.slice(..cut)).collect();
            let intact = got.iter().take_while(|event| event.is_ok()).count();
            assert!(got.len() - intact <= 1, "the first error is the last item");
            assert!(got[..intact].iter().zip(&events).all(|(got, packed)| got.as_ref().unwrap() == packed));
            let boundary = [0, 7, 14].contains(&cut);
            assert_eq!(has_events(&whole[..cut], intact as u64), boundary);
            assert!(!has_events(&whole[..cut], intact as u64 + 1));
            assert_eq!(got.len() == intact, boundary, "cut at {cut}");
        }
    }
}
