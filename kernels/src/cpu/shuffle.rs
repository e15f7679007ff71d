//! Pixel shuffle: channels of a cell become pixels.
#![allow(unsafe_code)] // Tasks write disjoint rows through a shared pointer.

use super::ctx::Ctx;
use super::data::{Dst, Src};
use super::pointwise::{get, set};

/// out `[batch, h*by, w*by, c]` from x `[batch, h, w, c*by*by]`, both channels-last: channel `ch*by*by + dy*by + dx` of a
/// cell becomes channel `ch` of its pixel `(dy, dx)`.
pub struct PixelShuffle<'a> {
    pub batch: usize,
    pub h: usize,
    pub w: usize,
    pub c: usize,
    pub by: usize,
    pub x: Src<'a>,
    pub out: Dst<'a>,
}

pub fn pixel_shuffle(ctx: &mut Ctx, mut g: PixelShuffle) {
    let PixelShuffle { batch, h, w, c, by, .. } = g;
    let x = g.x.raw("pixel_shuffle x", batch * h * w, c * by * by);
    let out = g.out.raw("pixel_shuffle out", batch * h * by * w * by, c);
    // Rows of the output over the whole batch; the images lie one after the other on both sides.
    ctx.team(0).par_ranges(batch * h * by, 1, |lo, hi| {
        for row in lo..hi {
            for pixel in 0..w * by {
                let (cell, place) = (row / by * w + pixel / by, row % by * by + pixel % by);
                for ch in 0..c {
                    // SAFETY: both were checked for all cells and pixels; no other task has this row.
                    unsafe { set(out, row * w * by + pixel, ch, get(x, cell, ch * by * by + place)) };
                }
            }
        }
    });
}
