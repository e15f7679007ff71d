//! A plan: the static schedule of one model at one pair of sizes for one target. Which kernel computes each step, where every
//! value lives, which packed constants it reads. A [`Plan`] exists only if [`Draft::verify`] accepted it.

use crate::diag::Diag;
use crate::graph::{Source, fold_repeats};
use crate::ops::Op;
use crate::tensor::{DType, dims, fits};
use crate::weight::{Expr, Weight, WeightId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};

/// What the plan is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Target {
    /// Any CPU: kernels pick their instruction set when the artifact is loaded.
    Cpu,
}

impl Target {
    /// Alignment in bytes of every buffer and constant.
    pub fn align(self) -> u64 {
        match self {
            Target::Cpu => 64,
        }
    }
}

/// Precision of matrix products and convolutions. Sums are f32 in every mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Math {
    /// Operands f32.
    F32,
    /// Operands rounded to bf16; the residual streams stay f32.
    Bf16,
}

impl Math {
    /// Element type of matrix-product operands.
    pub fn operand(self) -> DType {
        match self {
            Math::F32 => DType::F32,
            Math::Bf16 => DType::BF16,
        }
    }
}

impl fmt::Display for Math {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.operand().fmt(f)
    }
}

/// Order of the elements in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// As the logical shape says, last axis fastest.
    RowMajor,
    /// A map `[B, C, H, W]` stored as `[B, H, W, C]`.
    ChannelsLast,
}

/// How a value is stored: an attribute beside the logical shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    pub order: Order,
    pub dtype: DType,
}

/// Index into [`Draft::bufs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BufId(pub u32);

/// Index into [`Draft::consts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ConstId(pub u32);

/// A value's place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Buf {
    pub name: String,
    pub shape: Vec<usize>,
    pub layout: Layout,
    /// First byte in the arena.
    pub offset: u64,
    /// The buffer whose bytes these are: a view of a batch, or the same bytes under another shape.
    pub of: Option<BufId>,
}

impl Buf {
    /// Size in bytes; None when it overflows.
    pub fn bytes(&self) -> Option<u64> {
        let elements = self.shape.iter().try_fold(1u64, |n, &s| n.checked_mul(s as u64))?;
        elements.checked_mul(self.layout.dtype.bytes() as u64)
    }
}

/// How a constant is laid out for the kernel that reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Pack {
    /// As it is, row-major.
    RowMajor,
    /// A matrix `[n, k]` in panels of 32 rows.
    Panels,
    /// A 3x3 convolution `[out, in, 3, 3]` in panels of 32 outputs, taps before channels.
    Conv3x3Panels,
    /// A transposed convolution `[in, out, s, s]` in panels of 32 outputs.
    ConvTransposePanels,
}

/// A weight as the artifact stores it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Const {
    pub weight: WeightId,
    pub pack: Pack,
    pub dtype: DType,
}

/// One kernel call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Name of the value that it computes.
    pub name: String,
    pub kernel: String,
    pub op: Op,
    pub ins: Vec<BufId>,
    pub out: BufId,
    pub consts: Vec<ConstId>,
    /// Precision of its products; the plan's, or better where that is needed.
    pub math: Math,
    /// Why this kernel and this layout.
    pub why: String,
}

/// A plan that nobody has checked yet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Draft {
    pub name: String,
    pub source: Source,
    pub target: Target,
    pub math: Math,
    pub inputs: Vec<(String, BufId)>,
    pub outputs: Vec<(String, BufId)>,
    pub bufs: Vec<Buf>,
    pub steps: Vec<Step>,
    pub weights: Vec<Weight>,
    pub consts: Vec<Const>,
    pub arena_bytes: u64,
}

/// First and last step of a value's life; inputs live from step 0, outputs past the last.
pub type Live = (u32, u32);

/// A verified plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan(Draft);

impl std::ops::Deref for Plan {
    type Target = Draft;
    fn deref(&self) -> &Draft {
        &self.0
    }
}

impl Draft {
    pub fn buf(&self, id: BufId) -> &Buf {
        &self.bufs[id.0 as usize]
    }

    /// The buffer that owns the bytes of `id`.
    pub fn root(&self, id: BufId) -> BufId {
        self.buf(id).of.unwrap_or(id)
    }

