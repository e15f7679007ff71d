//! Whether weights fit a model: all problems at once.

use std::collections::BTreeSet;
use std::fmt;

use super::file::{FileWeights, readable};
use super::names::{covers, nearest, other_name};
use super::synthetic::law;

/// A tensor that a model reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub name: String,
    pub shape: Vec<usize>,
    /// Other names it may have. The official aliases (`scratch.layer_rn.{i}`) are known without being listed.
    pub aliases: Vec<String>,
    /// May be absent.
    pub optional: bool,
}

impl Wanted {
    /// A tensor that must be there, under this name.
    pub fn new(name: impl Into<String>, shape: impl Into<Vec<usize>>) -> Wanted {
        Wanted { name: name.into(), shape: shape.into(), aliases: Vec::new(), optional: false }
    }

    /// Its name, then its aliases.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.name).chain(&self.aliases).map(String::as_str)
    }
}

/// In which way a tensor disagrees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemKind {
    /// Wanted, not there.
    Missing,
    /// There, not wanted.
    Surplus,
    /// There with another shape.
    Shape,
    /// There with a dtype that cannot be read.
    Dtype,
    /// The synthetic recipe has no rule for it.
    NoRecipe,
}

/// One disagreement between a model and weights. `Display` is one line for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightProblem {
    pub kind: ProblemKind,
    /// The tensor's name as the model has it; for surplus ones, as the file has it.
    pub name: String,
    /// What the model wants: a shape, or for a dtype the readable ones; empty for surplus tensors.
    pub expected: String,
    /// What is there: a shape or dtype; empty for missing tensors.
    pub found: String,
    /// For missing tensors: a surplus name that is probably the same tensor.
    pub nearest: Option<String>,
}

impl fmt::Display for WeightProblem {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let WeightProblem { kind, name, expected, found, nearest } = self;
        match kind {
            ProblemKind::Missing => write!(f, "missing `{name}` {expected}")?,
            ProblemKind::Surplus => write!(f, "surplus `{name}` {found}")?,
            ProblemKind::Shape => write!(f, "`{name}` is {found}, the model wants {expected}")?,
            ProblemKind::Dtype => write!(f, "`{name}` has dtype {found}, readable are {expected}")?,
            ProblemKind::NoRecipe => write!(f, "`{name}` {expected} has no synthetic recipe")?,
        }
        match nearest {
            Some(near) => write!(f, " (is it `{near}`?)"),
            None => Ok(()),
        }
    }
}

pub(super) fn check_file(file: &FileWeights, wanted: &[Wanted], tolerated: &[&str]) -> Vec<WeightProblem> {
    let entries = file.entries();
    let mut used: BTreeSet<&str> = BTreeSet::new();
    for name in wanted.iter().flat_map(Wanted::names) {
        // A file may hold an aliased tensor under both names; neither is surplus.
        let other = other_name(name);
        used.extend(file.entry(name).map(|(stored, ..)| stored));
        used.extend(other.and_then(|o| file.entry(&o)).map(|(stored, ..)| stored));
    }
    let surplus: Vec<&str> = entries.iter().map(|e| e.name.as_str()).filter(|n| !used.contains(n)).collect();

    let mut problems = Vec::new();
    for w in wanted {
        let shape = format!("{:?}", w.shape);
        let problem = |kind, expected: &str, found| WeightProblem {
            kind,
            name: w.name.clone(),
            expected: expected.to_owned(),
            found,
            nearest: None,
        };
        match file.present(w).and_then(|name| file.entry(name)) {
            None if w.optional => {}
            None => problems.push(WeightProblem {
                nearest: nearest(&w.name, &surplus).map(str::to_owned),
                ..problem(ProblemKind::Missing, &shape, String::new())
            }),
            Some((_, _, found)) if found != w.shape => {
                problems.push(problem(ProblemKind::Shape, &shape, format!("{found:?}")));
            }
            Some((_, dtype, _)) if !readable(dtype) => {
                problems.push(problem(ProblemKind::Dtype, "F32, F16, BF16", format!("{dtype:?}")));
            }
            Some(_) => {}
        }
    }
    let unwanted = entries.iter().filter(|e| !used.contains(e.name.as_str()));
    let unwanted = unwanted.filter(|e| !tolerated.iter().any(|pattern| covers(pattern, &e.name)));
    problems.extend(unwanted.map(|e| WeightProblem {
        kind: ProblemKind::Surplus,
        name: e.name.clone(),
        expected: String::new(),
        found: format!("{:?}", e.shape),
        nearest: None,
    }));
    problems
}

pub(super) fn check_synthetic(wanted: &[Wanted]) -> Vec<WeightProblem> {
    let unknown = wanted.iter().filter(|w| law(&w.name, &w.shape).is_err());
    unknown
        .map(|w| WeightProblem {
            kind: ProblemKind::NoRecipe,
            name: w.name.clone(),
            expected: format!("{:?}", w.shape),
            found: String::new(),
            nearest: None,
        })
        .collect()
}
