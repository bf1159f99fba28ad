//! State and ledger in one SQLite file
