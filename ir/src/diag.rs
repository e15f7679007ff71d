//! Diagnostics: what happened, where, what was expected, what to do next, and whose fault it is.

use std::fmt;
use std::sync::Arc;

/// Who can mend it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The model file, the weights or the arguments are wrong.
    User,
    /// ttc broke one of its own invariants.
    Bug,
}

/// A place in a model file; lines and columns count from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    pub file: Arc<str>,
    pub line: u32,
    pub col: u32,
}

impl Span {
    /// The place of byte `offset` of `text`.
    pub fn at(file: &Arc<str>, text: &str, offset: usize) -> Span {
        let before = &text[..offset.min(text.len())];
        let line = before.matches('\n').count() as u32 + 1;
        let col = before.chars().rev().take_while(|&c| c != '\n').count() as u32 + 1;
        Span { file: file.clone(), line, col }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.col)
    }
}

/// One problem. A function that checks returns all of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Diag {
    pub fault: Fault,
    pub span: Option<Span>,
    /// Full name of the node concerned, empty when it concerns none.
    pub node: String,
    pub what: String,
    /// What would have been right.
    pub expected: String,
}

impl Diag {
    pub fn user(what: impl Into<String>, expected: impl Into<String>) -> Diag {
        Diag {
            fault: Fault::User,
            span: None,
            node: String::new(),
            what: what.into(),
            expected: expected.into(),
        }
    }

    pub fn bug(what: impl Into<String>) -> Diag {
        Diag {
            fault: Fault::Bug,
            expected: "this is a bug in ttc; please report it with the model file".into(),
            ..Diag::user(what, "")
        }
    }

    pub fn at(mut self, span: Option<Span>) -> Diag {
        self.span = span;
        self
    }

    pub fn node(mut self, name: impl Into<String>) -> Diag {
        self.node = name.into();
        self
    }
}

impl fmt::Display for Diag {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if let Some(span) = &self.span {
            write!(f, "{span}: ")?;
        }
        if !self.node.is_empty() {
            write!(f, "node `{}`: ", self.node)?;
        }
        f.write_str(&self.what)?;
        if !self.expected.is_empty() {
            write!(f, "; {}", self.expected)?;
        }
        Ok(())
    }
}

impl std::error::Error for Diag {}

/// Names longer than this get no suggestion: comparing takes the product of the lengths.
const MAX_COMPARED: usize = 256;

/// The candidate closest to `name`, for "did you mean": at most a third of the letters may differ.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    candidates
        .into_iter()
        .filter(|c| name.len().max(c.len()) <= MAX_COMPARED)
        .map(|c| (edit_distance(name, c), c))
        .min()
        .filter(|&(d, c)| d * 3 <= name.len().max(c.len()))
        .map(|(_, c)| c)
}

fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &cb) in b.iter().enumerate() {
            let substitute = diagonal + usize::from(ca != cb);
            diagonal = row[j + 1];
            row[j + 1] = substitute.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
