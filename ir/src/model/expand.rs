//! Unrolls blocks and loops into named nodes.

mod build;

use super::expr::{self, Scope};
use super::{Block, File, Model, Pairs, Sizes};
use crate::diag::{Diag, Span, nearest};
use crate::graph::Graph;
use crate::ops::{Input, Op};
use crate::tensor::fits;
use ron::value::RawValue;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Where nodes are being expanded.
#[derive(Clone, Default)]
struct Place {
    /// Put before every name: the names of the enclosing block calls.
    prefix: String,
    /// Put after every name: the view.
    suffix: String,
    scope: Scope,
    /// Full names that the block's inputs and loop-carried names stand for.
    bound: HashMap<String, String>,
    depth: usize,
}

impl Place {
    /// The empty name is the enclosing block's own.
    fn full(&self, name: &str) -> String {
        match name {
            "" => format!("{}{}", self.prefix.trim_end_matches('.'), self.suffix),
            _ => format!("{}{name}{}", self.prefix, self.suffix),
        }
    }

    fn resolve(&self, name: &str) -> String {
        self.bound.get(name).cloned().unwrap_or_else(|| self.full(name))
    }
}

/// A node with everything resolved but its shape.
struct Draft {
    name: String,
    op: Op,
    ins: Vec<String>,
    span: Option<Span>,
}

pub(super) struct Expander<'a> {
    model: &'a Model,
    top: &'a File<'a>,
    scope: Scope,
    drafts: Vec<Draft>,
    /// Module name to the full name that it stands for.
    names: BTreeMap<String, String>,
    unused: Vec<(String, Vec<usize>)>,
    aliases: Vec<(String, String)>,
    problems: Vec<Diag>,
    /// Nodes, calls and rounds of loops so far.
    steps: usize,
}

/// Calls inside calls; deeper than any model, shallow enough for the stack.
const MAX_DEPTH: usize = 32;
/// Nodes, calls and rounds of loops of one model: what repeats or doubles ends before memory or patience do.
const MAX_STEPS: usize = 100_000;

