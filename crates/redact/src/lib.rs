//! Finding and replacing secrets in text
