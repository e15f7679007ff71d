"""Writes the op cases beside this file: inputs, weights and expected outputs by PyTorch, in f64, rounded to f32.

    pip install torch && python make_cases.py

Only a new op needs a new case; the committed files are what the tests read.
"""

import math
import os

import torch
import torch.nn.functional as F

torch.manual_seed(0)
torch.set_default_dtype(torch.float64)


def t(*shape):
    # Multiples of 1/64 are exact in f32 and short in text.
    return torch.randint(-96, 97, shape).double() / 64


def ron(tensor):
    values = ", ".join(repr(v) for v in tensor.float().flatten().tolist())
    return f"(shape: {list(tensor.shape)}, data: [{values}])"


def case(op, ins, out, weights=(), flops=0, tolerance=1e-6):
    name = "".join("_" + c.lower() if c.isupper() else c for c in op.split("(")[0]).lstrip("_")
    text = f"// {op.split('(')[0]}: by PyTorch, see make_cases.py.\n(\n    op: \"{op}\",\n"
    text += "    ins: [\n" + "".join(f"        {ron(i)},\n" for i in ins) + "    ],\n"
    text += "    weights: [\n" + "".join(f"        {ron(w)},\n" for w in weights) + "    ],\n"
    text += f"    out: {ron(out)},\n    flops: {flops},\n    tolerance: {tolerance},\n)\n"
    with open(os.path.join(os.path.dirname(__file__), name + ".ron"), "w") as f:
        f.write(text)


def rope(x, h, w, base):
    d = x.shape[-1]
    freq = base ** (-4 * torch.arange(d // 4) / d)
    tokens = torch.arange(h * w)
    halves = []
    for part, pos in zip(x.split(d // 2, -1), (tokens // w, tokens % w)):
        a = pos.double()[:, None] * freq
        u, v = part.split(d // 4, -1)
        halves += [u * a.cos() - v * a.sin(), v * a.cos() + u * a.sin()]
    return torch.cat(halves, -1)


def heads(x, n):
    b, t_, c = x.shape
    return x.reshape(b, t_, n, c // n).transpose(1, 2)


x, w, b, r = t(2, 3, 4), t(5, 4), t(5), t(2, 3, 5)
norm = lambda v, eps=1e-6: F.layer_norm(v, v.shape[-1:], eps=eps)
case("Linear(out: 5, norm: Some(1e-6), act: Gelu, residuals: 1)", [x, r], F.gelu(F.linear(norm(x), w, b)) + r, [w, b], 2 * 6 * 20)
w1, b1, w2, b2 = t(6, 4), t(6), t(5, 6), t(5)
case("Mlp(hidden: 6, out: 5, residuals: 1)", [x, r], F.linear(F.gelu(F.linear(x, w1, b1)), w2, b2) + r, [w1, b1, w2, b2], 2 * 6 * 6 * 9)
g = t(4)
case("LayerNorm(eps: 1e-6)", [x], F.layer_norm(x, (4,), g, t0 := t(4), 1e-6), [g, t0])
qkv = t(1, 3, 12)
case("SplitHeads(heads: 2, part: 1, of: 3)", [qkv], heads(qkv[..., 4:8], 2))
h4 = t(1, 2, 3, 2)
case("MergeHeads", [h4], h4.transpose(1, 2).reshape(1, 3, 4))
q = t(1, 2, 6, 8)
case("Rope2d(h: 2, w: 3, base: 100)", [q], rope(q, 2, 3, 100.0))
m1, m2 = t(1, 2, 3, 4), t(1, 2, 5, 4)
case("MatMul(transpose_b: true)", [m1, m2], m1 @ m2.transpose(-1, -2), flops=2 * 2 * 3 * 5 * 4)
case("Scale(d: 16)", [x], x / 4)
case("Softmax", [x * 8], torch.softmax(x * 8, -1))
kv, qq = t(1, 6, 16), t(1, 4, 8)
qh, kh, vh = heads(qq, 1), heads(kv[..., :8], 1), heads(kv[..., 8:], 1)
att = torch.softmax(rope(qh, 2, 2, 100.0) @ rope(kh, 2, 3, 100.0).transpose(-1, -2) / math.sqrt(8), -1) @ vh
case("Attention(heads: 1, d: 8, at: (0, 0, 8), rope: Some(base: 100, q: (2, 2), k: (2, 3)))", [qq, kv, kv], att.transpose(1, 2).reshape(1, 4, 8), flops=4 * 4 * 8 * 6)
wide = torch.linspace(-6, 6, 24).float().double().reshape(2, 3, 4)
case("Gelu", [wide], F.gelu(wide))
case("Relu", [x], x.relu())
case("Add", [x, y := t(2, 3, 4)], x + y)
im, cw, cb, pw, pb = t(1, 2, 3, 4), t(3, 2, 3, 3), t(3), t(2, 3, 1, 1), t(2)
up = F.interpolate(im.relu(), scale_factor=2, mode="bilinear", align_corners=True)
conv = F.conv2d(F.conv2d(up, cw, cb, stride=2, padding=1).relu(), pw, pb)
case("Conv2d(out: 3, kernel: 3, stride: 2, pad: 1, pre_relu: true, upsample: true, act: Relu, pointwise: Some(2), residuals: 1)",
     [im, cr := t(1, 2, 3, 4)], conv + cr, [cw, cb, pw, pb], 2 * 12 * 3 * (18 + 2))
tw, tb = t(2, 3, 2, 2), t(3)
case("ConvTranspose2d(out: 3, kernel: 2)", [im], F.conv_transpose2d(im, tw, tb, stride=2), [tw, tb], 2 * 48 * 3 * 2)
case("Upsample(by: 2)", [im], F.interpolate(im, scale_factor=2, mode="bilinear", align_corners=True))
case("Crop(h: 2, w: 3)", [im], im[:, :, :2, :3])
tok = t(1, 6, 2)
case("ToMap(h: 2, w: 3)", [tok], tok.transpose(1, 2).reshape(1, 2, 2, 3))
case("ToTokens", [im], im.flatten(2).transpose(1, 2))
ps = t(1, 8, 2, 3)
case("PixelShuffle(by: 2)", [ps], F.pixel_shuffle(ps, 2))
case("Concat(axis: 1)", [x, c2 := t(2, 2, 4)], torch.cat([x, c2], 1))
case("Slice(axis: 2, start: 1, len: 2)", [x], x[:, :, 1:3])
raw = t(1, 6, 2, 3)
v = raw[:, :3].permute(0, 2, 3, 1)
d = v.norm(dim=-1, keepdim=True)
case("Points", [raw], v / d.clamp(min=1e-8) * torch.expm1(d), tolerance=2e-6)
case("Confidence(channel: 3, floor: 1)", [raw], 1 + raw[:, 3].exp())
case("Descriptors(start: 1, len: 4)", [raw], F.normalize(raw[:, 1:5], dim=1).permute(0, 2, 3, 1))