impl<'a> Expander<'a> {
    pub(super) fn new(model: &'a Model, top: &'a File<'a>, sizes: Sizes) -> Result<Self, Vec<Diag>> {
        let mut scope = Scope::new();
        let sides =
            [("H1", sizes.view1.0), ("W1", sizes.view1.1), ("H2", sizes.view2.0), ("W2", sizes.view2.1)];
        for (name, side) in sides {
            scope.insert(name.into(), i64::try_from(side).unwrap_or(i64::MAX));
        }
        let mut problems = vec![];
        for (name, dim) in &top.params.0 {
            match dim.eval(&scope) {
                Ok(value) => drop(scope.insert(name.to_string(), value)),
                Err(what) => {
                    let hint = "image sides must be multiples of the patch size";
                    problems
                        .push(Diag::user(format!("parameter `{name}`: {what}"), hint).at(model.span(name)));
                }
            }
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(Expander {
            model,
            top,
            scope,
            drafts: vec![],
            names: BTreeMap::new(),
            unused: vec![],
            aliases: vec![],
            problems,
            steps: 0,
        })
    }

    pub(super) fn graph(mut self) -> Result<Graph, Vec<Diag>> {
        let place = Place { scope: self.scope.clone(), ..Place::default() };
        for (name, shape) in &self.top.inputs.0 {
            if let Some(shape) = self.shape(name, shape, &place.scope) {
                let op = Input { shape }.into();
                self.drafts.push(Draft {
                    name: name.to_string(),
                    op,
                    ins: vec![],
                    span: self.model.span(name),
                });
            }
        }
        self.expand(&self.top.nodes, &place);
        if self.steps > MAX_STEPS {
            // What was cut off would be reported as missing.
            return Err(self.problems);
        }
        let outputs: Vec<_> = self.top.outputs.0.iter().map(|&(n, v)| (n, v, place.resolve(v))).collect();
        self.build(&outputs)
    }

    /// Expands nodes in order and returns the full name of the last one.
    fn expand(&mut self, nodes: &[&'a RawValue], place: &Place) -> Option<String> {
        let mut last = None;
        for raw in nodes {
            let text = raw.trim().get_ron();
            if !self.step(text, place) {
                return last;
            }
            last = match text.starts_with("Repeat") {
                true => self.repeat(text, place),
                false => self.node(text, place),
            };
        }
        last
    }

    /// Counts one step; false when there have been too many or they are nested too deep, which ends everything.
    fn step(&mut self, text: &'a str, place: &Place) -> bool {
        self.steps += 1;
        let ended = self.steps > MAX_STEPS + 1;
        if ended || (self.steps <= MAX_STEPS && place.depth <= MAX_DEPTH) {
            return !ended;
        }
        self.steps = MAX_STEPS + 1;
        let what =
            format!("more than {MAX_STEPS} nodes, calls and repetitions, or {MAX_DEPTH} nested blocks");
        self.fail::<()>(text, "", what, "expected a model that ends");
        false
    }

    fn node(&mut self, text: &'a str, place: &Place) -> Option<String> {
        let syntax = "expected (\"name\", Op(parameters), [\"input\", ..])";
        let (name, op, ins): (&str, &RawValue, Vec<&str>) = self.read(text, text, syntax)?;
        let at = op.trim().get_ron();
        let filled = |template: &str| expr::fill(template, &place.scope);
        let parts = filled(name)
            .and_then(|name| Ok((name, ins.iter().map(|i| filled(i)).collect::<Result<Vec<_>, _>>()?)));
        let (name, ins) = match parts {
            Ok(parts) => parts,
            Err(what) => return self.fail(text, name, what, "expected {expression} over known names"),
        };
        let full = place.full(&name);
        let ins: Vec<String> = ins.iter().map(|i| place.resolve(i)).collect();
        let op_text = match expr::fill_op(at, &place.scope) {
            Ok(text) => text,
            Err(what) => {
                return self.fail(at, &full, what, "expected a number or an expression over known names");
            }
        };
        let head = op_text.split(['(', ' ', '\n']).next().unwrap_or_default();
        if let Some(block) = self.top.blocks.get(head) {
            return self.call(head, block, &op_text[head.len()..], at, &name, ins, place);
        }
        match Op::parse(&op_text) {
            Ok(op) => {
                self.drafts.push(Draft { name: full.clone(), op, ins, span: self.model.span(text) });
                Some(full)
            }
            Err(_) if !Op::NAMES.contains(&head) => {
                let known: Vec<&str> =
                    Op::NAMES.iter().copied().chain(self.top.blocks.keys().copied()).collect();
                let near = nearest(head, known.iter().copied())
                    .map_or(String::new(), |n| format!("did you mean `{n}`? "));
                self.fail(
                    at,
                    &full,
                    format!("unknown op `{head}`"),
                    &format!("{near}ops and blocks: {}", known.join(" ")),
                )
            }
            Err(e) => {
                self.fail(at, &full, format!("{head}: {}", e.code), "expected the parameters of this op")
            }
        }
    }

    /// Expands a block under `name`; a name that is only a `#view` adds no prefix.
    #[allow(clippy::too_many_arguments)]
    fn call(
        &mut self,
        head: &str,
        block: &'a Block<'a>,
        args: &str,
        at: &'a str,
        name: &str,
        ins: Vec<String>,
        place: &Place,
    ) -> Option<String> {
        let full = place.full(name);
        let (module, view) =
            name.split_once('#').map_or((name, String::new()), |(m, v)| (m, format!("#{v}")));
        let args: BTreeMap<String, i64> = match args.trim() {
            "" | "()" => BTreeMap::new(),
            text => self.read_args(text, at, &full)?,
        };
        let wanted: Vec<&str> = block.args.clone();
        if args.keys().map(String::as_str).collect::<BTreeSet<_>>() != wanted.iter().copied().collect()
            || ins.len() != block.ins.len()
        {
            let given: Vec<_> = args.keys().map(String::as_str).collect();
            let what = format!(
                "block `{head}` called with arguments [{}] and {} inputs",
                given.join(" "),
                ins.len()
            );
            let expected =
                format!("expected arguments [{}] and inputs [{}]", wanted.join(" "), block.ins.join(" "));
            return self.fail(at, &full, what, &expected);
        }
        let mut inner = Place {
            prefix: if module.is_empty() {
                place.prefix.clone()
            } else {
                format!("{}{module}.", place.prefix)
            },
            suffix: format!("{view}{}", place.suffix),
            scope: self.scope.clone(),
            bound: block.ins.iter().map(|i| i.to_string()).zip(ins).collect(),
            depth: place.depth + 1,
        };
        inner.scope.extend(args);
        let last = self.expand(&block.nodes, &inner);
        self.declare(block, &inner);
        let out = match block.out {
            Some(out) => inner.resolve(out),
            None => last?,
        };
        if out == full || full.starts_with('#') {
            return Some(out);
        }
        self.names.insert(full.clone(), out);
        Some(full)
    }

    /// Records a block's further names, unused tensors and aliases.
    fn declare(&mut self, block: &'a Block<'a>, place: &Place) {
        for (name, of) in &block.names.0 {
            self.names.insert(place.full(name), place.full(of));
        }
        for (name, shape) in &block.unused.0 {
            if let Some(shape) = self.shape(name, shape, &place.scope) {
                self.unused.push((format!("{}{name}", place.prefix), shape));
            }
        }
        for (alias, name) in &block.aliases.0 {
            self.aliases.push((format!("{}{alias}", place.prefix), format!("{}{name}", place.prefix)));
        }
    }

    /// `Repeat(count, carry, nodes)`: index `i`; each carried name starts as the first value and then is what the
    /// second names in the iteration before.
    fn repeat(&mut self, text: &'a str, place: &Place) -> Option<String> {
        #[derive(Deserialize)]
        #[serde(rename = "Repeat", deny_unknown_fields)]
        struct Repeat<'a> {
            #[serde(borrow)]
            count: expr::Dim<'a>,
            #[serde(default, borrow)]
            carry: Pairs<'a, (&'a str, &'a str)>,
            #[serde(borrow)]
            nodes: Vec<&'a RawValue>,
        }
        let Repeat { count, carry, nodes } =
            self.read(text, text, "expected Repeat(count: .., carry: {..}, nodes: [..])")?;
        let count = match count.eval(&place.scope) {
            Ok(count) if (0..=10_000).contains(&count) => count,
            Ok(count) => return self.fail(text, "", format!("repeat count {count}"), "expected 0 to 10000"),
            Err(what) => return self.fail(text, "", what, "expected a repeat count"),
        };
        let mut bound: HashMap<String, String> =
            carry.0.iter().map(|(name, (start, _))| (name.to_string(), place.resolve(start))).collect();
        let mut last = None;
        for i in 0..count {
            let mut inner = place.clone();
            inner.depth += 1;
            inner.scope.insert("i".into(), i);
            if !self.step(text, &inner) {
                return last;
            }
            inner.bound.extend(bound.clone());
            last = self.expand(&nodes, &inner);
            for (name, (_, next)) in &carry.0 {
                match expr::fill(next, &inner.scope) {
                    Ok(next) => drop(bound.insert(name.to_string(), place.full(&next))),
                    Err(what) => {
                        return self.fail(text, name, what, "expected {expression} over known names");
                    }
                }
            }
        }
        last
    }

    fn read<T: Deserialize<'a>>(&mut self, text: &'a str, at: &'a str, expected: &str) -> Option<T> {
        match ron::from_str(text) {
            Ok(value) => Some(value),
            Err(e) => self.fail(at, "", e.code.to_string(), expected),
        }
    }

