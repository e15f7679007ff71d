//! The closed set of operations. Each op's file holds its formula, shape inference, cost and reference
//! evaluation; this file holds the list and what is common to all.

use crate::tensor::{Tensor, dims, fits};
use serde::{Deserialize, Serialize};

/// What an op must say about itself.
pub trait OpDef {
    /// Number of tensor inputs for these parameters.
    fn arity(&self) -> usize {
        1
    }

    /// Output shape from the input shapes (there are exactly [`arity`](OpDef::arity) of them), or what was expected.
    fn infer(&self, ins: &[&[usize]]) -> Result<Vec<usize>, String>;

    /// Official suffix and shape of each weight; the input shapes have passed [`infer`](OpDef::infer).
    fn weights(&self, _ins: &[&[usize]]) -> Vec<(&'static str, Vec<usize>)> {
        vec![]
    }

    /// Floating-point operations of the matrix products and convolutions, a multiply-add counting two.
    fn flops(&self, _ins: &[&[usize]], _out: &[usize]) -> u64 {
        0
    }

    /// The definition: plain f32 loops over inputs and weights in the order of the methods above.
    fn eval(&self, ins: &[&Tensor], weights: &[&Tensor]) -> Tensor;
}

macro_rules! ops {
    ($($module:ident :: $op:ident),* $(,)?) => {
        $(pub mod $module;)*
        $(pub use $module::$op;)*

        /// One operation with its parameters.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        pub enum Op {
            $($op($op),)*
        }

        impl Op {
            /// Every op's name, as model files write it.
            pub const NAMES: &[&str] = &[$(stringify!($op)),*];

            /// The op's name, as model files write it.
            pub fn name(&self) -> &'static str {
                match self { $(Op::$op(_) => stringify!($op),)* }
            }

            fn def(&self) -> &dyn OpDef {
                match self { $(Op::$op(op) => op,)* }
            }
        }

        $(impl From<$op> for Op {
            fn from(op: $op) -> Op { Op::$op(op) }
        })*
    };
}

// One line an op, and the list of all there are.
ops! {
    input::Input,
    linear::Linear,
    mlp::Mlp,
    layer_norm::LayerNorm,
    split_heads::SplitHeads,
    merge_heads::MergeHeads,
    rope2d::Rope2d,
    matmul::MatMul,
    scale::Scale,
    softmax::Softmax,
    attention::Attention,
    gelu::Gelu,
    relu::Relu,
    add::Add,
    conv2d::Conv2d,
    conv_transpose2d::ConvTranspose2d,
    upsample::Upsample,
    crop::Crop,
    to_map::ToMap,
    to_tokens::ToTokens,
    pixel_shuffle::PixelShuffle,
    concat::Concat,
    slice::Slice,
    points::Points,
    confidence::Confidence,
    descriptors::Descriptors,
}

impl Op {
    pub fn arity(&self) -> usize {
        self.def().arity()
    }

    /// Checks the number of inputs, then infers the output shape.
    pub fn infer(&self, ins: &[&[usize]]) -> Result<Vec<usize>, String> {
        if ins.len() != self.arity() {
            return Err(format!("{} takes {} inputs, not {}", self.name(), self.arity(), ins.len()));
        }
        let out = self.def().infer(ins)?;
        if out.is_empty() {
            return Err("expected at least one axis".into());
        }
        if out.contains(&0) {
            return Err(format!("the result {} would be empty", dims(&out)));
        }
        let mut shapes = self.weights(ins);
        shapes.push(("the result", out.clone()));
        match shapes.iter().find(|(_, shape)| !fits(shape)) {
            Some((what, shape)) => Err(format!("{what} {} is too large", dims(shape))),
            None => Ok(out),
        }
    }

    pub fn weights(&self, ins: &[&[usize]]) -> Vec<(&'static str, Vec<usize>)> {
        self.def().weights(ins)
    }

    pub fn flops(&self, ins: &[&[usize]], out: &[usize]) -> u64 {
        self.def().flops(ins, out)
    }

    pub fn eval(&self, ins: &[&Tensor], weights: &[&Tensor]) -> Tensor {
        self.def().eval(ins, weights)
    }

    /// Parses `Linear(out: 3)`; a parameterless op may leave its parentheses out.
    pub fn parse(text: &str) -> Result<Op, ron::error::SpannedError> {
        let text = text.trim();
        match text.ends_with(')') {
            true => RON.from_str(text),
            false => RON.from_str(&format!("{text}()")),
        }
    }
}

static RON: std::sync::LazyLock<ron::Options> = std::sync::LazyLock::new(|| {
    ron::Options::default().with_default_extension(ron::extensions::Extensions::UNWRAP_VARIANT_NEWTYPES)
});

/// As model files write it, defaults left out: `Linear(out:3072)`.
impl std::fmt::Display for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let text = RON.to_string(self).map_err(|_| std::fmt::Error)?;
        f.write_str(text.strip_suffix("()").unwrap_or(&text))
    }
}

/// Activation applied in an op's epilogue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Act {
    #[default]
    None,
    Relu,
    Gelu,
}

impl Act {
    pub fn apply(self, x: f32) -> f32 {
        match self {
            Act::None => x,
            Act::Relu => relu::relu(x),
            Act::Gelu => gelu::gelu(x),
        }
    }
}

/// `#[serde(skip_serializing_if = "is_default")]`: printed ops show only what is set.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The shape as `[B, N, C]`, or what was expected.
pub(crate) fn tokens(shape: &[usize]) -> Result<[usize; 3], String> {
    shape.try_into().map_err(|_| format!("expected tokens [batch, token, channel], got {}", dims(shape)))
}

/// The shape as `[B, C, H, W]`, or what was expected.
pub(crate) fn map4(shape: &[usize]) -> Result<[usize; 4], String> {
    shape
        .try_into()
        .map_err(|_| format!("expected a map [batch, channel, height, width], got {}", dims(shape)))
}

/// The product, for counting work: large counts saturate instead of wrapping.
pub(crate) fn product(factors: &[usize]) -> u64 {
    factors.iter().fold(1, |n: u64, &f| n.saturating_mul(f as u64))
}

/// Err when `a` and `b` differ.
pub(crate) fn same(what: &str, a: &[usize], b: &[usize]) -> Result<(), String> {
    match a == b {
        true => Ok(()),
        false => Err(format!("{what}: expected equal shapes, got {} and {}", dims(a), dims(b))),
    }
}

/// Err when an epilogue residual has another shape than the output.
pub(crate) fn check_residuals(residuals: &[&[usize]], out: &[usize]) -> Result<(), String> {
    residuals.iter().try_for_each(|r| same("residual", r, out))
}

/// `y + Σ residuals`.
pub(crate) fn add_residuals(y: Tensor, residuals: &[&Tensor]) -> Tensor {
    residuals.iter().fold(y, |y, r| y.add(r))
}
