//! One file a command.

pub mod bench;
pub mod compare;
pub mod compile;
pub mod demo;
pub mod devices;
pub mod explain;
pub mod pull;
pub mod run;
pub mod tensors;
