//! The graph of one model at one pair of sizes: nodes in topological order, weights, named outputs.

use crate::diag::{Diag, Span};
use crate::ops::{Concat, Op};
use crate::tensor::dims;
use crate::weight::{Expr, Weight, WeightId};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt::{self, Write};

/// Index into [`Graph::nodes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// One value: an op applied to earlier values and to weights.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Full name, unique in the graph: `enc_blocks.3.attn.qkv#0`. What follows `#` is the view.
    pub name: String,
    pub op: Op,
    pub ins: Vec<NodeId>,
    pub weights: Vec<WeightId>,
    /// Logical shape, never padded.
    pub shape: Vec<usize>,
    /// Where the model file defines it.
    pub span: Option<Span>,
}

/// Where a model's weights come from, and under what terms.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// Hugging Face repository, empty when there is none.
    #[serde(default)]
    pub repo: String,
    #[serde(default)]
    pub revision: String,
    #[serde(default)]
    pub licence: String,
}

/// A model at one pair of sizes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graph {
    pub name: String,
    pub source: Source,
    /// In topological order: every input of a node comes before it.
    pub nodes: Vec<Node>,
    pub weights: Vec<Weight>,
    pub outputs: Vec<(String, NodeId)>,
    /// Official module names that are no node's own name: `enc_blocks.0.attn` is `enc_blocks.0.attn.proj`.
    pub names: BTreeMap<String, NodeId>,
    /// Tensors of the checkpoint that prediction does not read: name and shape.
    pub unused: Vec<(String, Vec<usize>)>,
    /// Second names of checkpoint tensors: `(alias, name)`.
    pub aliases: Vec<(String, String)>,
}

