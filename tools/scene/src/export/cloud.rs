//! The pointmaps of a pair (or of any number of views in one frame) and the choice of points worth keeping.

use super::ExportError;
use crate::photo::Valid;

/// One view's dense output. All arrays are row-major and cover the whole model picture, padding included.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    pub width: u32,
    pub height: u32,
    /// `[height, width, 3]`, camera 1's frame, OpenCV axes.
    pub pts3d: &'a [f32],
    /// `[height, width]`, at least 1.
    pub conf: &'a [f32],
    /// `[height, width, 3]`: the model's own pixels, so that colours and points cannot drift apart.
    pub rgb: &'a [u8],
    /// The part that shows the photo; points outside are padding and are never exported as points.
    pub valid: Valid,
}

/// Which points PLY and GLB keep.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ConfThreshold {
    /// Keep confidence >= this value. The network's confidence starts at 1 and is not a calibrated probability.
    Absolute(f32),
    /// Keep confidence >= this percentile (0 keeps all, 50 half) of the real pixels of **all** views together,
    /// padding and non-finite values left out, linear between ranks. So masked or padded borders do not shift it.
    Percentile(f32),
}

#[derive(Clone, Copy, Debug)]
pub struct Cloud<'a> {
    pub views: &'a [View<'a>],
    pub min_conf: ConfThreshold,
    /// Goes into the file as a comment: the model, the weights' licence. May be empty.
    pub note: &'a str,
}

/// What became of the pixels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Points in the file; for an NPZ, pixels in the arrays.
    pub points: usize,
    /// Pixels with NaN or infinity in the point or its confidence: dropped from PLY and GLB, kept in an NPZ,
    /// whose arrays have a place for every pixel.
    pub non_finite: usize,
    /// Pixels below the confidence threshold.
    pub low_confidence: usize,
    /// Pixels that show padding.
    pub padding: usize,
}

/// The points that passed, in view and row order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Points {
    pub xyz: Vec<[f32; 3]>,
    pub rgb: Vec<[u8; 3]>,
    pub conf: Vec<f32>,
    pub written: Written,
}

/// One pixel of a view.
pub(super) struct Pixel {
    pub xyz: [f32; 3],
    pub rgb: [u8; 3],
    pub conf: f32,
    pub real: bool,
}

impl Pixel {
    pub fn is_finite(&self) -> bool {
        self.conf.is_finite() && self.xyz.iter().all(|v| v.is_finite())
    }
}

impl<'a> View<'a> {
    pub(super) fn check(&self, view: usize) -> Result<(), ExportError> {
        let pixels = u64::from(self.width) * u64::from(self.height);
        let arrays =
            [("pts3d", self.pts3d.len(), 3), ("conf", self.conf.len(), 1), ("rgb", self.rgb.len(), 3)];
        for (array, found, channels) in arrays {
            if found as u64 != pixels * channels {
                let expected = (pixels * channels) as usize;
                return Err(ExportError::Shape {
                    view,
                    array,
                    found,
                    expected,
                    width: self.width,
                    height: self.height,
                });
            }
        }
        Ok(())
    }

    /// Row-major; `check` must have passed.
    pub(super) fn pixels(&self) -> impl Iterator<Item = Pixel> + use<'a> {
        let (width, valid) = (self.width.max(1), self.valid);
        let points = self.pts3d.chunks_exact(3).zip(self.rgb.chunks_exact(3)).zip(self.conf);
        points.zip(0u32..).map(move |(((p, c), &conf), i)| Pixel {
            xyz: [p[0], p[1], p[2]],
            rgb: [c[0], c[1], c[2]],
            conf,
            real: valid.contains(i % width, i / width),
        })
    }
}

impl Cloud<'_> {
    pub(super) fn check(&self) -> Result<(), ExportError> {
        self.views.iter().zip(1..).try_for_each(|(v, i)| v.check(i))
    }

    /// The smallest confidence that is kept.
    pub fn threshold(&self) -> Result<f32, ExportError> {
        let (p, bad) = match self.min_conf {
            ConfThreshold::Absolute(v) => {
                return if v.is_nan() { Err(ExportError::Threshold(v)) } else { Ok(v) };
            }
            ConfThreshold::Percentile(p) => (p, !(0.0..=100.0).contains(&p)),
        };
        if bad {
            return Err(ExportError::Threshold(p));
        }
        let kept = self.views.iter().flat_map(View::pixels).filter(|p| p.real && p.is_finite());
        let mut conf: Vec<f32> = kept.map(|p| p.conf).collect();
        let Some(last) = conf.len().checked_sub(1) else { return Ok(f32::NEG_INFINITY) };
        let rank = f64::from(p) / 100.0 * last as f64;
        let (_, low, above) = conf.select_nth_unstable_by(rank as usize, f32::total_cmp);
        let low = f64::from(*low);
        let high = above.iter().copied().min_by(f32::total_cmp).map_or(low, f64::from);
        Ok((low + (high - low) * rank.fract()) as f32)
    }

    /// The real, finite and confident points of all views.
    pub fn points(&self) -> Result<Points, ExportError> {
        self.check()?;
        let threshold = self.threshold()?;
        let mut points = Points::default();
        for pixel in self.views.iter().flat_map(View::pixels) {
            if !pixel.real {
                points.written.padding += 1;
            } else if !pixel.is_finite() {
                points.written.non_finite += 1;
            } else if pixel.conf < threshold {
                points.written.low_confidence += 1;
            } else {
                points.xyz.push(pixel.xyz);
                points.rgb.push(pixel.rgb);
                points.conf.push(pixel.conf);
            }
        }
        points.written.points = points.xyz.len();
        Ok(points)
    }
}
