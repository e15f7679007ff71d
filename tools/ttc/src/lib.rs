//! The `ttc` command: compiles model files, explains what it decided, runs artifacts on images.

pub mod builtin;
pub mod cli;
mod commands;
pub mod compare;
pub mod error;
pub mod hub;
pub mod pipeline;
pub mod progress;

pub use cli::main;
pub use error::{CliError, Exit};