impl Graph {
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    pub fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id.0 as usize]
    }

    pub fn shape(&self, id: NodeId) -> &[usize] {
        &self.node(id).shape
    }

    pub fn ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.nodes.len() as u32).map(NodeId)
    }

    /// The nodes that the caller gives values for, in the model's order.
    pub fn inputs(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.ids().filter(|&id| matches!(self.node(id).op, Op::Input(_)))
    }

    /// Input shapes of a node.
    pub fn in_shapes(&self, node: &Node) -> Vec<&[usize]> {
        node.ins.iter().map(|&i| self.shape(i)).collect()
    }

    /// Appends a node, inferring its shape. The error is the op's statement of what it expected.
    pub fn push(
        &mut self,
        name: impl Into<String>,
        op: impl Into<Op>,
        ins: Vec<NodeId>,
        weights: Vec<WeightId>,
        span: Option<Span>,
    ) -> Result<NodeId, String> {
        let op = op.into();
        let shape = op.infer(&ins.iter().map(|&i| self.shape(i)).collect::<Vec<_>>())?;
        self.nodes.push(Node { name: name.into(), op, ins, weights, shape, span });
        Ok(NodeId(self.nodes.len() as u32 - 1))
    }

    /// Appends a weight, or finds the equal one that is there.
    pub fn weight(&mut self, name: impl Into<String>, shape: Vec<usize>, expr: Expr) -> WeightId {
        let weight = Weight { name: name.into(), shape, expr };
        let at = self.weights.iter().position(|w| *w == weight).unwrap_or_else(|| {
            self.weights.push(weight);
            self.weights.len() - 1
        });
        WeightId(at as u32)
    }

    /// Number of readers of each node, graph outputs included.
    pub fn uses(&self) -> Vec<u32> {
        let mut uses = vec![0; self.nodes.len()];
        let readers = self.nodes.iter().flat_map(|n| &n.ins).chain(self.outputs.iter().map(|(_, id)| id));
        readers.for_each(|id| uses[id.0 as usize] += 1);
        uses
    }

    /// The node of an official name: a node's own name or a module's.
    pub fn find(&self, name: &str) -> Option<NodeId> {
        let own = self.nodes.iter().position(|n| n.name == name).map(|i| NodeId(i as u32));
        own.or_else(|| self.names.get(name).copied())
    }

    /// Makes the named values outputs too. `enc_norm` means `enc_norm#0` and `enc_norm#1` stacked along the
    /// batch axis, as upstream encodes two views of one shape. All unknown names are reported.
    pub fn add_taps(&mut self, taps: &[String]) -> Result<(), Vec<Diag>> {
        let mut problems = vec![];
        for tap in taps {
            let views = [0, 1].map(|view| self.find(&format!("{tap}#{view}")));
            let id = match (self.find(tap), views) {
                (Some(id), _) => Ok(id),
                (None, [Some(a), Some(b)]) => self
                    .push(format!("{tap}.views"), Concat { axis: 0 }, vec![a, b], vec![], None)
                    .map_err(|e| {
                        (
                            format!("the two views of `{tap}` cannot be stacked: {e}"),
                            format!("tap `{tap}#0` or `{tap}#1`"),
                        )
                    }),
                _ => {
                    let names = self
                        .nodes
                        .iter()
                        .map(|n| n.name.as_str())
                        .chain(self.names.keys().map(String::as_str));
                    let near = crate::diag::nearest(tap, names)
                        .map_or(String::new(), |n| format!(" (did you mean `{n}`?)"));
                    Err((
                        format!("no value is named `{tap}`"),
                        format!("expected a module name of the model{near}"),
                    ))
                }
            };
            match id {
                Ok(id) if !self.outputs.iter().any(|(name, _)| name == tap) => {
                    self.outputs.push((tap.clone(), id))
                }
                Ok(_) => {}
                Err((what, expected)) => problems.push(Diag::user(what, expected)),
            }
        }
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }

    /// Drops what no output needs and restores topological order, keeping the present order where it is one.
    pub fn compact(&mut self) {
        self.compact_by(|id| id.0);
    }

    /// [`compact`](Graph::compact), taking among the nodes that could come next the one with the least key.
    pub fn compact_by(&mut self, key: impl Fn(NodeId) -> u32) {
        let order = self.order_by(key);
        let mut new_id = vec![None; self.nodes.len()];
        order.iter().enumerate().for_each(|(new, old)| new_id[old.0 as usize] = Some(NodeId(new as u32)));
        let moved = |id: NodeId| new_id[id.0 as usize].expect("a cycle among live nodes");
        let nodes = order.iter().map(|&id| {
            let mut node = self.node(id).clone();
            node.ins.iter_mut().for_each(|i| *i = moved(*i));
            node
        });
        self.nodes = nodes.collect();
        self.outputs.iter_mut().for_each(|(_, id)| *id = moved(*id));
        self.names.retain(|_, id| match new_id[id.0 as usize] {
            Some(new) => {
                *id = new;
                true
            }
            None => false,
        });
        self.drop_unused_weights();
    }

    /// Kahn's algorithm over the live nodes.
    fn order_by(&self, key: impl Fn(NodeId) -> u32) -> Vec<NodeId> {
        let mut live = vec![false; self.nodes.len()];
        let mut stack: Vec<NodeId> = self.outputs.iter().map(|(_, id)| *id).chain(self.inputs()).collect();
        while let Some(id) = stack.pop() {
            if !std::mem::replace(&mut live[id.0 as usize], true) {
                stack.extend(&self.node(id).ins);
            }
        }
        let mut waiting: Vec<usize> = self.nodes.iter().map(|n| n.ins.len()).collect();
        let mut readers = vec![vec![]; self.nodes.len()];
        for id in self.ids().filter(|id| live[id.0 as usize]) {
            self.node(id).ins.iter().for_each(|i| readers[i.0 as usize].push(id));
        }
        let entry = |id: NodeId| Reverse((key(id), id));
        let free = self.ids().filter(|id| live[id.0 as usize] && waiting[id.0 as usize] == 0);
        let mut ready: BinaryHeap<_> = free.map(entry).collect();
        let mut order = vec![];
        while let Some(Reverse((_, id))) = ready.pop() {
            order.push(id);
            for &reader in &readers[id.0 as usize] {
                waiting[reader.0 as usize] -= 1;
                if waiting[reader.0 as usize] == 0 {
                    ready.push(entry(reader));
                }
            }
        }
        order
    }

    fn drop_unused_weights(&mut self) {
        let mut live = vec![false; self.weights.len()];
        let mut stack: Vec<WeightId> = self.nodes.iter().flat_map(|n| n.weights.iter().copied()).collect();
        while let Some(id) = stack.pop() {
            if !std::mem::replace(&mut live[id.0 as usize], true) {
                stack.extend(self.weights[id.0 as usize].expr.operands());
            }
        }
        let mut next = 0;
        let new_id: Vec<WeightId> = live
            .iter()
            .map(|&l| {
                let id = WeightId(next);
                next += u32::from(l);
                id
            })
            .collect();
        let moved = |id: &mut WeightId| *id = new_id[id.0 as usize];
        let mut keep = live.iter();
        self.weights.retain(|_| *keep.next().expect("one flag a weight"));
        for weight in &mut self.weights {
            match &mut weight.expr {
                Expr::Load | Expr::RopeTable { .. } => {}
                Expr::ScaleColumns { w, gamma } => [w, gamma].into_iter().for_each(moved),
                Expr::FoldBias { w, beta, bias } => [w, beta].into_iter().chain(bias).for_each(moved),
                Expr::ConcatRows(parts) => parts.iter_mut().for_each(moved),
            }
        }
        self.nodes.iter_mut().flat_map(|n| &mut n.weights).for_each(moved);
    }

    /// Checks every invariant that later passes rely on. A failure is a bug in the pass that ran before.
    pub fn verify(&self) -> Result<(), Vec<Diag>> {
        let mut problems = vec![];
        let mut seen = std::collections::HashSet::new();
        for (at, node) in self.nodes.iter().enumerate() {
            let mut fail =
                |what: String| problems.push(Diag::bug(what).node(&node.name).at(node.span.clone()));
            if !seen.insert(&node.name) {
                fail("the name is used twice".into());
            }
            if node.ins.iter().any(|i| i.0 as usize >= at) {
                fail("an input does not come before it".into());
                continue;
            }
            let ins = self.in_shapes(node);
            match node.op.infer(&ins) {
                Ok(shape) if shape == node.shape => {}
                Ok(shape) => fail(format!("has shape {}, its op says {}", dims(&node.shape), dims(&shape))),
                Err(e) => {
                    fail(e);
                    continue;
                }
            }
            let wanted: Vec<_> = node.op.weights(&ins).into_iter().map(|(_, s)| s).collect();
            let have: Vec<_> =
                node.weights.iter().map(|w| self.weights[w.0 as usize].shape.clone()).collect();
            if wanted != have {
                fail(format!("has weights of shapes {have:?}, its op wants {wanted:?}"));
            }
        }
        for (name, id) in &self.outputs {
            if id.0 as usize >= self.nodes.len() {
                problems.push(Diag::bug(format!("output `{name}` names no node")));
            }
        }
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }

    /// Checkpoint tensors that the graph reads, each once: name and shape.
    pub fn checkpoint(&self) -> Vec<(&str, &[usize])> {
        let load = self.weights.iter().filter(|w| w.expr == Expr::Load);
        load.map(|w| (w.name.as_str(), w.shape.as_slice())).collect()
    }

    /// Matrix-product and convolution work of one run, in floating-point operations.
    pub fn flops(&self) -> u64 {
        let each = self.nodes.iter().map(|n| n.op.flops(&self.in_shapes(n), &n.shape));
        each.fold(0, u64::saturating_add)
    }

    /// Graphviz text, by petgraph.
    pub fn dot(&self) -> String {
        let mut graph = petgraph::graph::DiGraph::new();
        let ids: Vec<_> = self
            .nodes
            .iter()
            .map(|n| graph.add_node(format!("{}\n{}\n{}", n.name, n.op.name(), dims(&n.shape))))
            .collect();
        for (to, node) in self.nodes.iter().enumerate() {
            node.ins.iter().for_each(|i| {
                graph.add_edge(ids[i.0 as usize], ids[to], String::new());
            });
        }
        let config = [petgraph::dot::Config::EdgeNoLabel];
        format!("{}", petgraph::dot::Dot::with_config(&graph, &config))
    }
}