    /// Life of every owning buffer, its views included; None for views and for buffers that nothing touches.
    pub fn lives(&self) -> Vec<Option<Live>> {
        let mut lives: Vec<Option<Live>> = vec![None; self.bufs.len()];
        let mut touch = |id: BufId, step: u32| {
            let life = &mut lives[self.root(id).0 as usize];
            *life = Some(life.map_or((step, step), |(a, b)| (a.min(step), b.max(step))));
        };
        self.inputs.iter().for_each(|(_, id)| touch(*id, 0));
        for (at, step) in self.steps.iter().enumerate() {
            step.ins.iter().chain([&step.out]).for_each(|&id| touch(id, at as u32));
        }
        self.outputs.iter().for_each(|(_, id)| touch(*id, self.steps.len() as u32));
        lives
    }

    /// Checks everything that executing a plan relies on; the only way to a [`Plan`].
    pub fn verify(self) -> Result<Plan, Vec<Diag>> {
        let mut problems = self.check_references();
        if problems.is_empty() {
            problems = self.check_places();
        }
        if problems.is_empty() {
            problems = self.check_steps();
        }
        if problems.is_empty() { Ok(Plan(self)) } else { Err(problems) }
    }

    /// Every id names something, and views and weight expressions look backwards only.
    fn check_references(&self) -> Vec<Diag> {
        let mut problems = vec![];
        let mut require = |ok: bool, what: &dyn Fn() -> String| {
            if !ok {
                problems.push(Diag::bug(what()));
            }
        };
        let buf = |id: &BufId| (id.0 as usize) < self.bufs.len();
        for (at, b) in self.bufs.iter().enumerate() {
            let owner = |of: BufId| (of.0 as usize) < at && self.buf(of).of.is_none();
            require(b.of.is_none_or(owner), &|| format!("buffer {at} does not view an earlier owner"));
        }
        for (name, id) in self.inputs.iter().chain(&self.outputs) {
            require(buf(id), &|| format!("`{name}` names no buffer"));
        }
        for step in &self.steps {
            let known = step.consts.iter().all(|c| (c.0 as usize) < self.consts.len());
            require(known && step.ins.iter().chain([&step.out]).all(buf), &|| {
                format!("step `{}` names a missing buffer or constant", step.name)
            });
        }
        for (at, weight) in self.weights.iter().enumerate() {
            let backwards = weight.expr.operands().iter().all(|o| (o.0 as usize) < at);
            require(backwards, &|| format!("weight `{}` depends on a later one", weight.name));
            require(fits(&weight.shape), &|| format!("weight `{}` is too large", weight.name));
        }
        for c in &self.consts {
            require((c.weight.0 as usize) < self.weights.len(), &|| "a constant names no weight".into());
        }
        problems
    }

    /// Buffers lie aligned inside the arena, views inside their owner, and no two live owners overlap.
    fn check_places(&self) -> Vec<Diag> {
        let mut problems = vec![];
        for b in &self.bufs {
            let end = b.bytes().and_then(|n| b.offset.checked_add(n));
            let limit = b.of.map_or(Some(self.arena_bytes), |of| {
                let owner = self.buf(of);
                owner.bytes().and_then(|n| owner.offset.checked_add(n))
            });
            let start = b.of.map_or(0, |of| self.buf(of).offset);
            let map = b.layout.order != Order::ChannelsLast || b.shape.len() == 4;
            if b.shape.is_empty() || b.shape.contains(&0) || !fits(&b.shape) || !map {
                // Nothing live is empty, and an empty range would hide another from the sweep below.
                let what = format!("buffer `{}` is empty, too large, or no map and channels-last", b.name);
                problems.push(Diag::bug(what));
            } else if end.is_none() || end > limit || b.offset < start {
                problems.push(Diag::bug(format!("buffer `{}` leaves the arena or its owner", b.name)));
            } else if b.offset % self.target.align() != 0 {
                problems.push(Diag::bug(format!("buffer `{}` is not aligned", b.name)));
            }
        }
        if problems.is_empty() {
            problems.extend(
                self.overlap().map(|(a, b)| Diag::bug(format!("live buffers `{a}` and `{b}` overlap"))),
            );
        }
        problems
    }

