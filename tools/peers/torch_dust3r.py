#!/usr/bin/env python3
"""DUSt3R ViT-L 512 DPT in plain PyTorch: a peer to compare numbers and times with, never a dependency.

Runs one image pair with the synthetic weights of the goldens, whose values follow from the parameter names
alone, so nothing is downloaded. Needs torch, numpy and pillow.

    torch_dust3r.py --size 512x512 --mode f32 --img1 a.png --img2 b.png --out pair.npz

Modes: f32; bf16-autocast (f32 weights, the whole network under autocast); bf16 (weights and activations in
bf16). In all of them the rotary embedding and the final exponentials are computed in f32.
"""
import argparse, json, math, resource, statistics, time
import numpy as np, torch, torch.nn.functional as F
from PIL import Image

HEAD, ENC, DEC, ENC_LAYERS, DEC_LAYERS, HOOKS = 64, 1024, 768, 24, 12, (0, 6, 9, 12)
SEED, DPT, PYRAMID = 0xD057E12D057E12D0, 256, (96, 192, 384, 768)


# ---- Parameters: every (name, shape) that prediction reads, and the synthetic values.

def shapes():
    def layer(name, *weight, out=None, bias=True):
        yield f"{name}.weight", weight
        if bias:
            yield f"{name}.bias", (out or weight[0],)

    def block(name, d, linears, norms):
        for norm in norms:
            yield from layer(f"{name}.{norm}", d)
        for linear, rows in linears.items():
            yield from layer(f"{name}.{linear}", rows * d, d)
        yield from layer(f"{name}.mlp.fc1", 4 * d, d)
        yield from layer(f"{name}.mlp.fc2", d, 4 * d)

    own = {"attn.qkv": 3, "attn.proj": 1}
    cross = {f"cross_attn.{p}": 1 for p in ("projq", "projk", "projv", "proj")}
    yield from layer("patch_embed.proj", ENC, 3, 16, 16)
    for i in range(ENC_LAYERS):
        yield from block(f"enc_blocks.{i}", ENC, own, ("norm1", "norm2"))
    yield from layer("enc_norm", ENC)
    yield from layer("decoder_embed", DEC, ENC)
    for branch in ("dec_blocks", "dec_blocks2"):
        for i in range(DEC_LAYERS):
            yield from block(f"{branch}.{i}", DEC, own | cross, ("norm1", "norm_y", "norm2", "norm3"))
    yield from layer("dec_norm", DEC)
    for k in (1, 2):
        dpt = f"downstream_head{k}.dpt"
        for i, c in enumerate(PYRAMID):
            yield from layer(f"{dpt}.act_postprocess.{i}.0", c, DEC if i else ENC, 1, 1)
            yield from layer(f"{dpt}.scratch.layer{i + 1}_rn", DPT, c, 3, 3, bias=False)
            for unit in (1, 2) if i < 3 else (2,):  # refinenet4 has one input: its first unit is unused
                for conv in (1, 2):
                    yield from layer(f"{dpt}.scratch.refinenet{i + 1}.resConfUnit{unit}.conv{conv}", DPT, DPT, 3, 3)
            yield from layer(f"{dpt}.scratch.refinenet{i + 1}.out_conv", DPT, DPT, 1, 1)
        for i, c, kernel in ((0, 96, 4), (1, 192, 2), (3, 768, 3)):
            yield from layer(f"{dpt}.act_postprocess.{i}.1", c, c, kernel, kernel)
        yield from layer(f"{dpt}.head.0", 128, DPT, 3, 3)
        yield from layer(f"{dpt}.head.2", 128, 128, 3, 3)
        yield from layer(f"{dpt}.head.4", 4, 128, 1, 1)


def gain(name):
    if name.startswith("patch_embed.proj"):
        return 3.0
    if any(f"{p}.weight" in name for p in (".attn.qkv", ".cross_attn.projq", ".cross_attn.projk")):
        return 1.5
    if any(f"{p}.weight" in name for p in (".attn.proj", ".cross_attn.proj", ".mlp.fc2", ".dpt.head.4")):
        return 0.35
    return 1.0


