//! Model files: RON text to [`Graph`] for given sizes.
//!
//! A file holds `Model(name, base, source, params, inputs, blocks, nodes, outputs)`. A node is
//! `("name", Op(param: ..), ["input", ..])`; where an op may stand, the name of a block may too, with its arguments. Names are official
//! module names, so weights are `NAME.weight` and `NAME.bias`, and what follows a `#` in a name (the view) is no
//! part of them. Numbers may be expressions in quotes over parameters, block arguments, the loop index `i` and the
//! image sizes `H1 W1 H2 W2`; `{expr}` does the same inside names. `Repeat` unrolls nodes with loop-carried values.
//! A file with a `base` starts from that file's content: params, blocks and outputs are replaced by name, nodes appended.
//!
//! Every problem is reported, with file, line and node, not only the first.

mod expand;
mod expr;

use crate::diag::{Diag, Span};
use crate::graph::{Graph, Source};
use ron::value::RawValue;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Height and width in pixels of the two images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    pub view1: (usize, usize),
    pub view2: (usize, usize),
}

impl Sizes {
    /// Both images `width` x `height`.
    pub fn both(width: usize, height: usize) -> Sizes {
        Sizes { view1: (height, width), view2: (height, width) }
    }
}

impl std::fmt::Display for Sizes {
    /// `512x384` (width first, as images are named), or `512x384+384x512`.
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let (h, w) = self.view1;
        write!(f, "{w}x{h}")?;
        match self.view1 == self.view2 {
            true => Ok(()),
            false => write!(f, "+{}x{}", self.view2.1, self.view2.0),
        }
    }
}

/// A parsed model file: its texts, with everything that depends on the sizes still symbolic.
#[derive(Clone, Debug)]
pub struct Model {
    /// The file and its bases, the file first.
    files: Vec<(Arc<str>, String)>,
    pub name: String,
    pub source: Source,
    /// Width and height that the model is meant for.
    pub size: (usize, usize),
}

impl Model {
    /// Parses `text`, the content of `file`; `read(path)` gives the text of a base file.
    pub fn parse(
        file: &str,
        text: &str,
        read: &mut dyn FnMut(&str) -> Result<String, String>,
    ) -> Result<Model, Vec<Diag>> {
        let mut files: Vec<(Arc<str>, String)> = vec![(file.into(), text.to_string())];
        loop {
            let (name, text) = files.last().expect("starts with one");
            let Some(base) = File::parse(name, text).map_err(|d| vec![d])?.base.map(str::to_string) else {
                break;
            };
            // A base is named relative to the file that names it.
            let base = name.rsplit_once('/').map_or(base.clone(), |(folder, _)| format!("{folder}/{base}"));
            if files.iter().any(|(seen, _)| **seen == *base) {
                return Err(vec![Diag::user(
                    format!("`{base}` is its own base"),
                    format!("remove `base` from {name}"),
                )]);
            }
            let text = read(&base).map_err(|e| {
                vec![Diag::user(
                    format!("cannot read base `{base}` of {name}: {e}"),
                    "expected the file beside it",
                )]
            })?;
            files.push((base.as_str().into(), text));
        }
        let mut model = Model { files, name: String::new(), source: Source::default(), size: (512, 512) };
        let top = model.merged().map_err(|d| vec![d])?;
        let (name, source, size) = (top.name.to_string(), top.source.clone(), top.size);
        (model.name, model.source, model.size) = (name, source, size.unwrap_or(model.size));
        Ok(model)
    }

    /// The graph for images of these sizes, or everything that is wrong with it.
    pub fn graph(&self, sizes: Sizes) -> Result<Graph, Vec<Diag>> {
        let top = self.merged().map_err(|d| vec![d])?;
        let mut graph = expand::Expander::new(self, &top, sizes)?.graph()?;
        graph.name = self.name.clone();
        graph.source = self.source.clone();
        graph.verify()?;
        Ok(graph)
    }