/// A table: one node a line with its number, shape, op, inputs and name. Runs of blocks that repeat the
/// same lines under another number are printed once.
impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        writeln!(
            f,
            "graph {}  {} nodes  {} weights  {:.1} GFLOP",
            self.name,
            self.nodes.len(),
            self.weights.len(),
            self.flops() as f64 / 1e9
        )?;
        let rows: Vec<(String, String)> =
            self.ids().map(|id| (self.node(id).name.clone(), self.row(id))).collect();
        f.write_str(&fold_repeats(&rows))?;
        for (name, id) in &self.outputs {
            writeln!(f, "output {name} = %{} {}", id.0, dims(self.shape(*id)))?;
        }
        Ok(())
    }
}

impl Graph {
    fn row(&self, id: NodeId) -> String {
        let node = self.node(id);
        let ins: Vec<_> = node.ins.iter().map(|i| format!("%{}", i.0)).collect();
        let op = if matches!(node.op, Op::Input(_)) { "Input".into() } else { node.op.to_string() };
        format!("%{:<5}{:<66} {:<15} {:<16} {op}", id.0, node.name, dims(&node.shape), ins.join(" "))
    }
}

/// Joins `(name, line)` rows, replacing what repeats a numbered block (`enc_blocks.1.` after `enc_blocks.0.`, alike but for
/// numbers) by one line that says so.
pub fn fold_repeats(rows: &[(String, String)]) -> String {
    let blocks = block_runs(rows);
    let mut out = String::new();
    let mut skipped: Option<(String, String, usize)> = None;
    let flush = |out: &mut String, skipped: &mut Option<(String, String, usize)>| {
        if let Some((first, last, lines)) = skipped.take() {
            let range = if first == last { first } else { format!("{first} .. {last}") };
            writeln!(out, "      ... {range}: the same {lines} lines a block").expect("writing to a String");
        }
    };
    let mut before: Option<Vec<String>> = None;
    for (block, range) in blocks {
        let lines = &rows[range.clone()];
        let shape: Vec<String> = lines.iter().map(|(_, line)| without_numbers(line)).collect();
        if !block.is_empty() && before.as_ref() == Some(&shape) {
            match &mut skipped {
                Some((_, last, _)) => *last = block.clone(),
                None => skipped = Some((block.clone(), block.clone(), lines.len())),
            }
            continue;
        }
        flush(&mut out, &mut skipped);
        lines.iter().for_each(|(_, line)| writeln!(out, "{line}").expect("writing to a String"));
        before = (!block.is_empty()).then_some(shape);
    }
    flush(&mut out, &mut skipped);
    out
}

