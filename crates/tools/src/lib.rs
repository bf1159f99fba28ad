//! The catalogue: each tool is arguments, effects, result
