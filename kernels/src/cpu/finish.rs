//! The epilogue of a tile: bias, activation, residuals, conversion, store.
#![allow(unsafe_code)] // Operands by pointer.

use super::Isa;
use super::data::{In, Out, PANEL};
use super::math::{Act, act};
use super::simd::{LANES, Op, Simd, dispatch, load, store};
use super::tile::TILE_ROWS;

/// out = act(sums + bias) + residuals.
#[derive(Clone, Copy)]
pub(super) struct Finish {
    /// One f32 a column, or null.
    pub bias: *const f32,
    pub act: Act,
    pub residual: [Option<In>; 2],
    pub out: Out,
}

// SAFETY: the bias is only read; the rest is Sync by itself.
unsafe impl Send for Finish {}
// SAFETY: as above.
unsafe impl Sync for Finish {}

/// Where a tile's rows and columns lie in the output.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// Output (and residual) row of each row of the tile.
    pub rows: [usize; TILE_ROWS],
    pub count: usize,
    /// Output (and residual and bias) column of the tile's first.
    pub col: usize,
    /// Columns that exist, at most [`PANEL`].
    pub cols: usize,
}

impl Place {
    pub fn new(count: usize, col: usize, n: usize, row_of: impl Fn(usize) -> usize) -> Place {
        let mut rows = [0; TILE_ROWS];
        for (i, row) in rows[..count].iter_mut().enumerate() {
            *row = row_of(i);
        }
        Place { rows, count, col, cols: PANEL.min(n - col) }
    }
}

/// Finishes a tile of sums `[place.count][PANEL]`.
///
/// # Safety
/// `isa` is present; sums and operands are valid at `place`.
pub(super) unsafe fn finish(isa: Isa, fin: &Finish, sums: *const f32, place: &Place) {
    // SAFETY: passed on from the caller.
    unsafe { dispatch(isa, FinishOp { fin, sums, place }) }
}

struct FinishOp<'a> {
    fin: &'a Finish,
    sums: *const f32,
    place: &'a Place,
}

impl Op for FinishOp<'_> {
    type Result = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let FinishOp { fin, sums, place } = self;
        // SAFETY: passed on from the caller.
        unsafe {
            for (i, &row) in place.rows[..place.count].iter().enumerate() {
                for from in (0..place.cols).step_by(LANES) {
                    let n = LANES.min(place.cols - from);
                    let col = place.col + from;
                    let mut x = S::load(sums.add(i * PANEL + from));
                    if !fin.bias.is_null() {
                        let bias = fin.bias.add(col);
                        x = S::add(x, if n == LANES { S::load(bias) } else { S::load_n(bias, n) });
                    }
                    x = act::<S>(fin.act, x);
                    for r in fin.residual.iter().flatten() {
                        x = S::add(x, load::<S>(r.at(row, col), 0, n));
                    }
                    store::<S>(fin.out.at(row, col), 0, n, x);
                }
            }
        }
    }
}
