//! Two colour maps that keep order for the eye.

/// Turbo, by the published fifth-degree polynomial (A. Mikhailov, 2019): blue for 0, red for 1.
pub fn turbo(t: f32) -> [u8; 3] {
    #[rustfmt::skip]
    const COEFFICIENTS: [[f32; 6]; 3] = [
        [0.13572138, 4.615_392_6, -42.660_324, 132.131_08, -152.942_4, 59.286_38],
        [0.09140261, 2.194_188_4, 4.842_966_6, -14.185_033, 4.277_298_6, 2.829_566],
        [0.106_673_3, 12.641_946, -60.582_05, 110.362_77, -89.903_11, 27.348_25],
    ];
    let t = t.clamp(0.0, 1.0);
    COEFFICIENTS.map(|c| to_u8(c.iter().rev().fold(0.0, |acc, c| acc * t + c)))
}

/// Viridis (matplotlib, CC0), linear between nine of its colours: dark for 0, yellow for 1.
pub fn viridis(t: f32) -> [u8; 3] {
    const COLOURS: [[u8; 3]; 9] = [
        [0x44, 0x01, 0x54],
        [0x47, 0x2d, 0x7b],
        [0x3b, 0x52, 0x8b],
        [0x2c, 0x72, 0x8e],
        [0x21, 0x91, 0x8c],
        [0x28, 0xae, 0x80],
        [0x5e, 0xc9, 0x62],
        [0xad, 0xdc, 0x30],
        [0xfd, 0xe7, 0x25],
    ];
    let position = t.clamp(0.0, 1.0) * 8.0;
    let below = (position as usize).min(7);
    let part = position - below as f32;
    let mix = |c: usize| {
        let (a, b) = (f32::from(COLOURS[below][c]), f32::from(COLOURS[below + 1][c]));
        to_u8((a + (b - a) * part) / 255.0)
    };
    [mix(0), mix(1), mix(2)]
}

fn to_u8(v: f32) -> u8 {
    (v.clamp(0.0, 1.0) * 255.0).round() as u8
}
