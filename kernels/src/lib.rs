//! Kernels: each folder is one, with what it accepts, how it wants its operands, and how it runs.
//!
//! The planner asks [`select`] for the first kernel of [`KERNELS`] that accepts a node; the executor finds it
//! again by name. A kernel's reference is the `eval` of the op that it computes.

mod attention;
mod conv3x3;
mod conv_transpose;
mod copy;
pub mod cpu;
mod eltwise;
mod gemm;
mod head;
mod layer_norm;
mod mlp;
pub mod pack;
mod patch_embed;
mod pixel_shuffle;
mod reference;
pub use reference::to_tensor;
mod upsample;

use arrayvec::ArrayVec;
use cpu::{Ctx, Data, DataMut, Dst, Packed, Src};
use ttc_ir::plan::{Layout, Order, Pack};
use ttc_ir::tensor::DType;
use ttc_ir::{Math, Op};

/// Every kernel, most specific first. One line a kernel.
pub const KERNELS: &[&dyn Kernel] = &[
    &gemm::Gemm,
    &mlp::Mlp,
    &attention::Attention,
    &conv3x3::Conv3x3,
    &patch_embed::PatchEmbed,
    &conv_transpose::ConvTranspose,
    &upsample::Upsample,
    &layer_norm::LayerNorm,
    &eltwise::Eltwise,
    &head::Points,
    &head::Confidence,
    &head::Descriptors,
    &pixel_shuffle::PixelShuffle,
    &copy::Copy,
    &reference::Reference,
];

/// A way of computing some ops.
pub trait Kernel: Sync {
    /// Unique; artifacts name kernels by it.
    fn name(&self) -> &'static str;

    /// How it would compute this node, or None if it cannot.
    fn accepts(&self, site: &Site) -> Option<Choice>;

    /// Scratch bytes that each worker needs at a site that it accepts.
    fn scratch_bytes(&self, _site: &Site) -> usize {
        0
    }

    /// Computes `call.out`. The call is one that `accepts` described.
    fn run(&self, call: Call, ctx: &mut Ctx);
}

/// What the planner knows of a node.
#[derive(Clone, Copy)]
pub struct Site<'a> {
    pub op: &'a Op,
    pub ins: &'a [&'a [usize]],
    pub out: &'a [usize],
    /// Order in which each input is stored.
    pub orders: &'a [Order],
    pub math: Math,
}

impl Site<'_> {
    /// Whether every input is stored in that order, residuals included: they are read beside the output, row by row.
    pub fn all(&self, order: Order) -> bool {
        self.orders.iter().all(|o| *o == order)
    }
}

/// How a kernel wants a node's values.
pub struct Choice {
    /// Order of the output.
    pub order: Order,
    /// Inputs that must keep all f32 bits: they are added, normalised or exponentiated. The others only become operands
    /// of products and may be stored in the plan's operand type.
    pub exact: Vec<bool>,
    pub consts: Vec<Wanted>,
    /// What the plan prints as the reason.
    pub why: String,
}

/// A constant that a kernel reads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wanted {
    /// The node's weight number `index`.
    Weight { index: usize, pack: Pack, dtype: DType },
    /// Cosines and sines, `[2, positions, d]`, f32.
    RopeTable { base: f32, positions: usize, d: usize },
}

impl Wanted {
    /// An f32 weight as it is: a bias, an affine parameter.
    pub fn plain(index: usize) -> Wanted {
        Wanted::Weight { index, pack: Pack::RowMajor, dtype: DType::F32 }
    }

    /// A product's weight in panels of the operand type.
    pub fn packed(index: usize, pack: Pack, math: Math) -> Wanted {
        Wanted::Weight { index, pack, dtype: math.operand() }
    }
}

/// A value to read.
#[derive(Clone, Copy)]
pub struct Value<'a> {
    pub shape: &'a [usize],
    pub layout: Layout,
    pub data: Data<'a>,
}

/// A value to write.
pub struct ValueMut<'a> {
    pub shape: &'a [usize],
    pub layout: Layout,
    pub data: DataMut<'a>,
}

/// Most inputs and constants of a call; they live on the stack, so that running allocates nothing.
pub const MAX_OPERANDS: usize = 8;

/// One kernel call.
pub struct Call<'a> {
    pub op: &'a Op,
    pub ins: ArrayVec<Value<'a>, MAX_OPERANDS>,
    pub consts: ArrayVec<Data<'a>, MAX_OPERANDS>,
    /// Shapes of the op's weights before packing, as far as the constants are weights.
    pub out: ValueMut<'a>,
    pub math: Math,
}

impl<'a> Value<'a> {
    /// The value as rows of `stride` elements.
    pub fn rows(&self, stride: usize) -> Src<'a> {
        Src { data: self.data, stride }
    }

    /// All elements but those of the last stored axis, and that axis: tokens or pixels, and channels.
    pub fn matrix(&self) -> (usize, usize) {
        matrix(self.shape, self.layout.order)
    }

    /// The elements, where the plan keeps them in f32.
    pub fn f32(&self) -> &'a [f32] {
        f32s(self.data)
    }
}

impl<'a> ValueMut<'a> {
    pub fn rows(self, stride: usize) -> Dst<'a> {
        Dst { data: self.data, stride }
    }

    pub fn matrix(&self) -> (usize, usize) {
        matrix(self.shape, self.layout.order)
    }
}

fn matrix(shape: &[usize], order: Order) -> (usize, usize) {
    let columns = match order {
        Order::RowMajor => shape[shape.len() - 1],
        Order::ChannelsLast => shape[1],
    };
    (shape.iter().product::<usize>() / columns, columns)
}

/// Packed weights of either type.
pub(crate) fn packed<'a>(data: Data<'a>) -> Packed<'a> {
    match data {
        Data::F32(d) => Packed::F32(d),
        Data::Bf16(d) => Packed::Bf16(d),
    }
}

/// A constant or value that is f32 by its kernel's own [`Choice`].
pub(crate) fn f32s<'a>(data: Data<'a>) -> &'a [f32] {
    match data {
        Data::F32(d) => d,
        Data::Bf16(_) => panic!("the plan stores in bf16 what its kernel wants exact"),
    }
}

/// The residual inputs of a call, which come after its first `skip` inputs, as rows of `stride`.
pub(crate) fn residuals<'a>(call: &Call<'a>, skip: usize, stride: usize) -> [Option<Src<'a>>; 2] {
    let at = |i: usize| call.ins.get(skip + i).map(|v| v.rows(stride));
    [at(0), at(1)]
}

/// The core's name of an activation.
pub(crate) fn act(act: ttc_ir::ops::Act) -> cpu::Act {
    match act {
        ttc_ir::ops::Act::None => cpu::Act::None,
        ttc_ir::ops::Act::Relu => cpu::Act::Relu,
        ttc_ir::ops::Act::Gelu => cpu::Act::Gelu,
    }
}

/// The core's name of a precision.
pub(crate) fn core_math(math: Math) -> cpu::Math {
    match math {
        Math::F32 => cpu::Math::F32,
        Math::Bf16 => cpu::Math::Bf16,
    }
}

/// The first kernel that accepts the node. There always is one: the reference takes every op.
pub fn select(site: &Site) -> (&'static dyn Kernel, Choice) {
    let mut accepted = KERNELS.iter().filter_map(|&k| Some((k, k.accepts(site)?)));
    accepted.next().expect("the reference kernel accepts every op")
}

/// The kernel of that name.
pub fn find(name: &str) -> Option<&'static dyn Kernel> {
    KERNELS.iter().copied().find(|k| k.name() == name)
}
