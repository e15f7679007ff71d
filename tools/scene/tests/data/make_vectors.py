"""Makes the test vectors in this folder: python3 make_vectors.py (Pillow 13, numpy).

Pictures come from `noise`, which the Rust tests repeat, so only results are stored.
"""

import io
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

HERE = Path(__file__).parent


def noise(width, height, channels=3):
    """Noise with many clipped samples: ringing at saturated pixels is what tells resamplers apart."""
    x = np.arange(width * height * channels, dtype=np.uint64) * 2654435761 % 2**32
    x ^= x >> 15
    x = x * 2246822519 % 2**32
    x ^= x >> 13
    v = np.clip((x & 0x1FF).astype(np.int64) - 128, 0, 255)
    return v.astype(np.uint8).reshape(height, width, channels)


def smooth(width, height):
    """A picture that survives lossy compression."""
    y, x = np.mgrid[0:height, 0:width]
    rgb = [128 + 100 * np.sin(x / 7), 128 + 100 * np.cos(y / 5), 128 + 60 * np.sin((x + y) / 9)]
    return np.stack(rgb, -1).astype(np.uint8)


def resize(rgb, size, filter):
    return np.asarray(Image.fromarray(rgb).resize(size, filter))


LANCZOS, BICUBIC = Image.Resampling.LANCZOS, Image.Resampling.BICUBIC


def resize_vectors():
    out = {}
    for (w, h), size, name, filter in [
        ((61, 47), (48, 32), "lanczos", LANCZOS),
        ((61, 47), (17, 40), "lanczos", LANCZOS),
        ((300, 200), (32, 16), "lanczos", LANCZOS),
        ((61, 47), (61, 20), "lanczos", LANCZOS),
        ((61, 47), (20, 47), "lanczos", LANCZOS),
        ((20, 15), (48, 36), "bicubic", BICUBIC),
        ((20, 15), (33, 15), "bicubic", BICUBIC),
        ((61, 47), (30, 20), "bicubic", BICUBIC),
        ((20, 15), (48, 36), "lanczos", LANCZOS),
        # Pillow 13 runs the vertical pass first if the height shrinks by more than twice what the width does:
        # just so, just not so, and with a growing width.
        ((40, 61), (30, 40), "lanczos", LANCZOS),
        ((40, 60), (30, 40), "lanczos", LANCZOS),
        ((20, 40), (33, 30), "lanczos", LANCZOS),
        ((20, 40), (33, 50), "bicubic", BICUBIC),
    ]:
        out[f"{name}_{w}x{h}_{size[0]}x{size[1]}"] = resize(noise(w, h), size, filter)
    # A photo-sized picture by its checksum, in two halves so that they survive as float32.
    for w, h, size in [(4000, 3000, (512, 384)), (3024, 4032, (384, 512))]:
        crc = zlib.crc32(resize(noise(w, h), size, LANCZOS).tobytes())
        out[f"crc_{w}x{h}_{size[0]}x{size[1]}"] = np.array([crc >> 16, crc & 0xFFFF], np.int32)
    np.savez_compressed(HERE / "resize.npz", **out)


def crop_reference(w, h, size, allow_square=False):
    """The 512 rule with another long side: round each side, crop to multiples of 16 about (W//2, H//2)."""
    long = max(w, h)
    rw, rh = round(w * size / long), round(h * size / long)
    image = Image.fromarray(noise(w, h)).resize((rw, rh), LANCZOS if long > size else BICUBIC)
    cx, cy = rw // 2, rh // 2
    half_w, half_h = rw // 16 * 8, rh // 16 * 8
    if rw == rh and not allow_square:
        half_h = half_w * 3 // 4
    return np.asarray(image.crop((cx - half_w, cy - half_h, cx + half_w, cy + half_h)))


def square_reference(w, h, size):
    short = min(w, h)
    rw, rh = round(w * size / short), round(h * size / short)
    image = Image.fromarray(noise(w, h)).resize((rw, rh), LANCZOS if short > size else BICUBIC)
    left, top = rw // 2 - size // 2, rh // 2 - size // 2
    return np.asarray(image.crop((left, top, left + size, top + size)))


