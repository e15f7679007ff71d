//! Packing of constants into the layout of the kernel that reads them; the artifact stores the result.

use crate::cpu;
use half::bf16;
use ttc_ir::plan::Pack;
use ttc_ir::tensor::DType;

/// Elements of a weight of this shape once packed. None when a side is 0, the sizes overflow, or the shape is not one of `pack`.
pub fn packed_len(pack: Pack, dtype: DType, shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1usize, |n, &s| n.checked_mul(s)).filter(|&n| n > 0 && n < 1 << 40)?;
    let (n, k) = match (pack, shape) {
        (Pack::RowMajor, _) => return Some(shape.iter().product()),
        (Pack::Panels, &[n, ..]) => (n, shape[1..].iter().product()),
        (Pack::Conv3x3Panels, &[out, inner, 3, 3]) => (out, cpu::conv3x3_k(inner)),
        (Pack::ConvTransposePanels, &[inner, out, s, t]) if s == t => (cpu::conv_transpose_n(out, s), inner),
        _ => return None,
    };
    Some(match dtype {
        DType::BF16 => cpu::packed_len_bf16(n, k),
        _ => cpu::packed_len_f32(n, k),
    })
}

/// The bytes of a packed constant. `shape` and `pack` fit together, as [`packed_len`] checks.
pub fn pack(pack: Pack, dtype: DType, shape: &[usize], values: &[f32]) -> Vec<u8> {
    let len = packed_len(pack, dtype, shape).expect("the planner packs what fits");
    match dtype {
        DType::BF16 => {
            let mut out = vec![bf16::ZERO; len];
            match (pack, shape) {
                (Pack::RowMajor, _) => out.iter_mut().zip(values).for_each(|(o, &v)| *o = bf16::from_f32(v)),
                (Pack::Conv3x3Panels, &[n, c, ..]) => cpu::pack_conv3x3_bf16(values, n, c, &mut out),
                (Pack::ConvTransposePanels, &[c, n, s, _]) => {
                    cpu::pack_conv_transpose_bf16(values, c, n, s, &mut out)
                }
                _ => cpu::pack_bf16(values, shape[0], values.len() / shape[0], &mut out),
            }
            bytemuck::cast_slice(&out).to_vec()
        }
        _ => {
            let mut out = vec![0.0f32; len];
            match (pack, shape) {
                (Pack::RowMajor, _) => out.copy_from_slice(values),
                (Pack::Conv3x3Panels, &[n, c, ..]) => cpu::pack_conv3x3_f32(values, n, c, &mut out),
                (Pack::ConvTransposePanels, &[c, n, s, _]) => {
                    cpu::pack_conv_transpose_f32(values, c, n, s, &mut out)
                }
                _ => cpu::pack_f32(values, shape[0], values.len() / shape[0], &mut out),
            }
            bytemuck::cast_slice(&out).to_vec()
        }
    }
}