    fn read_args(&mut self, text: &str, at: &'a str, node: &str) -> Option<BTreeMap<String, i64>> {
        // `(h: 3, w: 4)` names its fields as a struct does; a map wants braces and quotes.
        let inner = text.trim().strip_prefix('(').and_then(|t| t.strip_suffix(')')).unwrap_or(text);
        let fields = inner.split(',').map(str::trim).filter(|f| !f.is_empty());
        let parsed: Option<BTreeMap<String, i64>> = fields
            .map(|f| {
                f.split_once(':').and_then(|(k, v)| Some((k.trim().to_string(), v.trim().parse().ok()?)))
            })
            .collect();
        match parsed {
            Some(args) => Some(args),
            None => self.fail(
                at,
                node,
                format!("cannot read the arguments `{text}`"),
                "expected (name: number, ..)",
            ),
        }
    }

    fn shape(&mut self, name: &'a str, dims: &[expr::Dim], scope: &Scope) -> Option<Vec<usize>> {
        let sides = dims
            .iter()
            .map(|d| d.eval(scope).and_then(|n| usize::try_from(n).map_err(|_| format!("{n} < 0"))));
        match sides.collect::<Result<Vec<_>, _>>() {
            Ok(shape) if fits(&shape) => Some(shape),
            Ok(shape) => self.fail(
                name,
                name,
                format!("shape {shape:?} is too large"),
                "expected fewer than 2^40 elements",
            ),
            Err(what) => self.fail(name, name, what, "expected a shape"),
        }
    }

    fn fail<T>(&mut self, at: &str, node: &str, what: impl Into<String>, expected: &str) -> Option<T> {
        self.problems.push(Diag::user(what, expected).node(node).at(self.model.span(at)));
        None
    }
}