def pad_reference(w, h, size):
    side = max(w, h)
    canvas = Image.new("RGB", (side, side), (128, 128, 128))
    canvas.paste(Image.fromarray(noise(w, h)), ((side - w) // 2, (side - h) // 2))
    return np.asarray(canvas.resize((size, size), LANCZOS if side > size else BICUBIC))


def view_vectors():
    out = {}
    # Landscape, portrait, square, square only after rounding, a tie in rounding (64 * 77 / 128 = 38.5), a tie
    # upwards (39 * 64 / 128 = 19.5), enlarged.
    for w, h in [(100, 75), (75, 100), (80, 80), (257, 256), (128, 77), (39, 128), (40, 31), (200, 113)]:
        out[f"crop_{w}x{h}_64"] = crop_reference(w, h, 64)
    out["cropsq_80x80_64"] = crop_reference(80, 80, 64, allow_square=True)
    for w, h in [(100, 75), (75, 101), (30, 24), (32, 32)]:
        out[f"square_{w}x{h}_32"] = square_reference(w, h, 32)
    for w, h in [(100, 75), (75, 100), (31, 20), (32, 32), (96, 5)]:
        out[f"pad_{w}x{h}_32"] = pad_reference(w, h, 32)
    np.savez_compressed(HERE / "view.npz", **out)


def over_white(rgb, alpha):
    """Exact, rounded to nearest."""
    rgb, alpha = rgb.astype(np.int64), alpha.astype(np.int64)[..., None]
    return ((rgb * alpha + 255 * (255 - alpha) + 127) // 255).astype(np.uint8)


def decode_vectors():
    w, h = 24, 20
    out = {}

    def save(name, image, pixels=None, **options):
        image.save(HERE / name, **options)
        out[name] = np.asarray(Image.open(HERE / name).convert("RGB")) if pixels is None else pixels

    rgb, lossy = noise(w, h), smooth(48, 40)
    alpha = noise(w, h, 1)[..., 0]
    save("rgba.png", Image.fromarray(np.dstack([rgb, alpha])), over_white(rgb, alpha))
    gray = rgb[..., 0].copy()
    la = Image.merge("LA", [Image.fromarray(gray), Image.fromarray(alpha)])
    save("gray_alpha.png", la, over_white(np.dstack([gray] * 3), alpha))
    index = (noise(w, h, 1)[..., 0] % 8).astype(np.uint8)
    palette = noise(8, 1)[0]
    image = Image.fromarray(index, "P")
    image.putpalette(palette.tobytes())
    levels = np.array([0, 255, 128, 255, 255, 10, 255, 255], np.uint8)
    save("palette_trns.png", image, over_white(palette[index], levels[index]), transparency=levels.tobytes())
    bits = gray > 100
    save("one_bit.png", Image.fromarray(bits), np.dstack([bits * np.uint8(255)] * 3))
    gray16 = (np.arange(w * h, dtype=np.uint32) * 65535 // (w * h - 1)).astype(np.uint16).reshape(h, w)
    scaled = np.floor(gray16 / 257 + 0.5).astype(np.uint8)
    save("gray16.png", Image.fromarray(gray16), np.dstack([scaled] * 3))
    frames = [Image.fromarray(noise(w, h)[::s, :][:h].copy()) for s in (1, -1)]
    save("animated.png", frames[0], rgb, save_all=True, append_images=frames[1:], duration=100)
    save("animated.webp", frames[0], rgb, save_all=True, append_images=frames[1:], lossless=True, duration=100)
    save("lossless.webp", Image.fromarray(rgb), rgb, lossless=True)
    save("lossy.webp", Image.fromarray(lossy), quality=90)

    save("baseline.jpg", Image.fromarray(lossy), quality=92, subsampling=0)
    save("restart.jpg", Image.fromarray(lossy), quality=92, subsampling=0, restart_marker_blocks=3)
    save("progressive_420.jpg", Image.fromarray(lossy), quality=92, subsampling=2, progressive=True)
    save("gray.jpg", Image.fromarray(lossy).convert("L"), quality=92)
    ink = np.dstack([255 - lossy, np.full(lossy.shape[:2], 20, np.uint8)])
    save("cmyk.jpg", Image.fromarray(ink, "CMYK"), quality=92, subsampling=0)
    # Pillow cannot write YCCK: the same data with the Adobe transform flag set to 2 is read as such.
    body = bytearray((HERE / "cmyk.jpg").read_bytes())
    body[body.index(b"Adobe") + 11] = 2
    (HERE / "ycck.jpg").write_bytes(body)
    out["ycck.jpg"] = np.asarray(Image.open(io.BytesIO(body)).convert("RGB"))

    for name in ["other.gif", "other.tif", "other.bmp"]:
        Image.fromarray(noise(16, 16)).save(HERE / name)
    np.savez_compressed(HERE / "decode.npz", **out)


def numpy_vectors():
    """What numpy writes, in every dtype that is read; `v` in each is 0, 1, 2 ... as far as the type goes."""
    v = np.arange(6).reshape(2, 3)
    arrays = {t: v.astype(d) for t, d in
              [("f2", "<f2"), ("f4", "<f4"), ("f8", "<f8"), ("i4", "<i4"), ("i8", "<i8"), ("u1", "u1"), ("b1", "?")]}
    arrays["scalar"] = np.float32(7)
    arrays["line"] = np.arange(4, dtype=np.float32)
    arrays["empty"] = np.zeros((0, 3), np.float32)
    np.savez(HERE / "numpy_stored.npz", **arrays)
    np.savez_compressed(HERE / "numpy_deflated.npz", **arrays)
    np.savez(HERE / "numpy_fortran.npz", x=np.asfortranarray(v.astype(np.float32)))


if __name__ == "__main__":
    resize_vectors()
    view_vectors()
    decode_vectors()
    numpy_vectors()