def synthetic(name, shape):
    """offset + amp * u, u uniform in [-1, 1) from splitmix64 seeded by the FNV-1a hash of the name."""
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = (h ^ byte) * 0x100000001B3 % 2**64
    transposed = name.endswith(("act_postprocess.0.1.weight", "act_postprocess.1.1.weight"))
    fan_in = shape[0] if transposed else math.prod(shape[1:])
    if name.endswith(".bias"):
        offset, amp = 0.0, 0.05
    elif len(shape) == 1:
        offset, amp = 1.0, 0.1
    else:
        offset, amp = 0.0, gain(name) * math.sqrt(3 / fan_in)
    values = np.empty(math.prod(shape), np.float32)
    for start in range(0, values.size, 1 << 20):  # in pieces, for the sake of memory
        i = np.arange(start, min(start + (1 << 20), values.size), dtype=np.uint64) + np.uint64(1)
        z = np.uint64(SEED ^ h) + i * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
        k = ((z ^ z >> np.uint64(31)) >> np.uint64(40)).astype(np.int64) - 2**23
        values[start:start + i.size] = k.astype(np.float32) * np.float32(2**-23) * np.float32(amp)
    return torch.from_numpy((values + np.float32(offset) if offset else values).reshape(shape))


# ---- The network. P maps official parameter names to tensors; tokens are (batch, tokens, channels).

def linear(P, name, x):
    return F.linear(x, P[f"{name}.weight"], P[f"{name}.bias"])


def norm(P, name, x):
    return F.layer_norm(x, x.shape[-1:], P[f"{name}.weight"], P[f"{name}.bias"], 1e-6)


def conv(P, name, x, **kw):
    return F.conv2d(x, P[f"{name}.weight"], P.get(f"{name}.bias"), **kw)


