//! The part of a text that has to be scanned to detect every secret in some of its parts.

use std::ops::Range;

use super::pem_context::PemContext;

/// Context needed to detect a secret, in bytes: the length of the longest one.
pub(super) const SECRET_CONTEXT_BYTES: usize = 66 * 1024;

/// Some parts of a text that are near each other, with the context that their secrets need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextWindow {
    /// Byte range to be scanned. Windows do not overlap.
    pub span: Range<usize>,
    /// Which of the parts are in it, by their index.
    pub parts: Range<usize>,
}

/// The windows around some parts of a text, which are in ascending order.
pub fn context_windows(text: &[u8], parts: impl IntoIterator<Item = Range<usize>>) -> Vec<ContextWindow> {
    let (mut windows, mut pem_context) = (Vec::<ContextWindow>::new(), PemContext::default());
    for (number, part) in parts.into_iter().enumerate() {
        let start = pem_context.context_start(text, part.start);
        let end = part.end.saturating_add(SECRET_CONTEXT_BYTES).min(text.len());
        match windows.last_mut() {
            Some(last) if start <= last.span.end => {
                last.span.end = last.span.end.max(end);
                last.parts.end = number + 1;
            }
            _ => windows.push(ContextWindow { span: start..end, parts: number..number + 1 }),
        }
    }
    windows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_share_their_context_share_a_window() {
        let text = vec![b'\n'; 10 * SECRET_CONTEXT_BYTES];
        let at = |n: usize| n * SECRET_CONTEXT_BYTES;
        let windows = context_windows(&text, [at(2)..at(2) + 5, at(3)..at(3) + 1, at(7)..at(7) + 1]);
        assert_eq!(
            windows,
            [
                ContextWindow { span: at(1)..at(4) + 1, parts: 0..2 },
                ContextWindow { span: at(6)..at(8) + 1, parts: 2..3 },
            ]
        );
        assert_eq!(context_windows(&text, []), []);
        // A part may end before an earlier one.
        let nested = context_windows(&text, [0..at(5), 10..20]);
        assert_eq!(nested, [ContextWindow { span: 0..at(6), parts: 0..2 }]);
    }
}
