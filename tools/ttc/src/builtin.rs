//! What the binary carries: the model files, and the small trained model with its pairs for the demo.

/// Model files by their path in the repository.
pub const MODELS: &[(&str, &str)] = &[
    ("models/dust3r.ron", include_str!("../../../models/dust3r.ron")),
    ("models/dust3r-512-linear.ron", include_str!("../../../models/dust3r-512-linear.ron")),
    ("models/dust3r-224-linear.ron", include_str!("../../../models/dust3r-224-linear.ron")),
    ("models/dust3r-tiny.ron", include_str!("../../../models/dust3r-tiny.ron")),
];

/// The built-in model's file and weights.
pub const TINY: &str = "models/dust3r-tiny.ron";

/// Weights of [`TINY`], safetensors.
pub const TINY_WEIGHTS: &[u8] = include_bytes!("../../../models/dust3r-tiny.safetensors");

/// Held-out pairs for [`TINY`]: name, view 1, view 2 (PNG).
pub const PAIRS: &[(&str, &[u8], &[u8])] = &[
    (
        "pair00",
        include_bytes!("../../../models/dust3r-tiny/pair00_view1.png"),
        include_bytes!("../../../models/dust3r-tiny/pair00_view2.png"),
    ),
    (
        "pair01",
        include_bytes!("../../../models/dust3r-tiny/pair01_view1.png"),
        include_bytes!("../../../models/dust3r-tiny/pair01_view2.png"),
    ),
    (
        "pair02",
        include_bytes!("../../../models/dust3r-tiny/pair02_view1.png"),
        include_bytes!("../../../models/dust3r-tiny/pair02_view2.png"),
    ),
];

/// The text of a model file: from disk, or else, for a path of [`MODELS`], the built-in copy, so that an installed binary
/// needs no checkout.
pub fn model_text(path: &str) -> Result<String, String> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(text),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            let built_in = MODELS.iter().find(|(name, _)| *name == path).map(|(_, text)| text.to_string());
            built_in.ok_or_else(|| e.to_string())
        }
        Err(e) => Err(e.to_string()),
    }
}
