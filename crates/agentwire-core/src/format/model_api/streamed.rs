//! A text that came in pieces, beside the whole text that the server sends at its end.

/// Length and digest of the pieces so far: FNV-1a. Two texts with the same digest differ in a note of the tally at most.
#[derive(Debug)]
pub(in crate::format) struct StreamedText {
    bytes: usize,
    digest: u64,
}

impl Default for StreamedText {
    fn default() -> Self {
        Self { bytes: 0, digest: 0xcbf2_9ce4_8422_2325 }
    }
}

impl StreamedText {
    pub(in crate::format) fn add(&mut self, piece: &str) {
        self.bytes += piece.len();
        self.digest = piece
            .bytes()
            .fold(self.digest, |digest, byte| (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    }

    pub(in crate::format) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The part of the whole text that did not come; `None` if the whole text does not begin with the pieces.
    pub(in crate::format) fn rest<'t>(&self, whole: &'t str) -> Option<&'t str> {
        let (begin, rest) = whole.split_at_checked(self.bytes)?;
        let mut same = Self::default();
        same.add(begin);
        (same.digest == self.digest).then_some(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_is_what_did_not_come() {
        let mut streamed = StreamedText::default();
        assert_eq!(streamed.rest("all"), Some("all"));
        streamed.add("Grü");
        streamed.add("ße");
        assert_eq!(streamed.rest("Grüße aus Köln"), Some(" aus Köln"));
        assert_eq!(streamed.rest("Grüße"), Some(""));
        for other in ["Grüß", "Grüne Wand", "Grü", ""] {
            assert_eq!(streamed.rest(other), None, "{other}");
        }
    }
}