    /// Two owners that are alive at once and share a byte, if there are any: a sweep over the steps.
    fn overlap(&self) -> Option<(&str, &str)> {
        let mut events = vec![];
        for (at, life) in self.lives().iter().enumerate() {
            if let Some((first, last)) = life {
                events.push((*first, 1, at));
                events.push((last + 1, 0, at));
            }
        }
        events.sort();
        let mut active: BTreeMap<u64, (u64, usize)> = BTreeMap::new();
        for (_, starts, at) in events {
            let b = &self.bufs[at];
            let end = b.offset + b.bytes().unwrap_or(0);
            if starts == 0 {
                active.remove(&b.offset);
                continue;
            }
            let before = active.range(..end).next_back().filter(|(_, (e, _))| *e > b.offset);
            if let Some((_, (_, other))) = before {
                return Some((&self.bufs[*other].name, &b.name));
            }
            active.insert(b.offset, (end, at));
        }
        None
    }

    /// Ops fit their shapes and weights, and everything is written before it is read.
    fn check_steps(&self) -> Vec<Diag> {
        let mut problems = vec![];
        let mut written: Vec<Ranges> = vec![Ranges::default(); self.bufs.len()];
        self.inputs.iter().for_each(|(_, id)| written[self.root(*id).0 as usize].add(self.buf(*id)));
        for step in &self.steps {
            let mut fail = |what: String| problems.push(Diag::bug(what).node(&step.name));
            let ins: Vec<&[usize]> = step.ins.iter().map(|&i| self.buf(i).shape.as_slice()).collect();
            match step.op.infer(&ins) {
                Ok(_) if matches!(step.op, Op::Input(_)) => {
                    fail("is an input, which no step computes".into())
                }
                Ok(shape) if shape == self.buf(step.out).shape => {}
                Ok(shape) => {
                    fail(format!("writes {}, its op says {}", dims(&self.buf(step.out).shape), dims(&shape)))
                }
                Err(e) => fail(e),
            }
            if step.ins.iter().any(|&i| !written[self.root(i).0 as usize].hold(self.buf(i))) {
                fail("reads a buffer that nothing has written".into());
            }
            let out = self.root(step.out);
            if step.ins.iter().any(|&i| self.root(i) == out) {
                fail("writes a buffer that it reads".into());
            }
            written[out.0 as usize].add(self.buf(step.out));
        }
        for (name, id) in &self.outputs {
            if !written[self.root(*id).0 as usize].hold(self.buf(*id)) {
                problems.push(Diag::bug(format!("output `{name}` is never written")));
            }
        }
        problems
    }

    /// Matrix-product and convolution work of one step, in floating-point operations.
    pub fn flops(&self, step: &Step) -> u64 {
        let ins: Vec<&[usize]> = step.ins.iter().map(|&i| self.buf(i).shape.as_slice()).collect();
        step.op.flops(&ins, &self.buf(step.out).shape)
    }

    /// Bytes that one step moves at least: each input and constant read once, the output written once.
    pub fn traffic(&self, step: &Step) -> u64 {
        // A packed projection that attention reads three parts of is one input.
        let touched: BTreeSet<BufId> = step.ins.iter().copied().chain([step.out]).collect();
        let bufs = touched.into_iter().filter_map(|b| self.buf(b).bytes()).sum::<u64>();
        bufs + step.consts.iter().map(|&c| self.const_bytes(c)).sum::<u64>()
    }

    /// Bytes of a constant before padding.
    pub fn const_bytes(&self, id: ConstId) -> u64 {
        let c = &self.consts[id.0 as usize];
        let elements: usize = self.weights[c.weight.0 as usize].shape.iter().product();
        (elements * c.dtype.bytes()) as u64
    }

    /// Checkpoint tensors that the plan's constants come from, each once: name and shape.
    pub fn checkpoint(&self) -> Vec<(&str, &[usize])> {
        let load = self.weights.iter().filter(|w| w.expr == Expr::Load);
        load.map(|w| (w.name.as_str(), w.shape.as_slice())).collect()
    }
}

