//! The project's files seen through one directory handle