def rope_table(h, w):
    """cos and sin, (tokens, 64): the first half of a head turns by the row, the second by the column."""
    frequency = 100.0 ** (-torch.arange(0, HEAD // 2, 2).float() / (HEAD // 2))
    rows, columns = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
    row, column = (p.reshape(-1, 1).float() * frequency for p in (rows, columns))
    angles = torch.cat((row, row, column, column), -1)
    return angles.cos(), angles.sin()


def rope(x, table):
    a, b, c, d = x.float().chunk(4, -1)
    return (x.float() * table[0] + torch.cat((-b, a, -d, c), -1) * table[1]).to(x.dtype)


def attend(q, k, v, table):
    q, k, v = (t.unflatten(-1, (-1, HEAD)).transpose(1, 2) for t in (q, k, v))
    x = F.scaled_dot_product_attention(rope(q, table), rope(k, table), v)
    return x.transpose(1, 2).flatten(2)


def attention(P, name, x, table):
    return linear(P, f"{name}.proj", attend(*linear(P, f"{name}.qkv", x).chunk(3, -1), table))


def cross_attention(P, name, x, y, table):
    q, k, v = (linear(P, f"{name}.proj{p}", t) for p, t in (("q", x), ("k", y), ("v", y)))
    return linear(P, f"{name}.proj", attend(q, k, v, table))


def mlp(P, name, x):
    return linear(P, f"{name}.fc2", F.gelu(linear(P, f"{name}.fc1", x)))


def encoder_block(P, b, x, table):
    x = x + attention(P, f"{b}.attn", norm(P, f"{b}.norm1", x), table)
    return x + mlp(P, f"{b}.mlp", norm(P, f"{b}.norm2", x))


def decoder_block(P, b, x, memory, table):
    x = x + attention(P, f"{b}.attn", norm(P, f"{b}.norm1", x), table)
    memory = norm(P, f"{b}.norm_y", memory)
    x = x + cross_attention(P, f"{b}.cross_attn", norm(P, f"{b}.norm2", x), memory, table)
    return x + mlp(P, f"{b}.mlp", norm(P, f"{b}.norm3", x))


def up2(x):
    return F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True)


def residual_unit(P, name, x):
    return x + conv(P, f"{name}.conv2", F.relu(conv(P, f"{name}.conv1", F.relu(x), padding=1)), padding=1)


def dpt_head(P, dpt, layers, h, w):
    maps = []
    for i, hook in enumerate(HOOKS):
        x = layers[hook].transpose(1, 2).unflatten(2, (h, w))
        name = f"{dpt}.act_postprocess.{i}"
        x = conv(P, f"{name}.0", x)
        if i < 2:
            x = F.conv_transpose2d(x, P[f"{name}.1.weight"], P[f"{name}.1.bias"], stride=4 >> i)
        elif i == 3:
            x = conv(P, f"{name}.1", x, stride=2, padding=1)
        maps.append(conv(P, f"{dpt}.scratch.layer{i + 1}_rn", x, padding=1))
    path = maps[3]
    for i in (4, 3, 2, 1):
        name = f"{dpt}.scratch.refinenet{i}"
        if i < 4:
            path = path + residual_unit(P, f"{name}.resConfUnit1", maps[i - 1])
        path = conv(P, f"{name}.out_conv", up2(residual_unit(P, f"{name}.resConfUnit2", path)))
        if i == 4:  # an odd grid was rounded up
            path = path[..., :h, :w]
    x = up2(conv(P, f"{dpt}.head.0", path, padding=1))
    return conv(P, f"{dpt}.head.4", F.relu(conv(P, f"{dpt}.head.2", x, padding=1)))


def points(raw):
    raw = raw.float().permute(0, 2, 3, 1)
    v, c = raw[..., :3], raw[..., 3]
    d = v.norm(dim=-1, keepdim=True)
    return v / d.clamp(min=1e-8) * torch.expm1(d), 1 + torch.exp(c)


def forward(P, images):
    """images (2, 3, H, W) -> pts3d1, conf1, pts3d2, conf2; both point maps are in the frame of view 1."""
    h, w = images.shape[2] // 16, images.shape[3] // 16
    table = rope_table(h, w)
    x = conv(P, "patch_embed.proj", images, stride=16).flatten(2).transpose(1, 2)
    for i in range(ENC_LAYERS):
        x = encoder_block(P, f"enc_blocks.{i}", x, table)
    x = norm(P, "enc_norm", x)
    layers1, layers2 = [x[:1]], [x[1:]]
    f1, f2 = linear(P, "decoder_embed", x).split(1)
    for i in range(DEC_LAYERS):
        f1, f2 = (decoder_block(P, f"dec_blocks.{i}", f1, f2, table),
                  decoder_block(P, f"dec_blocks2.{i}", f2, f1, table))
        layers1.append(f1), layers2.append(f2)
    layers1[-1], layers2[-1] = norm(P, "dec_norm", f1), norm(P, "dec_norm", f2)
    return (*points(dpt_head(P, "downstream_head1.dpt", layers1, h, w)),
            *points(dpt_head(P, "downstream_head2.dpt", layers2, h, w)))


# ---- Command line.

def load(path, size):
    image = Image.open(path).convert("RGB")
    if image.size != size:
        raise SystemExit(f"{path}: is {image.size[0]}x{image.size[1]}, not {size[0]}x{size[1]}")
    return torch.from_numpy((np.asarray(image, np.float32) / 255 - 0.5) / 0.5).permute(2, 0, 1)


def main():
    cli = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cli.add_argument("--size", default="512x512", help="WxH, multiples of 16; the images must have it already")
    cli.add_argument("--mode", choices=("f32", "bf16-autocast", "bf16"), default="f32")
    cli.add_argument("--runs", type=int, default=1, help="timed runs, after an untimed one")
    cli.add_argument("--threads", type=int, default=0, help="0: as torch chooses")
    cli.add_argument("--img1", required=True)
    cli.add_argument("--img2", required=True)
    cli.add_argument("--out", help="npz with pts3d1, conf1, pts3d2, conf2")
    cli.add_argument("--json", action="store_true", help="print the numbers as one JSON object")
    args = cli.parse_args()
    size = tuple(map(int, args.size.split("x")))
    if len(size) != 2 or any(n < 16 or n % 16 for n in size) or args.runs < 1:
        cli.error("--size is WxH in multiples of 16, --runs at least 1")
    if args.threads:
        torch.set_num_threads(args.threads)
    dtype = torch.bfloat16 if args.mode == "bf16" else torch.float32
    images = torch.stack((load(args.img1, size), load(args.img2, size))).to(dtype)
    P = {name: synthetic(name, shape).to(dtype) for name, shape in shapes()}
    times = []
    for _ in range(args.runs + 1):
        start = time.perf_counter()
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=args.mode == "bf16-autocast"):
            result = forward(P, images)
        times.append((time.perf_counter() - start) * 1e3)
    report = {"mode": args.mode, "size": args.size, "threads": torch.get_num_threads(), "torch": torch.__version__,
              "runs": args.runs, "median_ms": round(statistics.median(times[1:]), 1), "min_ms": round(min(times[1:]), 1),
              "peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6)}
    if args.out:
        np.savez(args.out, **{k: t[0].numpy() for k, t in zip(("pts3d1", "conf1", "pts3d2", "conf2"), result)})
    if args.json:
        print(json.dumps(report))
    else:
        print("{mode} {size}, {threads} threads, torch {torch}: median {median_ms} ms, min {min_ms} ms per pair "
              "({runs} runs), peak RSS {peak_rss_mb} MB".format(**report))


if __name__ == "__main__":
    main()