/// Consecutive rows of one numbered block: the block's name (`dec_blocks.4`), or "" for rows outside any.
fn block_runs(rows: &[(String, String)]) -> Vec<(String, std::ops::Range<usize>)> {
    let mut runs: Vec<(String, std::ops::Range<usize>)> = vec![];
    for (i, (name, _)) in rows.iter().enumerate() {
        let block = block_of(name);
        match runs.last_mut() {
            Some((b, range)) if *b == block => range.end = i + 1,
            _ => runs.push((block, i..i + 1)),
        }
    }
    runs
}

/// `enc_blocks.3` of `enc_blocks.3.attn.qkv`. Both branches of a decoder layer count as one block.
fn block_of(name: &str) -> String {
    let mut parts = name.split(['.', '#']);
    match (parts.next(), parts.next()) {
        (Some(head), Some(number)) if head.contains("_blocks") && number.parse::<u32>().is_ok() => {
            format!("{}.{number}", head.trim_end_matches(|c: char| c.is_ascii_digit()))
        }
        (Some(head), Some(_)) if head.starts_with("downstream_head") => head.into(),
        _ => String::new(),
    }
}

/// The line with every node number and block number replaced, so that repeated blocks compare equal.
fn without_numbers(line: &str) -> String {
    let mut out = String::new();
    let mut words = line.split(' ').filter(|w| !w.is_empty());
    for word in words.by_ref() {
        match word.starts_with('%') || word.contains("_blocks") || word.contains("downstream_head") {
            true => out.push_str(&word.replace(|c: char| c.is_ascii_digit(), "")),
            false => out.push_str(word),
        }
        out.push(' ');
    }
    out
}
