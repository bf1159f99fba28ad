//! The hash-chained record: line format, segments, verification
