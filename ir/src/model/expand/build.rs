//! From named nodes to the graph: resolves names, orders, infers shapes, collects weights.

use super::{Expander, MAX_DEPTH};
use crate::diag::{Diag, nearest};
use crate::graph::{Graph, NodeId};
use crate::tensor::dims;
use crate::weight::{Expr, Weight, WeightId};
use std::collections::{BTreeSet, HashMap};

/// Missing names that get a suggestion; looking for one compares all names.
const MAX_SUGGESTIONS: usize = 20;

impl Expander<'_> {
    /// Orders the drafts, infers shapes and collects weights.
    pub(super) fn build(mut self, outputs: &[(&str, &str, String)]) -> Result<Graph, Vec<Diag>> {
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
        let unknown = |name: &str, before: usize| {
            let near = if before < MAX_SUGGESTIONS { nearest(name, known()) } else { None };
            let near = near.map_or(String::new(), |n| format!(" (did you mean `{n}`?)"));
            (format!("reads `{name}`, which is no node{near}"), "expected the name of a node, block or input")
        };
        let mut edges: Vec<Vec<usize>> = vec![];
        for draft in &self.drafts {
            let mut ins = vec![];
            for name in &draft.ins {
                match find(name) {
                    Some(i) => ins.push(i),
                    None => {
                        let (what, expected) = unknown(name, problems.len());
                        problems.push(Diag::user(what, expected).node(&draft.name).at(draft.span.clone()));
                    }
                }
            }
            edges.push(ins);
        }
        let mut named = BTreeSet::new();
        for (name, text, full) in outputs {
            if !named.insert(name) {
                let what = format!("output `{name}` is given twice");
                problems.push(Diag::user(what, "expected unique names").at(self.model.span(text)));
            }
            if find(full).is_none() {
                let (what, expected) = unknown(full, problems.len());
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
        let mut tensors = HashMap::new();
        for i in order {
            let draft = &self.drafts[i];
            // A node after a broken one is not judged: its shapes are unknown, and one mistake is one message.
            if edges[i].len() != draft.ins.len() {
                continue;
            }
            let Some(ins) = edges[i].iter().map(|&j| ids[j]).collect::<Option<Vec<_>>>() else { continue };
            match graph.push(&draft.name, draft.op.clone(), ins, vec![], draft.span.clone()) {
                Ok(id) => {
                    if let Err(what) = add_weights(&mut graph, id, &mut tensors) {
                        let diag = Diag::user(what, "expected one shape of each tensor");
                        problems.push(diag.node(&draft.name).at(draft.span.clone()));
                    }
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

/// Official names: the node's name without its view, dot, the op's suffix. `tensors` holds those that are there.
fn add_weights(graph: &mut Graph, id: NodeId, tensors: &mut HashMap<String, WeightId>) -> Result<(), String> {
    let node = graph.node(id);
    let module = node.name.split('#').next().unwrap_or_default().to_string();
    for (suffix, shape) in node.op.weights(&graph.in_shapes(node)) {
        let name = format!("{module}.{suffix}");
        let weight = match tensors.get(&name) {
            Some(&weight) => weight,
            None => {
                graph.weights.push(Weight { name: name.clone(), shape: shape.clone(), expr: Expr::Load });
                WeightId(graph.weights.len() as u32 - 1)
            }
        };
        let there = &graph.weights[weight.0 as usize].shape;
        if *there != shape {
            return Err(format!("reads `{name}` as {}, another node as {}", dims(&shape), dims(there)));
        }
        tensors.insert(name, weight);
        graph.node_mut(id).weights.push(weight);
    }
    Ok(())
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
