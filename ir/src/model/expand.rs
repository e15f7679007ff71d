//! Unrolls blocks and loops into named nodes, resolves names, infers shapes, builds the graph.

use super::expr::{self, Scope};
use super::{Block, File, Model, Pairs, Sizes};
use crate::diag::{Diag, Span, nearest};
use crate::graph::{Graph, NodeId};
use crate::ops::{Input, Op};
use crate::weight::Expr;
use ron::value::RawValue;
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};

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
}

/// Calls inside calls; deeper than any model, shallow enough for the stack.
const MAX_DEPTH: usize = 32;
/// Nodes of one model; a repeat count cannot exhaust memory.
const MAX_NODES: usize = 100_000;

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
        let outputs: Vec<_> = self.top.outputs.0.iter().map(|&(n, v)| (n, v, place.resolve(v))).collect();
        self.build(&outputs)
    }

    /// Expands nodes in order and returns the full name of the last one.
    fn expand(&mut self, nodes: &[&'a RawValue], place: &Place) -> Option<String> {
        let mut last = None;
        for raw in nodes {
            let text = raw.trim().get_ron();
            if self.drafts.len() > MAX_NODES || place.depth > MAX_DEPTH {
                if self.problems.len() < 100 {
                    self.fail::<()>(
                        text,
                        "",
                        format!("more than {MAX_NODES} nodes or {MAX_DEPTH} nested blocks"),
                        "",
                    );
                }
                return last;
            }
            last = match text.starts_with("Repeat") {
                true => self.repeat(text, place),
                false => self.node(text, place),
            };
        }
        last
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
        if args.keys().map(String::as_str).collect::<std::collections::BTreeSet<_>>()
            != wanted.iter().copied().collect()
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
            Ok(shape)
                if shape.iter().try_fold(1usize, |n, &s| n.checked_mul(s)).is_some_and(|n| n < 1 << 40) =>
            {
                Some(shape)
            }
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

    /// Orders the drafts, infers shapes and collects weights.
    fn build(mut self, outputs: &[(&str, &str, String)]) -> Result<Graph, Vec<Diag>> {
        let mut index: HashMap<&str, usize> = HashMap::new();
        let mut problems = std::mem::take(&mut self.problems);
        for (i, draft) in self.drafts.iter().enumerate() {
            if index.insert(&draft.name, i).is_some() {
                problems.push(
                    Diag::user("the name is used twice", "expected unique names")
                        .node(&draft.name)
                        .at(draft.span.clone()),
                );
            }
        }
        let find = |name: &str| {
            let mut name = name;
            // A module's value may be another module's, but not for ever: names in a file can form a ring.
            for _ in 0..MAX_DEPTH {
                match self.names.get(name).filter(|_| !index.contains_key(name)) {
                    Some(of) => name = of,
                    None => break,
                }
            }
            index.get(name).copied()
        };
        // A missing name is reported at its reader, once for each.
        let known = || index.keys().copied().chain(self.names.keys().map(String::as_str));
        let unknown = |name: &str| {
            let near = nearest(name, known()).map_or(String::new(), |n| format!(" (did you mean `{n}`?)"));
            (format!("reads `{name}`, which is no node{near}"), "expected the name of a node, block or input")
        };
        let mut edges: Vec<Vec<usize>> = vec![];
        for draft in &self.drafts {
            let mut ins = vec![];
            for name in &draft.ins {
                match find(name) {
                    Some(i) => ins.push(i),
                    None => {
                        let (what, expected) = unknown(name);
                        problems.push(Diag::user(what, expected).node(&draft.name).at(draft.span.clone()));
                    }
                }
            }
            edges.push(ins);
        }
        for (name, text, full) in outputs {
            if find(full).is_none() {
                let (what, expected) = unknown(full);
                problems
                    .push(Diag::user(format!("output `{name}` {what}"), expected).at(self.model.span(text)));
            }
        }
        let (order, cycles) = topological(&edges);
        for cycle in &cycles {
            let names: Vec<_> = cycle.iter().map(|&i| self.drafts[i].name.as_str()).collect();
            let what = format!("the nodes {} form a cycle", names.join(" -> "));
            let first = &self.drafts[cycle[0]];
            let diag = Diag::user(what, "expected every node to read earlier values");
            problems.push(diag.node(&first.name).at(first.span.clone()));
        }
        let mut graph =
            Graph { unused: self.unused.clone(), aliases: self.aliases.clone(), ..Graph::default() };
        let mut ids: Vec<Option<NodeId>> = vec![None; self.drafts.len()];
        for i in order {
            let draft = &self.drafts[i];
            // A node after a broken one is not judged: its shapes are unknown, and one mistake is one message.
            if edges[i].len() != draft.ins.len() {
                continue;
            }
            let Some(ins) = edges[i].iter().map(|&j| ids[j]).collect::<Option<Vec<_>>>() else { continue };
            match graph.push(&draft.name, draft.op.clone(), ins, vec![], draft.span.clone()) {
                Ok(id) => {
                    add_weights(&mut graph, id);
                    ids[i] = Some(id);
                }
                Err(e) => {
                    let what = format!("{}: shapes do not fit", draft.op.name());
                    problems.push(Diag::user(what, e).node(&draft.name).at(draft.span.clone()));
                }
            }
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let id = |name: &str| find(name).and_then(|i| ids[i]);
        graph.outputs = outputs.iter().filter_map(|(n, _, full)| Some((n.to_string(), id(full)?))).collect();
        graph.names = self.names.keys().filter_map(|n| Some((n.clone(), id(n)?))).collect();
        Ok(graph)
    }
}

/// Official names: the node's name without its view, dot, the op's suffix.
fn add_weights(graph: &mut Graph, id: NodeId) {
    let node = graph.node(id);
    let module = node.name.split('#').next().unwrap_or_default().to_string();
    let wanted = node.op.weights(&graph.in_shapes(node));
    let weights = wanted
        .into_iter()
        .map(|(suffix, shape)| graph.weight(format!("{module}.{suffix}"), shape, Expr::Load));
    let weights = weights.collect();
    graph.node_mut(id).weights = weights;
}

/// A topological order, which is the given one where that is one already, and every cycle; nodes of cycles are left out.
fn topological(edges: &[Vec<usize>]) -> (Vec<usize>, Vec<Vec<usize>>) {
    if edges.iter().enumerate().all(|(to, ins)| ins.iter().all(|&from| from < to)) {
        return ((0..edges.len()).collect(), vec![]);
    }
    let mut graph = petgraph::graph::DiGraph::<usize, ()>::new();
    let ids: Vec<_> = (0..edges.len()).map(|i| graph.add_node(i)).collect();
    for (to, ins) in edges.iter().enumerate() {
        graph.extend_with_edges(ins.iter().map(|&from| (ids[from], ids[to])));
    }
    // Strongly connected components come in reverse topological order; those of one node without a loop are no cycles.
    let components = petgraph::algo::tarjan_scc(&graph).into_iter().rev();
    let (cycles, single): (Vec<_>, Vec<_>) =
        components.partition(|c| c.len() > 1 || graph.contains_edge(c[0], c[0]));
    let order = single.into_iter().map(|c| graph[c[0]]).collect();
    (order, cycles.into_iter().map(|c| c.into_iter().map(|n| graph[n]).rev().collect()).collect())
}