/// Written bytes of one owner: a view may be written and the rest of its owner not. Start and end, none touching.
#[derive(Clone, Default)]
struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    fn add(&mut self, b: &Buf) {
        let (mut start, mut end) = (b.offset, b.offset + b.bytes().unwrap_or(0));
        let touching = |ranges: &BTreeMap<u64, u64>, start: u64, end: u64| {
            ranges.range(..=end).next_back().filter(|&(_, &e)| e >= start).map(|(&s, &e)| (s, e))
        };
        while let Some((s, e)) = touching(&self.0, start, end) {
            self.0.remove(&s);
            (start, end) = (start.min(s), end.max(e));
        }
        self.0.insert(start, end);
    }

    fn hold(&self, b: &Buf) -> bool {
        let end = b.offset + b.bytes().unwrap_or(0);
        self.0.range(..=b.offset).next_back().is_some_and(|(_, &e)| e >= end)
    }
}

/// A table: one step a line, repeated blocks once.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let flops = self.steps.iter().map(|s| self.flops(s)).fold(0, u64::saturating_add);
        let consts: u64 = (0..self.consts.len() as u32).map(|c| self.const_bytes(ConstId(c))).sum();
        writeln!(
            f,
            "plan {}  target={:?} math={}  {} steps  {:.1} GFLOP  arena {:.1} MiB  constants {:.1} MiB",
            self.name,
            self.target,
            self.math,
            self.steps.len(),
            flops as f64 / 1e9,
            mib(self.arena_bytes),
            mib(consts)
        )?;
        writeln!(
            f,
            "{:<14} {:<66} {:>7} {:>7}  {:<76} why",
            "kernel", "value", "GFLOP", "MB", "reads -> writes"
        )?;
        let rows: Vec<_> = self.steps.iter().map(|s| (s.name.clone(), self.row(s))).collect();
        f.write_str(&fold_repeats(&rows))?;
        for (name, id) in &self.outputs {
            writeln!(f, "output {name} = {}", self.place(*id))?;
        }
        Ok(())
    }
}

impl Draft {
    fn row(&self, step: &Step) -> String {
        let mut ins: Vec<(String, usize)> = vec![];
        for place in step.ins.iter().map(|&i| self.place(i)) {
            match ins.last_mut() {
                Some((last, times)) if *last == place => *times += 1,
                _ => ins.push((place, 1)),
            }
        }
        let times =
            |(place, n): &(String, usize)| if *n == 1 { place.clone() } else { format!("{n} x {place}") };
        let ins: Vec<String> = ins.iter().map(times).collect();
        let (gflop, mb) = (self.flops(step) as f64 / 1e9, self.traffic(step) as f64 / 1e6);
        let moved = format!("{} -> {}", ins.join(", "), self.place(step.out));
        format!("{:<14} {:<66} {gflop:>7.2} {mb:>7.1}  {moved:<76} {}", step.kernel, step.name, step.why)
    }

    /// `2x1024x768 bf16`, with `nhwc` for a map stored channels-last.
    fn place(&self, id: BufId) -> String {
        let b = self.buf(id);
        let order = if b.layout.order == Order::ChannelsLast { " nhwc" } else { "" };
        format!("{} {}{order}", dims(&b.shape), b.layout.dtype)
    }

    /// The arena as a table: every owning buffer with its place and life, largest first.
    pub fn memory_map(&self) -> String {
        let mut rows: Vec<(u64, String)> = vec![];
        for (at, life) in self.lives().iter().enumerate() {
            let Some((first, last)) = life else { continue };
            let b = &self.bufs[at];
            let bytes = b.bytes().unwrap_or(0);
            let place = self.place(BufId(at as u32));
            rows.push((
                bytes,
                format!("{:>12} {:>12} {first:>5}..{last:<5} {:<28} {}", b.offset, bytes, place, b.name),
            ));
        }
        rows.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
        let total: u64 = rows.iter().map(|(bytes, _)| bytes).sum();
        let mut out = format!(
            "arena {:.1} MiB holds {} buffers of {:.1} MiB in all\n{:>12} {:>12} {:>12} {:<28} name\n",
            mib(self.arena_bytes),
            rows.len(),
            mib(total),
            "offset",
            "bytes",
            "steps",
            "value"
        );
        rows.iter().for_each(|(_, row)| writeln!(out, "{row}").expect("writing to a String"));
        out
    }
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / (1 << 20) as f64
}