    /// Hash input: every text that the model is made of.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(|(_, text)| text.as_str())
    }

    fn merged(&self) -> Result<File<'_>, Diag> {
        let mut files = self.files.iter().rev().map(|(name, text)| File::parse(name, text));
        let mut top = files.next().expect("at least one file")?;
        for file in files {
            top.overlay(file?);
        }
        Ok(top)
    }

    /// The place of `part`, which is a slice of one of the texts.
    fn span(&self, part: &str) -> Option<Span> {
        let at = part.as_ptr() as usize;
        self.files.iter().find_map(|(name, text)| {
            let offset = at.checked_sub(text.as_ptr() as usize).filter(|&o| o < text.len())?;
            Some(Span::at(name, text, offset))
        })
    }
}

/// A file as it is written; raw values stay slices of the text, so that each has a place.
#[derive(Deserialize)]
#[serde(rename = "Model", deny_unknown_fields)]
struct File<'a> {
    name: &'a str,
    #[serde(default, borrow)]
    base: Option<&'a str>,
    #[serde(default)]
    source: Source,
    /// Width and height that the model is meant for.
    #[serde(default)]
    size: Option<(usize, usize)>,
    #[serde(default, borrow)]
    params: Pairs<'a, expr::Dim<'a>>,
    #[serde(default, borrow)]
    inputs: Pairs<'a, Vec<expr::Dim<'a>>>,
    #[serde(default, borrow)]
    blocks: BTreeMap<&'a str, Block<'a>>,
    #[serde(default, borrow)]
    nodes: Vec<&'a RawValue>,
    #[serde(default, borrow)]
    outputs: Pairs<'a, &'a str>,
}

/// A block: nodes written once and used under many names.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Block<'a> {
    #[serde(borrow)]
    ins: Vec<&'a str>,
    #[serde(default, borrow)]
    args: Vec<&'a str>,
    #[serde(borrow)]
    nodes: Vec<&'a RawValue>,
    /// The node whose value is the block's; the last one unless given.
    #[serde(default, borrow)]
    out: Option<&'a str>,
    /// Further official names: `"act_postprocess.0": "act_postprocess.0.1"`.
    #[serde(default, borrow)]
    names: Pairs<'a, &'a str>,
    /// Checkpoint tensors that prediction does not read, with their shapes.
    #[serde(default, borrow)]
    unused: Pairs<'a, Vec<expr::Dim<'a>>>,
    /// Second names of checkpoint tensors.
    #[serde(default, borrow)]
    aliases: Pairs<'a, &'a str>,
}

impl<'a> File<'a> {
    fn parse(name: &Arc<str>, text: &'a str) -> Result<File<'a>, Diag> {
        ron::from_str(text).map_err(|e| {
            let (line, col) = (e.span.start.line as u32, e.span.start.col as u32);
            Diag::user(e.code.to_string(), "expected a model file as models/dust3r.ron").at(Some(Span {
                file: name.clone(),
                line,
                col,
            }))
        })
    }

    fn overlay(&mut self, over: File<'a>) {
        self.name = over.name;
        if over.source != Source::default() {
            self.source = over.source;
        }
        self.size = over.size.or(self.size);
        self.params.overlay(over.params);
        self.inputs.overlay(over.inputs);
        self.blocks.extend(over.blocks);
        self.nodes.extend(over.nodes);
        self.outputs.overlay(over.outputs);
    }
}

/// A RON map in the order of the text.
struct Pairs<'a, T>(Vec<(&'a str, T)>);

impl<T> Default for Pairs<'_, T> {
    fn default() -> Self {
        Pairs(vec![])
    }
}

impl<'a, T> Pairs<'a, T> {
    fn overlay(&mut self, over: Pairs<'a, T>) {
        for (key, value) in over.0 {
            match self.0.iter_mut().find(|(k, _)| *k == key) {
                Some(pair) => pair.1 = value,
                None => self.0.push((key, value)),
            }
        }
    }
}

impl<'de: 'a, 'a, T: Deserialize<'de>> Deserialize<'de> for Pairs<'a, T> {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Visitor<'a, T>(std::marker::PhantomData<(&'a (), T)>);
        impl<'de: 'a, 'a, T: Deserialize<'de>> serde::de::Visitor<'de> for Visitor<'a, T> {
            type Value = Pairs<'a, T>;
            fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                f.write_str("a map")
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = vec![];
                while let Some(pair) = map.next_entry::<&'a str, T>()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        d.deserialize_map(Visitor(std::marker::PhantomData))
    }
}
