//! The commands, each in its own file.

pub(crate) mod check;
pub(crate) mod completion;
pub(crate) mod context;
pub(crate) mod delete;
pub(crate) mod describe;
pub(crate) mod diff;
pub(crate) mod events;
mod fields;
pub(crate) mod get;
pub(crate) mod golden;
pub(crate) mod history;
pub(crate) mod lifecycle;
pub(crate) mod logs;
pub(crate) mod requests;
pub(crate) mod result;
pub(crate) mod retry;
pub(crate) mod submit;
mod timeline;
pub(crate) mod tree;
pub(crate) mod uninstall;
pub(crate) mod version;
pub(crate) mod wait;
pub(crate) mod why;
